//! The rights that the user lacks. The best check of a right is to use it.

use redis::aio::MultiplexedConnection as Connection;
use redis::{FromRedisValue, RedisError, RedisResult, Value};
use rwlease::Slot;

use super::finding::{Finding, Severity};
use super::probe::{NodeFacts, Role, is_refused, query, query_value};

/// What every lock needs: the right, and a command that tries it. The command runs at masters and
/// replicas, so it must not change anything.
const REQUIRED_RIGHTS: [(&str, &str); 11] = [
    ("+eval", "EVAL return(1) 0"),
    ("+evalsha", "EVALSHA 0000000000000000000000000000000000000000 1 KEY"),
    (ASKING, "ASKING"),
    (SLOTS, "CLUSTER SLOTS"),
    ("+time", "TIME"),
    ("+exists", "EXISTS KEY"),
    ("+hget", "HGET KEY field"),
    ("+hmget", "HMGET KEY field"),
    // It lacks a value, which the server sees after the right.
    ("+hset", "HSET KEY field value field"),
    ("+hdel", "HDEL KEY field"),
    // No number, likewise: a lock of that name must stay.
    ("+pexpireat", "PEXPIREAT KEY never"),
];

// Of a cluster alone.
const ASKING: &str = "+asking";
const SLOTS: &str = "+cluster|slots";

/// Stands for a key under the prefix.
const KEY: &str = "KEY";

/// Ends the text of a right that only the doctor needs.
const DOCTOR_ONLY: &str = "to the user of the doctor";

/// Optional commands: what each is for, and the right to give.
const OPTIONAL_COMMANDS: [(&str, &str); 13] = [
    (
        "INFO",
        "the hand-off by push, so waiters poll, and checks of the version, the memory and its policy, and the replicas: give +info",
    ),
    (
        "CLUSTER NODES",
        "checks of moving slots, and of replicas that never take over: give +cluster|nodes to the user of the doctor",
    ),
    (
        "SSUBSCRIBE",
        "pushes, so waiters poll, and cached locks are plain: give +ssubscribe +sunsubscribe and the channels",
    ),
    (
        "SPUBLISH",
        "pushes, so waiters poll, and a cached lock is recalled only once a second: give +spublish and the channels",
    ),
    (
        "SUNSUBSCRIBE",
        "ending subscriptions, which then last as long as their connection: give +sunsubscribe",
    ),
    ("WAIT 0 1", "`--min-replicas`: give +wait"),
    (WAITAOF, FSYNC_RIGHT),
    ("SCAN 0 COUNT 1", "`rwlease list`: give +scan"),
    (
        SET_RECORD,
        "the record of a client, so its locks show an id in place of its name: give +set and the keys PREFIXclient:*",
    ),
    (
        GET_RECORD,
        "reading the records of clients, so holders show an id in place of a name: give +get and the keys PREFIXclient:*",
    ),
    (
        "CLUSTER MYID",
        "recognizing another server at its address, and a check that all nodes are in one cluster: give +cluster|myid",
    ),
    (
        "CLUSTER INFO",
        "telling a newer slot map from an older one, and a check of the cluster's state: give +cluster|info",
    ),
    (
        CONFIG_GET,
        "checks of how long a failover takes, of slots that are served without the others, and of how expired keys are deleted: give +config|get to the user of the doctor",
    ),
];

/// Writes the record of a client. The server checks the right before the options, of which only one
/// is allowed.
const SET_RECORD: &str = "SET KEY x NX XX";
const GET_RECORD: &str = "GET KEY";

/// Asks for nothing, so that it returns at once. Redis has it from 7.2 on.
const WAITAOF: &str = "WAITAOF 0 0 1";
const FSYNC_RIGHT: &str = "`--fsync`: give +waitaof";

/// Reads settings.
pub const CONFIG_GET: &str = "CONFIG GET";

pub fn all(facts: &NodeFacts) -> Vec<Finding> {
    let mut findings = refused(facts);
    findings.extend(required_finding(facts));
    findings.extend(absent(facts));
    findings
}

/// Whether the server lets the user read its slot map.
pub fn shows_map(facts: &NodeFacts) -> bool {
    !facts.missing_rights.iter().any(|right| right == SLOTS)
}

fn required_finding(facts: &NodeFacts) -> Option<Finding> {
    let rights = match facts.missing_rights.len() {
        0 => return None,
        1 => "a right",
        _ => "rights",
    };
    let give = facts.missing_rights.join(" ");
    Some(Finding::error(format!("the user lacks {rights} that every lock needs; give {give}")))
}

fn refused(facts: &NodeFacts) -> Vec<Finding> {
    let missing =
        OPTIONAL_COMMANDS.iter().filter(|(command, _)| facts.denied_commands.contains(command));
    let found = missing.map(|(_, what_for)| {
        Finding::new(level_of(what_for), format!("the user lacks a right for {what_for}"))
    });
    found.collect()
}

fn absent(facts: &NodeFacts) -> Vec<Finding> {
    let missing = OPTIONAL_COMMANDS
        .iter()
        .filter(|(command, _)| facts.unsupported_commands.contains(command));
    let found = missing.map(|(command, what_for)| {
        let is_name = |word: &&str| word.bytes().all(|letter| letter.is_ascii_uppercase());
        let name: Vec<&str> = command.split(' ').take_while(is_name).collect();
        let needed_for = what_for.split(": give").next().unwrap_or(what_for);
        let says = format!("the server does not serve {}, needed for {needed_for}", name.join(" "));
        Finding::new(level_of(what_for), says)
    });
    found.collect()
}

/// The severity of a missing command. No fault is a command that only the doctor needs, or that few
/// servers have.
fn level_of(what_for: &str) -> Severity {
    match what_for {
        FSYNC_RIGHT => Severity::Info,
        _ if what_for.ends_with(DOCTOR_ONLY) => Severity::Info,
        _ => Severity::Warning,
    }
}

impl NodeFacts {
    pub async fn try_needed(
        &mut self,
        connection: &mut Connection,
        is_cluster: bool,
        prefix: &str,
    ) -> RedisResult<()> {
        let key = format!("{prefix}rwlease-doctor");
        let is_of_cluster = |right: &str| right == ASKING || right == SLOTS;
        for (right, words) in
            REQUIRED_RIGHTS.iter().filter(|(right, _)| is_cluster || !is_of_cluster(right))
        {
            let words = words.split(' ').map(|word| if word == KEY { &key } else { word });
            let Some(error) = refusal(connection, words).await? else { continue };
            let lacks = match error.to_string().contains("to access") {
                true => format!("~{prefix}*"),
                false => right.to_string(),
            };
            if !self.missing_rights.contains(&lacks) {
                self.missing_rights.push(lacks);
            }
        }
        Ok(())
    }

    pub async fn try_optional(
        &mut self,
        connection: &mut Connection,
        role: &Role,
        prefix: &str,
    ) -> RedisResult<()> {
        let record = format!("{prefix}client:rwlease-doctor");
        for name in [SET_RECORD, GET_RECORD] {
            let words = name.split(' ').map(|word| if word == KEY { &record } else { word });
            if refusal(connection, words).await?.is_some() {
                self.denied_commands.push(name);
            }
        }
        // By its own report: a master that was just demoted, or a replica that the wrong URL names,
        // has no such role in the map.
        let is_replica = self.info.get("role").is_some_and(|role| role == "slave");
        for words in ["SCAN 0 COUNT 1", "WAIT 0 1", WAITAOF] {
            match is_replica || *role == Role::Replica {
                // Which may have its own reasons to fail.
                true => self.try_right(connection, words, words).await?,
                false => drop(self.try_query::<Value>(connection, words).await?),
            }
        }
        self.try_channel(connection, role).await
    }

    /// Subscribes to a channel like those of waiters, publishes there, and leaves it.
    async fn try_channel(&mut self, connection: &mut Connection, role: &Role) -> RedisResult<()> {
        let slot = match role {
            Role::Master(ranges) => ranges.first().and_then(|&(first, _)| Slot::new(first)),
            _ => Slot::new(0),
        };
        let Some(slot) = slot else { return Ok(()) };
        let channel = format!("{{{}}}rwlease:doctor", slot.hash_tag());
        for (name, words) in [
            ("SSUBSCRIBE", format!("SSUBSCRIBE {channel}")),
            ("SPUBLISH", format!("SPUBLISH {channel} x")),
            ("SUNSUBSCRIBE", format!("SUNSUBSCRIBE {channel}")),
        ] {
            self.try_right(connection, name, &words).await?;
        }
        Ok(())
    }

    async fn try_right(
        &mut self,
        connection: &mut Connection,
        name: &'static str,
        words: &str,
    ) -> RedisResult<()> {
        if refusal(connection, words.split(' ')).await?.is_some() {
            self.denied_commands.push(name);
        }
        Ok(())
    }

    /// `None` if the user may not send that query, or the server does not serve it.
    pub async fn try_query<T: FromRedisValue>(
        &mut self,
        connection: &mut Connection,
        words: &'static str,
    ) -> RedisResult<Option<T>> {
        self.try_query_as(words, connection, words).await
    }

    /// The same for a query that [`OPTIONAL_COMMANDS`] has by this name.
    pub async fn try_query_as<T: FromRedisValue>(
        &mut self,
        name: &'static str,
        connection: &mut Connection,
        words: &str,
    ) -> RedisResult<Option<T>> {
        match query(connection, words).await {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if is_refused(&error) => {
                self.denied_commands.push(name);
                Ok(None)
            }
            // Unknown, hidden or switched off: managed servers use various texts.
            Err(error) if error.code() == Some("ERR") => {
                self.unsupported_commands.push(name);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// The answer that the user lacks a right. After any other answer, an error too, it has the right.
/// Fails if there is no answer.
pub async fn refusal<'a>(
    connection: &mut Connection,
    words: impl IntoIterator<Item = &'a str>,
) -> RedisResult<Option<RedisError>> {
    match query_value::<Value>(connection, words).await {
        Err(error) if error.code().is_none() => Err(error),
        answer => Ok(answer.err().filter(is_refused)),
    }
}
