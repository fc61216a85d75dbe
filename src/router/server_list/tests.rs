use super::*;
use crate::backend::fake::address;

#[test]
fn tried_display_names_three_servers_and_counts_the_rest() {
    let tried =
        |hosts: &[&str]| ServerList(hosts.iter().map(|host| address(host)).collect()).to_string();
    assert_eq!(tried(&["a"]), "a:1");
    assert_eq!(tried(&["a", "b", "c"]), "a:1, b:1, c:1");
    assert_eq!(tried(&["a", "b", "c", "d", "e"]), "a:1, b:1, c:1 and 2 more");
}

#[test]
fn failures_settle_returns_permanent_error_in_any_order() {
    let order = ["a", "b", "c"].map(address);
    let permanent =
        |message| ConnectionError { is_permanent: true, ..ConnectionError::not_sent(message) };
    for shuffled in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let settle = |failures: [ConnectionError; 3], otherwise| {
            let mut noted = Failures::default();
            for at in shuffled {
                noted.note(order[at].clone(), failures[at].clone());
            }
            let (tried, failure) = noted.settle(&order, otherwise);
            assert_eq!(tried.to_string(), "a:1, b:1, c:1");
            failure.message
        };
        let passing = ["a", "b", "c"].map(ConnectionError::not_sent);
        let mixed = [passing[0].clone(), permanent("b"), permanent("c")];
        let otherwise = || Some(ConnectionError::not_sent("otherwise"));
        assert_eq!(settle(passing.clone(), None), "a");
        assert_eq!(settle(passing.clone(), otherwise()), "otherwise");
        assert_eq!(settle(mixed, otherwise()), "b");
    }
}
