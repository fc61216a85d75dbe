use super::*;

fn hello(line: &str, renews: bool) -> ConnectionError {
    hello_refused(&ServerError::parse(line), renews)
}

#[test]
fn hello_rejected_is_permanent_unless_it_can_pass() {
    let wrong = hello("WRONGPASS no such user", false);
    assert_eq!(
        wrong.chain().to_string(),
        "authentication failed; check the user and the password: WRONGPASS no such user"
    );
    assert!(wrong.is_permanent && !hello("WRONGPASS x", true).is_permanent);
    assert!(hello("NOAUTH x", false).is_permanent);
    for line in ["ERR unknown command `HELLO`", "NOPROTO unsupported protocol version"] {
        let failure = hello(line, true);
        assert!(failure.is_permanent && failure.message.contains("RESP3"), "{failure}");
    }
    assert!(hello("DENIED Redis is running in protected mode", false).is_permanent);
    assert!(!hello("LOADING x", false).is_permanent);
    let full = hello("ERR max number of clients reached", false);
    assert_eq!(full.chain().to_string(), "HELLO failed: ERR max number of clients reached");
    assert!(!full.is_permanent);
}

#[test]
fn select_refused_is_a_wrong_setting() {
    let refused = |line| select_refused(&ServerError::parse(line), 1);
    let of_cluster = refused("ERR SELECT is not allowed in cluster mode");
    assert!(of_cluster.message.contains("only database 0") && of_cluster.is_invalid);
    assert!(refused("ERR DB index is out of range").is_invalid);
    let lacking = refused("NOPERM x");
    assert!(lacking.is_permanent && !lacking.is_invalid);
    assert!(!refused("LOADING x").is_permanent);
}

#[test]
fn handshake_error_without_password_masks_it_everywhere() {
    let server_error = ServerError::parse("ERR unknown user or password bob/hunter2");
    let failure = hello_refused(&server_error, false).without_password("hunter2");
    let text = "HELLO failed: ERR unknown user or password bob/***";
    assert_eq!(failure.chain().to_string(), text);
    assert!(!format!("{failure:?}").contains("hunter2"), "{failure:?}");
    for other in ["other", ""] {
        let kept = hello_refused(&server_error, false).without_password(other);
        assert!(kept.chain().to_string().contains("hunter2"), "{kept:?}");
    }
    let short = hello_refused(&server_error, false).without_password("bob");
    assert_eq!(short.chain().to_string(), "HELLO failed: ERR the server repeated the password");
    let error = std::io::Error::other("hunter2 is wrong");
    let failure = ConnectionError::not_sent("connection failed").with_source(error);
    let failure = failure.without_password("hunter2");
    assert_eq!(failure.chain().to_string(), "connection failed: *** is wrong");
    assert!(!format!("{failure:?}").contains("hunter2"), "{failure:?}");
}

#[test]
fn handshake_error_without_password_masks_one_that_a_long_text_cuts() {
    let short = "0123456789".repeat(20);
    let password = "0123456789".repeat(60);
    let twice = format!("ERR {short} then {short} and {short}");
    let failure = hello_refused(&ServerError::parse(&twice), false).without_password(&short);
    assert!(!failure.chain().to_string().contains("0123456789"), "{failure:?}");
    for start in ["ERR bad token ", "ERR "] {
        let server_error = ServerError::parse(&format!("{start}{password}"));
        let failure = hello_refused(&server_error, false).without_password(&password);
        let told = format!("{} {failure:?}", failure.chain());
        assert!(!told.contains("0123456789"), "{told}");
        assert!(told.contains("***"), "{told}");
    }
    let other = ServerError::parse(&format!("ERR {}", "x".repeat(600)));
    let kept = hello_refused(&other, false).without_password(&password);
    assert!(kept.chain().to_string().ends_with('…'), "{kept:?}");
}
