use super::*;

fn text(text: &'static str) -> RespValue {
    RespValue::String(text.into())
}

fn error(detail: &str) -> RespValue {
    RespValue::Error(ServerError { code: "ERR".into(), message: detail.into() })
}

#[test]
fn the_time_is_read() {
    let time = |seconds: &'static str, micros: &'static str| {
        Some(RespValue::Array(vec![
            RespValue::String(seconds.into()),
            RespValue::String(micros.into()),
        ]))
    };
    assert_eq!(parse_time(time("1700000000", "999999")).unwrap(), 1_700_000_000_999);
    assert_eq!(parse_time(time("1700000000", "1000")).unwrap(), 1_700_000_000_001);
    assert!(parse_time(time("x", "1")).is_err());
    for (seconds, micros) in [
        ("18446744073709551615", "18446744073709551615"),
        ("18446744073709551", "999999999999999999"),
        ("18446744073709551616", "0"),
        ("0", "18446744073709551615"),
    ] {
        let reported = parse_time(time(seconds, micros));
        assert_eq!(reported.is_ok(), seconds == "0", "{seconds} {micros}");
    }
    assert!(parse_time(None).is_err());
    let refused = |code: &str| {
        parse_time(Some(RespValue::Error(ServerError { code: code.into(), message: "no".into() })))
            .unwrap_err()
    };
    assert!(refused("NOPERM").is_permanent);
    assert!(!refused("LOADING").is_permanent);
}

#[test]
fn server_name_is_the_prefix_of_the_run_id_or_none() {
    let info = "# Server\r\nredis_version:7.0.15\r\nrun_id:0123456789abcdef0123456789abcdef01234567\r\ntcp_port:1\r\n";
    assert_eq!(
        parse_server_name(Some(RespValue::String(info.into()))).as_deref(),
        Some("0123456789ab")
    );
    assert_eq!(parse_server_name(Some(RespValue::String("# Server\r\n".into()))), None);
    assert_eq!(parse_server_name(Some(RespValue::String("run_id:\r\n".into()))), None);
    assert_eq!(
        parse_server_name(Some(RespValue::Error(ServerError {
            code: "NOPERM".into(),
            message: String::new()
        }))),
        None
    );
}

#[test]
fn delifeq_is_available_from_valkey_9_on() {
    let told = |text: &'static str| supports_delifeq(&RespValue::String(text.into()));
    assert!(told("# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.1.2\r\nrun_id:a\r\n"));
    assert!(told("valkey_version:10.0.0\r\n"));
    assert!(!told("# Server\r\nredis_version:7.2.4\r\nvalkey_version:8.1.4\r\n"));
    assert!(!told("redis_version:9.0.0\r\nrun_id:a\r\n"));
    assert!(!told("valkey_version:x\r\n"));
    assert!(!supports_delifeq(&RespValue::Nil));
}

#[test]
fn identity_told_by_unusable_myid_reply_is_unknown() {
    assert_eq!(
        ServerIdentity::from_reply(Some(text("abc"))).unwrap(),
        ServerIdentity::ClusterNode("abc".into())
    );
    let disabled = error("This instance has cluster support disabled");
    assert_eq!(ServerIdentity::from_reply(Some(disabled)).unwrap(), ServerIdentity::Standalone);
    let renamed = error("unknown command `CLUSTER`, with args beginning with: `MYID`");
    assert_eq!(ServerIdentity::from_reply(Some(renamed)).unwrap(), ServerIdentity::Standalone);
    for reply in [error("unknown subcommand 'MYID'"), text(""), RespValue::Nil] {
        assert_eq!(
            ServerIdentity::from_reply(Some(reply.clone())).unwrap(),
            ServerIdentity::Unknown,
            "{reply:?}"
        );
    }
    assert_eq!(ServerIdentity::from_reply(None).unwrap(), ServerIdentity::Unknown);
    let loading = RespValue::Error(ServerError {
        code: "LOADING".into(),
        message: "Redis is loading the dataset in memory".into(),
    });
    assert!(ServerIdentity::from_reply(Some(loading)).is_err(), "it is asked again");
}

/// Another error, such as one of a node that is not ready, is no reason to give up for good.
#[test]
fn a_node_without_the_command_cluster_is_refused() {
    let check = |id| check_kind(&[error("x"), text("# Server\r\nredis_mode:cluster\r\n"), id]);
    assert!(check(error("unknown command 'CLUSTER'")).unwrap_err().is_permanent);
    assert!(check(error("not now")).is_ok());
    assert!(check(text("id")).is_ok());
}
