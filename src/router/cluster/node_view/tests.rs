use rwlease_core::resp::ServerError;

use super::*;

fn text(text: &'static str) -> RespValue {
    RespValue::String(text.into())
}

fn error(detail: &str) -> RespValue {
    RespValue::Error(ServerError { code: "ERR".into(), message: detail.into() })
}

#[test]
fn epoch_and_state_are_read() {
    let info = "cluster_state:ok\r\ncluster_slots_ok:16384\r\ncluster_current_epoch:12\r\ncluster_my_epoch:2\r\n";
    assert_eq!(parse_cluster_info(Some(text(info))), (Some(12), Some(true)));
    assert_eq!(parse_cluster_info(Some(text("cluster_state:fail\r\n"))), (None, Some(false)));
    assert_eq!(parse_cluster_info(Some(text("cluster_current_epoch:x"))), (None, None));
    assert_eq!(parse_cluster_info(Some(error("unknown subcommand"))), (None, None));
    assert_eq!(parse_cluster_info(None), (None, None));
}
