use super::*;

fn info() -> ClientInfo {
    ClientInfo {
        label: "billing".into(),
        host: "web-1.example".into(),
        pid: 4711,
        version: "rwlease/0.1.0".into(),
        started_at: UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
    }
}

#[test]
fn record_of_a_client_is_parsed_from_its_words() {
    let record = format!("1 1700000000123 {}", info().description());
    assert_eq!(record, "1 1700000000123 4711 rwlease/0.1.0 web-1.example billing");
    assert_eq!(ClientInfo::parse(&record), Some(info()));
}

#[test]
fn record_with_further_words_is_parsed() {
    let record = format!("1 1700000000123 {} more words", info().description());
    assert_eq!(ClientInfo::parse(&record), Some(info()));
}

#[test]
fn record_of_another_version_or_with_missing_words_is_none() {
    for record in [
        "",
        "1",
        "2 1700000000123 4711 rwlease/0.1.0 web-1 billing",
        "1 soon 4711 rwlease/0.1.0 web-1 billing",
        "1 +1700000000123 4711 rwlease/0.1.0 web-1 billing",
        "1 1700000000123 +4711 rwlease/0.1.0 web-1 billing",
        "1 1700000000123 many rwlease/0.1.0 web-1 billing",
        "1 1700000000123 4711 rwlease/0.1.0 web-1",
        "1 1700000000123 4711 rwlease/0.1.0 web-1 ",
        "1 18446744073709551615 4711 rwlease/0.1.0 web-1 billing",
    ] {
        let parsed = ClientInfo::parse(record).map(|info| info.started_at);
        assert!(parsed.is_none_or(|at| at > UNIX_EPOCH + Duration::from_secs(1 << 40)), "{record}");
    }
}

#[test]
fn record_of_a_client_with_a_long_word_is_none() {
    let record = |version: usize, host: usize, label: usize| {
        let [version, host, label] = [version, host, label].map(|length| "x".repeat(length));
        ClientInfo::parse(&format!("1 1700000000123 4711 {version} {host} {label}"))
    };
    assert!(record(64, 128, 64).is_some());
    for (version, host, label) in [(65, 1, 1), (1, 129, 1), (1, 1, 65), (1, 1, 70_000), (0, 1, 1)] {
        assert_eq!(record(version, host, label), None, "{version} {host} {label}");
    }
}

#[test]
fn record_of_a_client_with_a_word_that_is_not_printable_is_none() {
    for word in ["a\x1b[2J", "a\nb", "a\u{202e}b", "größe"] {
        for words in [format!("{word} h l"), format!("v {word} l"), format!("v h {word}")] {
            assert_eq!(
                ClientInfo::parse(&format!("1 1700000000123 4711 {words}")),
                None,
                "{words}"
            );
        }
    }
}
