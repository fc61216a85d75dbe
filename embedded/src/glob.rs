//! The patterns of `SCAN ... MATCH` and `CONFIG GET`.

/// Returns true if the text matches the pattern: `*` matches any bytes, `?` one byte, `[a-z]` and
/// `[^a-z]` one of a set; `\` makes the next byte literal.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let Some((&first, rest)) = pattern.split_first() else {
        return text.is_empty();
    };
    if first == b'*' {
        return (0..=text.len()).any(|skipped| matches(rest, &text[skipped..]));
    }
    let Some((&byte, text)) = text.split_first() else {
        return false;
    };
    match (first, rest) {
        (b'?', _) => matches(rest, text),
        (b'[', _) => {
            let (among, rest) = set(rest, byte);
            among && matches(rest, text)
        }
        (b'\\', [literal, rest @ ..]) => *literal == byte && matches(rest, text),
        _ => first == byte && matches(rest, text),
    }
}

/// Whether the byte is in the set at the beginning of the pattern (after its `[`), and the pattern
/// after the set.
fn set(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let (negated, mut rest) = match pattern {
        [b'^', rest @ ..] => (true, rest),
        _ => (false, pattern),
    };
    let mut among = false;
    loop {
        rest = match rest {
            [] => break,
            [b']', rest @ ..] => {
                return (among != negated, rest);
            }
            [b'\\', literal, rest @ ..] => {
                among |= *literal == byte;
                rest
            }
            [from, b'-', to, rest @ ..] => {
                among |= (*from.min(to)..=*from.max(to)).contains(&byte);
                rest
            }
            [literal, rest @ ..] => {
                among |= *literal == byte;
                rest
            }
        };
    }
    (among != negated, rest)
}

#[cfg(test)]
mod tests;
