use super::*;
use crate::backend::fake::server_error;

#[test]
fn delifeq_reply_without_deletion_is_left_to_the_script() {
    let error = |text| RespValue::Error(server_error(text));
    assert_eq!(parse_reply(RespValue::Int(1)), Ok(RespValue::String("released 0 0".into())));
    assert_eq!(parse_reply(RespValue::Int(0)), Err(DelIfEqMiss::ValueDiffers));
    assert_eq!(parse_reply(error("NOPERM no permissions")), Err(DelIfEqMiss::Unsupported));
    assert_eq!(parse_reply(error("ERR unknown command 'DELIFEQ'")), Err(DelIfEqMiss::Unsupported));
    for unwritable in ["NOREPLICAS Not enough good replicas", "MISCONF snapshots fail"] {
        assert_eq!(parse_reply(error(unwritable)), Err(DelIfEqMiss::ReadOnly));
    }
    for other in [error("MOVED 1 a:1"), error("WRONGTYPE x"), error("ERR x"), RespValue::Nil] {
        assert_eq!(parse_reply(other.clone()), Ok(other));
    }
}
