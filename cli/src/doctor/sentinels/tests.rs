use super::*;

#[test]
fn url_of_a_master_has_brackets_around_an_ipv6_address() {
    let url = |host: &str| {
        let master = Address { host: host.to_owned(), port: 6379 };
        let (start, end) = ("rediss://user:word@".to_owned(), "/2".to_owned());
        SentinelFacts { start, end, master, all: Vec::new() }.master_url()
    };
    assert_eq!(url("10.0.0.1"), "rediss://user:word@10.0.0.1:6379/2");
    assert_eq!(url("fd00::7"), "rediss://user:word@[fd00::7]:6379/2");
}
