//! Formats values for people.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rwlease::LockMode;
use rwlease::status::ClientInfo;
use serde_json::{Value, json};

/// A duration, to about three digits.
pub fn duration(time: Duration) -> String {
    let rounded = match time {
        tiny if !tiny.is_zero() && tiny < Duration::from_millis(1) => {
            Duration::from_micros(tiny.as_micros() as u64)
        }
        short if short < Duration::from_secs(1) => Duration::from_millis(short.as_millis() as u64),
        middle if middle < Duration::from_secs(60) => {
            Duration::from_millis(middle.as_millis() as u64 / 100 * 100)
        }
        long => Duration::from_secs(long.as_secs()),
    };
    humantime::format_duration(rounded).to_string()
}

/// A moment in UTC, to the second.
pub fn moment(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

/// Makes a foreign text safe for one line of a terminal: escapes characters that control the
/// terminal or change the direction of text.
pub fn escape_controls(text: &str) -> String {
    let has_power = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(c, '\u{2066}'..='\u{2069}')
    };
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match has_power(c) {
            true => plain.extend(c.escape_default()),
            false => plain.push(c),
        }
    }
    plain
}

/// Who a client is, in words. The label by default is the short host name and the process id.
pub fn who(client: &ClientInfo) -> String {
    let ClientInfo { label, host, pid, .. } = client;
    let short = host.split('.').next().unwrap_or_default();
    let text = match *label == format!("{short}:{pid}") {
        true => label.clone(),
        false => format!("{label} (pid {pid} on {host})"),
    };
    escape_controls(&text)
}

/// Who a client is, or the id of its acquisition if that is not known.
pub fn who_or_id(client: Option<&ClientInfo>, id: &str) -> String {
    client.map_or_else(|| escape_controls(id), who)
}

/// Writes a table with a header. `aligned_right` has the columns of numbers.
pub fn write_table<const N: usize>(
    out: &mut impl Write,
    header: [&str; N],
    aligned_right: &[usize],
    rows: &[[String; N]],
) -> io::Result<()> {
    let length = |text: &str| text.chars().count();
    let widths: [usize; N] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| length(&row[column]));
        cells.chain([length(header[column])]).max().unwrap_or(0)
    });
    let line = |cells: [&str; N]| {
        let cells = cells.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            // `format!` panics for a width above 65,535.
            let padding = " ".repeat(width.saturating_sub(length(cell)));
            match aligned_right.contains(&column) {
                true => padding + cell,
                false => (*cell).to_owned() + &padding,
            }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let dim = anstyle::Style::new().dimmed();
    writeln!(out, "{dim}{}{dim:#}", line(header))?;
    rows.iter().try_for_each(|row| writeln!(out, "{}", line(row.each_ref().map(String::as_str))))
}

/// A client in JSON.
pub fn client_json(client: &ClientInfo) -> Value {
    let since_1970 = client.started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "label": client.label,
        "host": client.host,
        "pid": client.pid,
        "version": client.version,
        "started_at": since_1970.as_millis() as u64,
    })
}

pub fn mode(mode: LockMode) -> &'static str {
    match mode {
        LockMode::Read => "read",
        LockMode::Write => "write",
    }
}

/// A number with its noun.
pub fn with_noun(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// The holders in a few words.
pub fn holders(writer: bool, readers: u64) -> String {
    match (writer, readers) {
        (true, 0) => "a writer".to_owned(),
        (true, readers) => format!("a writer and {}", with_noun(readers, "reader", "readers")),
        (false, readers) => with_noun(readers, "reader", "readers"),
    }
}

#[cfg(test)]
mod tests;
