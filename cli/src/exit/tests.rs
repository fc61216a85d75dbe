use super::*;

#[test]
fn advice_matches_the_error_of_the_server() {
    let advice = |message| hint_for(message).unwrap_or_default();

    assert!(advice("1 of the 2 requested replicas confirmed the write").contains("--min-replicas"));
    assert!(advice("NOAUTH Authentication required.").contains("--help"));
    assert!(advice("the user lacks a right").contains("`rwlease doctor`"));
    assert!(advice("DENIED Redis is running in protected mode").contains("a password"));
    assert!(advice("CLUSTERDOWN The cluster is down").contains("`rwlease doctor`"));
    assert!(advice("NOREPLICAS Not enough good replicas to write.").contains("replicas run"));
    assert!(advice("MISCONF Errors writing to the AOF file").contains("disk"));
    let replica = "READONLY You can't write against a read only replica.";
    assert!(advice(replica).contains("primary"));
    assert!(advice("ERR DB index is out of range").contains("database"));
    assert!(advice("BUSY Redis is busy running a script.").contains("script"));
    assert!(advice("LOADING Redis is loading the dataset in memory").contains("loaded"));
    assert!(advice("ERR SELECT is not allowed in cluster mode").contains("out of the URL"));

    assert!(advice("this is a sentinel, not a server").contains("sentinel"));
    assert_eq!(hint_for("no reply in time"), None);
}
