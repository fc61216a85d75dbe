//! A lock's state line, parsed into its fields as `docs/protocol.md` describes them.

use std::collections::BTreeMap;

/// A lock's fields as if each part of its line had its own field. `shape`, `life`, `fence`, and
/// `flags` where the shape has any, replace `s`. A sole holder becomes a `writer`, or one reader of
/// several. Without a line the fields stay as they are.
pub fn expand_line(fields: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String> {
    let Some(line) = fields.get("s") else {
        return Ok(fields.clone());
    };
    let mut all = fields.clone();
    all.remove("s");
    let told = parse_line(line).ok_or_else(|| format!("malformed: s = {line}"))?;
    for (field, value) in told {
        if let Some(twice) = all.insert(field.clone(), value) {
            return Err(format!("{field} = {twice} stands beside s = {line}"));
        }
    }
    Ok(all)
}

fn parse_line(line: &str) -> Option<Vec<(String, String)>> {
    let digits = |from: usize, to: usize| {
        line.get(from..to).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let shape = line.strip_prefix('2')?.get(..1)?;
    let (life, token) = (digits(2, 15)?, digits(15, 31)?);
    let mut told = vec![("shape", shape), ("life", life), ("fence", token)]
        .into_iter()
        .map(|(field, value)| (field.to_owned(), value.to_owned()))
        .collect::<Vec<_>>();
    let mut tell = |field: &str, value: String| told.push((field.to_owned(), value));
    if matches!(shape, "F" | "Q") {
        return (line.len() == 31).then_some(told);
    }
    let deadline = digits(31, 44)?;
    // A cached holder has its own state and token. The token of any other holder is the last one.
    let is_cached = shape != "S" && matches!(line.get(44..45)?, "k" | "c" | "b");
    let (state, flags, own, rest) = match is_cached {
        true => (&line[44..45], digits(45, 46)?, digits(46, 62)?, line.get(62..)?),
        false => ("h", digits(44, 45)?, token, line.get(45..)?),
    };
    if own > token {
        return None;
    }
    if !matches!(flags, "0" | "1" | "2" | "3") {
        return None;
    }
    tell("flags", flags.into());
    let is_id = (12..=40).contains(&rest.len())
        && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    match shape {
        "W" if is_id => tell("writer", format!("{state}{deadline}{own}{rest}")),
        "R" if is_id => {
            let is_called_back = matches!(state, "k" | "c");
            tell(&format!("r:{rest}"), format!("{state}{deadline}{own}0"));
            tell("i:0", format!("{}{rest}", if is_called_back { "+" } else { "" }));
            if is_called_back {
                tell("cached_readers", "1".into());
            }
            tell("readers", "1".into());
            tell("read_min", deadline.into());
        }
        "S" if rest.parse().is_ok_and(|readers: u64| readers > 0 && !rest.starts_with('0')) => {
            tell("readers", rest.into());
            tell("read_min", deadline.into());
        }
        "P" => {
            let numbers: Vec<&str> = rest.split(' ').collect();
            let [limit, used, holders] = numbers[..] else { return None };
            let is_number =
                |text: &&str| text.parse::<u64>().is_ok_and(|it| it.to_string() == **text);
            if !numbers.iter().all(is_number) || limit == "0" {
                return None;
            }
            tell("limit", limit.into());
            tell("used", used.into());
            if holders != "0" {
                tell("readers", holders.into());
                tell("read_min", deadline.into());
            }
        }
        _ => return None,
    }
    if matches!(shape, "W" | "R") && flags >= "2" {
        tell("revoked_up_to", own.into());
    }
    Some(told)
}
