use super::*;

fn server(url: &str) -> Result<ServerUrl, UrlError> {
    url.parse()
}

#[test]
fn urls() {
    let plain = ServerUrl {
        address: Address { host: "127.0.0.1".into(), port: 7000 },
        tls: false,
        credentials: None,
        database: 0,
    };
    assert_eq!(server("redis://127.0.0.1:7000"), Ok(plain.clone()));
    assert_eq!(
        server("redis://:p%40ss@127.0.0.1:7000/3"),
        Ok(ServerUrl {
            credentials: Some(Credentials::password("p@ss")),
            database: 3,
            ..plain.clone()
        })
    );
    assert_eq!(
        server("redis://user:pass@127.0.0.1:7000"),
        Ok(ServerUrl { credentials: Some(Credentials::new("user", "pass")), ..plain })
    );
    let address = |url| server(url).map(|server| server.address.to_string());
    assert_eq!(address("redis://localhost").as_deref(), Ok("localhost:6379"));
    assert_eq!(address("redis://[::1]:1").as_deref(), Ok("[::1]:1"));
    assert_eq!(address("redis://[::1]").as_deref(), Ok("[::1]:6379"));
    assert_eq!(address("valkey://host:").as_deref(), Ok("host:6379"));
    assert_eq!(address("redis://host/").as_deref(), Ok("host:6379"));
    let credentials = |url: &str| server(url).unwrap().credentials;
    assert_eq!(credentials("redis://:a:b@c%@host"), Some(Credentials::password("a:b@c%")));
    assert_eq!(credentials("redis://%C3%A4:%zz%2@host"), Some(Credentials::new("ä", "%zz%2")));
    assert_eq!(credentials("redis://@host"), None);
    assert_eq!(credentials("redis://user:@host"), Some(Credentials::new("user", "")));
}

#[test]
fn server_with_invalid_url_returns_error_without_password() {
    for url in [
        "",
        "localhost:7000",
        "http://localhost",
        "redis://",
        "unix:///tmp/socket",
        "redis://h/x",
        "redis://h/-1",
        "redis://h/1/2",
        "redis://h/99999999999999999999",
        "redis://0.0.0.0",
        "redis://[::]",
        "redis://[::1",
        "redis://[::1]1",
        "redis://[host]",
        "redis://h:65536",
        "redis://h:-1",
        "redis://h:1:2",
        "redis://a b",
        "redis://a,b",
        "redis://:%ff@h",
        "redis://h?protocol=resp3",
        "redis://h#name",
        "redis://user@h",
    ] {
        assert!(server(url).is_err(), "{url}");
    }
    assert!(!server("redis://user:secret@host:port").unwrap_err().to_string().contains("secret"));
    assert!(server("rediss://host/#insecure").is_err());
}

#[test]
fn urls_of_sentinels() {
    let parse = |url: &str| url.parse::<SentinelUrl>();
    let url = parse("redis+sentinel://user:p%40ss@s1,s2:1,[::1]:2/my%20master/3").unwrap();
    let sentinels: Vec<_> = url.sentinels.iter().map(ToString::to_string).collect();
    assert_eq!(sentinels, ["s1:26379", "s2:1", "[::1]:2"]);
    assert_eq!((&*url.master, url.database, url.tls), ("my master", 3, false));
    assert_eq!(url.credentials, Some(Credentials::new("user", "p@ss")));
    assert_eq!(parse("valkey+sentinel://s/m/").map(|url| url.database), Ok(0));
    assert_eq!(
        parse("rediss+sentinel://s/m").map(|url| url.tls).ok(),
        cfg!(feature = "tls").then_some(true)
    );
    for (wrong, why) in [
        ("redis+sentinel://s", "master is missing"),
        ("redis+sentinel://s/", "master is missing"),
        ("redis+sentinel://s/m/x", "database"),
        ("redis+sentinel:///m", "host is missing"),
        ("redis+sentinel://s,/m", "host is missing"),
        ("redis+sentinel://s/m?db=1", "query"),
        ("redis+sentinel://s#m", "fragment"),
        ("http+sentinel://s/m", "not supported; use `redis://`"),
        ("redis+sentinel://user@s/m", "`user:password@`"),
        ("redis://s/m", "not of sentinels"),
    ] {
        let error = parse(wrong).unwrap_err().to_string();
        assert!(error.contains(why), "{wrong}: {error}");
    }
    for place in ["a", "a:1", "[::1]:2"] {
        assert!(sentinel(place).is_ok(), "{place}");
    }
    for place in ["", "a,b", "a/0", "a#m", "a?db=1", "redis://a"] {
        assert!(sentinel(place).is_err(), "{place}");
    }
    assert!(SentinelUrl::matches("http+sentinel://x") && !SentinelUrl::matches("redis://x"));
}

#[test]
fn tls_needs_its_feature() {
    assert_eq!(
        server("rediss://host").map(|server| server.tls).ok(),
        cfg!(feature = "tls").then_some(true)
    );
}

#[test]
fn invalid_url_says_what_to_write() {
    for (url, says) in [
        ("redis://a:1,b:2", "write one URL for each server"),
        ("localhost:7000", "`redis+sentinel://`"),
        ("http://localhost", "`redis+sentinel://`"),
    ] {
        let said = server(url).unwrap_err().to_string();
        assert!(said.contains(says), "{url}: {said}");
    }
}
