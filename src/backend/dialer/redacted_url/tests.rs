use super::*;

#[test]
fn shown_url_keeps_every_part_that_cannot_be_a_password() {
    for (url, shown) in [
        ("", ""),
        ("localhost:7000", "localhost:7000"),
        ("http://localhost", "http://localhost"),
        ("redis://h:7000/x", "redis://h:7000/x"),
        ("redis://[::1]:1/x", "redis://[::1]:1/x"),
        ("redis://[::1]/x", "redis://[::1]/x"),
        ("redis+sentinel://s1:1,s2,[::1]:2", "redis+sentinel://s1:1,s2,[::1]:2"),
        ("unix:///tmp/socket", "unix:///tmp/socket"),
        ("redis://locker:x@h:port", "redis://locker:***@h:port"),
        ("redis://:x@h:1:2", "redis://:***@h:1:2"),
        ("redis://x@h/y", "redis://***@h/y"),
        ("redis://h?x", "redis://h?***"),
        ("redis://u:x@h#y", "redis://u:***@h#***"),
        ("redis://u:x@y#z@h", "redis://u:***"),
        ("redis://h\n", "redis://h\\n"),
    ] {
        assert_eq!(RedactedUrl(url).to_string(), format!("`{shown}`"), "{url}");
    }
}

#[test]
fn no_password_is_shown() {
    for url in [
        "redis://user:SECRET@h:port",
        "redis://:SECRET@h/x",
        "redis://SECRET@h/x",
        "redis://user:SECRET",
        "redis://:SECRET",
        "redis://:1/SECRET",
        "redis://user:1SECRET/0",
        "redis://user:SECRET/SECRET@h",
        "redis://user:SECRET@SECRET@h:port",
        "redis://user:SECRET?SECRET@h",
        "redis://user:SECRET#SECRET@h",
        "redis://user:SECRET@SECRET#SECRET@h",
        "redis://user:SECRET@SECRET?SECRET@h",
        "redis://SECRET#SECRET@h",
        "redis://SECRET@SECRET:1?SECRET@h",
        "redis://user:SECRET:SECRET@h:port",
        "redis://user:SECRET://SECRET@h:port",
        "redis://h?password=SECRET",
        "redis://h?password=SECRET@SECRET",
        "redis://user:%53SECRET@h:port",
        "redis://[user:SECRET",
        "redis:/user:SECRET@h",
        "redis:user:SECRET@h",
        "user:SECRET@h:7000",
        "user:SECRET",
        "user:SECRET://h",
        "http://user:SECRET@h",
        "redis+sentinel://user:SECRET@s1,user:SECRET@s2",
        "redis+sentinel://s1,user:SECRET/m",
    ] {
        let shown = RedactedUrl(url).to_string();
        assert!(!shown.contains("SECRET"), "{url}: {shown}");
    }
}
