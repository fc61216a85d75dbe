use super::*;

fn words(command: &Command) -> String {
    let words = command.iter().map(|word| String::from_utf8_lossy(word).into_owned());
    words.collect::<Vec<_>>().join(" ")
}

fn aof(master: i64, replicas: i64) -> RespValue {
    RespValue::Array(vec![RespValue::Int(master), RespValue::Int(replicas)])
}

fn error(line: &str) -> RespValue {
    let (code, message) = line.split_once(' ').unwrap();
    RespValue::Error(ServerError::new(code, message))
}

#[test]
fn commands_wait_for_what_is_wanted() {
    for (replicas, fsync, expected) in [
        (0, Fsync::None, &[] as &[&str]),
        (2, Fsync::None, &["WAIT 2 250"]),
        (0, Fsync::Master, &["WAITAOF 1 0 2000"]),
        (2, Fsync::Master, &["WAIT 2 250", "WAITAOF 1 0 2000"]),
        (2, Fsync::Replicas, &["WAIT 2 250", "WAITAOF 0 2 2000"]),
        (0, Fsync::All, &["WAITAOF 1 0 2000"]),
        (2, Fsync::All, &["WAIT 2 250", "WAITAOF 1 2 2000"]),
    ] {
        let commands = Confirmation { replicas, fsync }.commands();
        let commands: Vec<String> = commands.iter().map(words).collect();
        assert_eq!(commands, expected, "{replicas} {fsync:?}");
    }
}

#[test]
fn read_compares_each_count_with_what_is_wanted() {
    let too_few = |confirmed| Err(ConfirmationError::TooFewReplicas { confirmed, wanted: 2 });
    for (replicas, fsync, replies, expected) in [
        (2, Fsync::None, vec![RespValue::Int(2)], Ok(())),
        (2, Fsync::None, vec![RespValue::Int(1)], too_few(1)),
        (2, Fsync::None, vec![error("UNBLOCKED x")], too_few(0)),
        (2, Fsync::None, vec![], too_few(0)),
        (0, Fsync::Master, vec![aof(1, 0)], Ok(())),
        (0, Fsync::Master, vec![aof(0, 3)], Err(ConfirmationError::MasterNotOnDisk)),
        (0, Fsync::Master, vec![error("UNBLOCKED x")], Err(ConfirmationError::MasterNotOnDisk)),
        (0, Fsync::Master, vec![], Err(ConfirmationError::MasterNotOnDisk)),
        // The replicas of WAIT, not of WAITAOF.
        (2, Fsync::Master, vec![RespValue::Int(2), aof(1, 0)], Ok(())),
        (2, Fsync::Master, vec![RespValue::Int(0), aof(1, 2)], too_few(0)),
        (
            2,
            Fsync::Master,
            vec![RespValue::Int(2), aof(0, 2)],
            Err(ConfirmationError::MasterNotOnDisk),
        ),
        (2, Fsync::Replicas, vec![RespValue::Int(2), aof(0, 2)], Ok(())),
        (2, Fsync::Replicas, vec![RespValue::Int(2), aof(1, 1)], too_few(1)),
        (2, Fsync::All, vec![RespValue::Int(2), aof(1, 2)], Ok(())),
        (2, Fsync::All, vec![RespValue::Int(2), aof(1, 0)], too_few(0)),
        (
            2,
            Fsync::All,
            vec![RespValue::Int(2), aof(0, 2)],
            Err(ConfirmationError::MasterNotOnDisk),
        ),
    ] {
        let wanted = Confirmation { replicas, fsync };
        assert_eq!(wanted.read(&replies), expected, "{wanted:?} {replies:?}");
    }
}
