use super::*;

#[tokio::test]
async fn errors_show_the_url_and_no_password() {
    for (url, shown) in [
        ("redis://locker:SECRET@h:port", "`redis://locker:***@h:port`"),
        ("redis://:SECRET@h/x", "`redis://:***@h/x`"),
        ("redis://locker:SECRET", "`redis://locker:***`"),
        ("locker:SECRET@h", "`locker:***@h`"),
        ("redis+sentinel://locker:SECRET@s", "`redis+sentinel://locker:***@s`"),
        ("redis://locker:SECRET@127.0.0.1:1", "127.0.0.1:1"),
        ("redis+sentinel://locker:SECRET@127.0.0.1:1/m", "127.0.0.1:1"),
    ] {
        let builder = Client::builder().urls([url]);
        let settings = format!("{builder:?}");
        let error = builder.connect().await.unwrap_err();
        assert!(error.to_string().contains(shown), "{url}: {error}");
        for said in [settings, error.to_string(), format!("{error:#?}")] {
            assert!(!said.contains("SECRET"), "{url}: {said}");
        }
    }
}

#[test]
fn sentinel_debug_and_errors_do_not_show_the_password() {
    let url = "redis+sentinel://locker:SECRET@s/m";
    let sentinel: SentinelConfig = url.parse().unwrap();
    let sentinel = sentinel.credentials(crate::Credentials::password("SECRET"));
    let said = format!("{sentinel:?} {:?}", Client::builder().sentinel(sentinel.clone()));
    assert!(!said.contains("SECRET"), "{said}");
    let named = SentinelConfig::new("m").node("redis://:SECRET@s").node("locker:SECRET@s");
    let said = format!("{named:?} {:?}", Client::builder().sentinel(named.clone()));
    assert!(!said.contains("SECRET") && said.contains("nodes: 2"), "{said}");
    let wrong = SentinelConfig::new("m").node("locker:SECRET@s").nodes().unwrap_err();
    assert!(wrong.to_string().contains("`locker:***@s`"), "{wrong}");
    assert!(!format!("{wrong:?}").contains("SECRET"), "{wrong:?}");
}
