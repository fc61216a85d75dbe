//! Derives findings from the servers' answers.

use std::time::Duration;

use super::clock_offset::distance;
use super::finding::{Finding, Severity};
use super::probe::{Deployment, LuaSupport, Mode, Node, NodeFacts, Role};
use super::rights;
use crate::format;

const SLOTS: u16 = 16_384;

/// The default lease and the default margin of a client.
const LEASE: Duration = Duration::from_secs(30);
const MARGIN: Duration = Duration::from_millis(500);

/// The outage that a held lease of the default length survives. It is renewed every third of its
/// length, and its holder stops a margin before its end.
const OUTAGE: Duration =
    Duration::from_millis((LEASE.as_millis() * 2 / 3 - MARGIN.as_millis()) as u64);

/// The same for the command of `rwlease run`, which is told to end earlier: by the default grace, a
/// quarter of the lease, and another margin.
const RUN_OUTAGE: Duration =
    Duration::from_millis((OUTAGE.as_millis() - LEASE.as_millis() / 4 - MARGIN.as_millis()) as u64);

/// How many times the node timeout a failover takes, as measured; somewhat more in the worst case.
const FAILOVER_NODE_TIMEOUTS: f64 = 2.5;

/// With fewer, the others are no majority when one dies, and no replica is elected.
const MIN_MASTERS: usize = 3;

/// The share of its memory that a server may use without a warning.
const MEMORY_WARNING_RATIO: f64 = 0.9;

/// The longest acceptable silence of a replica, in seconds.
const MAX_REPLICA_SILENCE: u64 = 10;

pub fn all(deployment: &Deployment) -> Vec<Finding> {
    let mut findings: Vec<Finding> = deployment_shape(deployment).into_iter().collect();
    findings.extend(election(deployment));
    findings.extend(coverage(deployment));
    findings.extend(agreement(deployment));
    findings.extend(clocks(deployment));
    for node in &deployment.nodes {
        let found = match &node.facts {
            Ok(facts) => at_node(deployment, node, facts),
            Err(why) => vec![unreachable(node, why)],
        };
        findings.extend(found.into_iter().map(|finding| finding.at(node.address.to_string())));
    }
    findings
}

fn at_node(deployment: &Deployment, node: &Node, facts: &NodeFacts) -> Vec<Finding> {
    let mut findings = rights::all(facts);
    findings.extend(lua_check(facts));
    findings.extend(version(facts));
    findings.extend(memory(facts));
    findings.extend(state(facts));
    findings.extend(expiry(facts));
    findings.extend(failover(facts));
    findings.extend(full_coverage(facts));
    match node.role {
        Role::Replica => findings.extend(replication_link(facts)),
        Role::Single | Role::Master(_) => {
            findings.extend(hidden_cluster(deployment, facts));
            let takes_over = deployment.is_cluster || deployment.sentinels.is_some();
            findings.extend(replicas(facts, takes_over, barred_replicas(deployment, facts)));
            findings.extend(lone_replica(facts));
            findings.extend(restart(facts));
        }
    }
    findings
}

/// Describes the deployment. `None` if the finding of `hidden_cluster` describes it.
fn deployment_shape(deployment: &Deployment) -> Option<Finding> {
    if deployment.sentinels.is_some() {
        return Some(Finding::info(
            "a single server that sentinels watch: a failover can lose the last locks, unless replicas have confirmed them",
        ));
    }
    if !deployment.is_cluster {
        let mut facts = deployment.nodes.iter().filter_map(|node| node.facts.as_ref().ok());
        let is_hidden = facts.any(|facts| hidden_cluster(deployment, facts).is_some());
        return (!is_hidden).then(|| {
            Finding::info("a single server, no cluster: while it is down there are no locks")
        });
    }
    let replicas = deployment.nodes.iter().filter(|node| node.role == Role::Replica).count();
    let masters = deployment.nodes.len() - replicas;
    let masters = format::with_noun(masters as u64, "master", "masters");
    let replicas = format::with_noun(replicas as u64, "replica", "replicas");
    Some(Finding::ok(format!("a cluster of {masters} and {replicas}")))
}

/// Whether the masters that are left can elect a replica of one that dies.
fn election(deployment: &Deployment) -> Option<Finding> {
    let is_master = |node: &&Node| matches!(node.role, Role::Master(_));
    let masters = deployment.nodes.iter().filter(is_master).count();
    let others = match masters {
        1 => "no master is left to elect",
        _ => "the other one is no majority that could elect",
    };
    (deployment.is_cluster && (1..MIN_MASTERS).contains(&masters)).then(|| {
        Finding::warning(format!(
            "fewer than {MIN_MASTERS} masters: when one dies, {others} its replica, and its locks wait until it is back; \
             run at least {MIN_MASTERS}, unless the service itself promotes replicas"
        ))
    })
}

/// A node of a cluster that does not serve `CLUSTER`, and so looks like a single server.
fn hidden_cluster(deployment: &Deployment, facts: &NodeFacts) -> Option<Finding> {
    let is_hidden = !deployment.is_cluster && Mode::of(&facts.info) == Mode::Cluster;
    is_hidden.then(|| {
        Finding::error(
            "is a node of a cluster that does not serve CLUSTER, so clients take it for a single server; serve CLUSTER there",
        )
    })
}

fn coverage(deployment: &Deployment) -> Option<Finding> {
    let ranges = deployment.nodes.iter().filter_map(|node| match &node.role {
        Role::Master(ranges) => Some(ranges),
        _ => None,
    });
    let gaps = unserved_slots(ranges.flatten().copied().collect());
    let (slots, them) = match &gaps[..] {
        [] => return None,
        [(first, last)] if first == last => ("slot", "it"),
        _ => ("slots", "them"),
    };
    let named = gaps.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    let named = named.collect::<Vec<_>>().join(", ");
    deployment.is_cluster.then(|| {
        Finding::error(
            format!("nobody serves {slots} {named}: locks in {them} cannot be taken; assign {them} to a master"),
        )
    })
}

/// The ranges of slots between the served ones.
fn unserved_slots(mut served: Vec<(u16, u16)>) -> Vec<(u16, u16)> {
    served.sort_unstable();
    served.push((SLOTS, SLOTS));
    let mut next = 0;
    let mut gaps = Vec::new();
    for (first, last) in served {
        if first > next {
            gaps.push((next, first - 1));
        }
        next = next.max(last.saturating_add(1));
    }
    gaps
}

fn agreement(deployment: &Deployment) -> Option<Finding> {
    let facts = deployment.nodes.iter().filter_map(|node| node.facts.as_ref().ok());
    let mut maps = facts.filter(|facts| rights::shows_map(facts)).map(|facts| &facts.map);
    let first = maps.next()?;
    let agree = maps.all(|map| masters_of(map) == masters_of(first));
    (!agree).then(|| {
        Finding::warning(
            "the nodes do not agree on who serves which slot; try again in a few seconds",
        )
    })
}

/// The part of a slot map in which all nodes must agree. The order of replicas is ignored.
fn masters_of(map: &[super::probe::SlotRange]) -> Vec<(u16, u16, &str)> {
    map.iter().map(|range| (range.first, range.last, &*range.master)).collect()
}

fn clocks(deployment: &Deployment) -> Option<Finding> {
    let known: Vec<_> = deployment
        .nodes
        .iter()
        .filter_map(|node| Some((node, node.facts.as_ref().ok()?.clock?)))
        .collect();
    let pairs = known
        .iter()
        .enumerate()
        .flat_map(|(at, one)| known[..at].iter().map(move |other| (one, other)));
    let ((one, _), (other, _), (least, most)) = pairs
        .map(|(one, other)| (one, other, distance(one.1, other.1)))
        .max_by_key(|(.., apart)| *apart)?;
    let (level, much) = match least {
        least if least > MARGIN => (Severity::Error, "more than"),
        least if least > MARGIN / 4 => (Severity::Warning, "much of"),
        _ => {
            return Some(Finding::ok(format!(
                "the nodes' clocks are at most {} apart",
                format::duration(most)
            )));
        }
    };
    let (one, other, least) = (&one.address, &other.address, format::duration(least));
    let advice = "synchronize the clocks by NTP, or use a larger safety margin";
    Some(Finding::new(
        level,
        format!(
            "the clocks of {one} and {other} are {least} apart, {much} the margin of a lease; {advice}"
        ),
    ))
}

fn unreachable(node: &Node, why: &str) -> Finding {
    let (level, what) = match node.role {
        Role::Replica => (Severity::Warning, "this replica cannot be queried"),
        _ => (Severity::Error, "cannot be queried"),
    };
    Finding::new(level, format!("{what}: {why}; check that it runs and accepts this user"))
}

fn lua_check(facts: &NodeFacts) -> Option<Finding> {
    let says = match facts.lua {
        LuaSupport::Unknown | LuaSupport::Fine => return None,
        LuaSupport::Missing => {
            "has no Lua, which every lock needs; with Valkey from 9.1 on it is a module: install and load it"
        }
        LuaSupport::NoTime => {
            "scripts cannot read the time, which every lease needs: this server is not supported"
        }
    };
    Some(Finding::error(says))
}

fn version(facts: &NodeFacts) -> Option<Finding> {
    let (name, version) = match (facts.info.get("valkey_version"), facts.info.get("redis_version"))
    {
        (Some(version), _) => ("Valkey", version),
        (None, Some(version)) => ("Redis", version),
        (None, None) => return None,
    };
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    Some(match (major, minor) {
        (0..=5, _) | (6, 0..=1) => {
            Finding::error(format!("{name} {version} is too old; it must be 6.2 or later"))
        }
        (6, _) => Finding::warning(format!(
            "{name} {version} has no sharded pub/sub: waiters poll, and cached locks are plain; 7.0 or later pushes"
        )),
        _ => Finding::ok(format!("{name} {version}")),
    })
}

fn memory(facts: &NodeFacts) -> Option<Finding> {
    let policy = facts.info.get("maxmemory_policy")?;
    let number = |field: &str| facts.info.get(field).and_then(|bytes| bytes.parse::<f64>().ok());
    let (most, used) = (number("maxmemory")?, number("used_memory")?);
    let advice = "set maxmemory-policy noeviction";
    Some(match policy.as_str() {
        "noeviction" if most > 0.0 && used > most * MEMORY_WARNING_RATIO => {
            let part = used / most * 100.0;
            Finding::warning(format!(
                "{part:.0} % of the memory is used, and no lock can be taken when it is full; give it more"
            ))
        }
        "noeviction" => Finding::ok("noeviction"),
        policy if most > 0.0 => {
            Finding::error(format!("the memory policy {policy} evicts locks; {advice}"))
        }
        policy => Finding::warning(format!(
            "the memory policy {policy} would evict locks if maxmemory were set; {advice}"
        )),
    })
}

fn state(facts: &NodeFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(state) = facts.cluster_info.get("cluster_state").filter(|state| *state != "ok") {
        findings.push(Finding::error(format!(
            "reports the cluster in state `{state}`; see CLUSTER INFO there"
        )));
    }
    if let Some(moving) = facts.moving.filter(|&moving| moving > 0) {
        let slots = format::with_noun(moving as u64, "slot is", "slots are");
        findings.push(Finding::info(format!(
            "{slots} moving; locks move along, but an abandoned move should be finished"
        )));
    }
    findings
}

/// Locks are keys that expire when they are abandoned.
fn expiry(facts: &NodeFacts) -> Option<Finding> {
    (facts.frees_lazily == Some(false)).then(|| {
        Finding::info(
            "lazyfree-lazy-expire is no: the server stands still while it deletes an expired lock with very many holders; \
             set it to yes if there are such locks",
        )
    })
}

fn failover(facts: &NodeFacts) -> Option<Finding> {
    let takes = facts.node_timeout?.mul_f64(FAILOVER_NODE_TIMEOUTS);
    survives_outage(takes, "cluster-node-timeout")
}

/// Whether held leases, and commands of `rwlease run`, survive a failover that takes so long.
pub fn survives_outage(takes: Duration, setting: &str) -> Option<Finding> {
    let (level, who, outage, advice) = match takes {
        takes if takes > OUTAGE => (Severity::Warning, "a held lease", OUTAGE, "use longer leases"),
        takes if takes > RUN_OUTAGE => (
            Severity::Info,
            "a command of `rwlease run` with a lease",
            RUN_OUTAGE,
            "use a longer --lease",
        ),
        _ => return None,
    };
    let (takes, lease, outage) =
        (format::duration(takes), format::duration(LEASE), format::duration(outage));
    Some(Finding::new(
        level,
        format!(
            "a failover takes up to {takes}, and {who} of {lease}, the default, survives {outage}; lower {setting} or {advice}"
        ),
    ))
}

fn full_coverage(facts: &NodeFacts) -> Option<Finding> {
    (facts.requires_coverage == Some(true)).then(|| {
        Finding::info(
            "cluster-require-full-coverage is yes: while one slot has no master, no lock of any slot is granted; \
             set it to no if the other locks shall go on",
        )
    })
}

/// The number of replicas that never take over from the master. Sentinels go by the priority that
/// the replicas report.
fn barred_replicas(deployment: &Deployment, master: &NodeFacts) -> usize {
    if deployment.sentinels.is_none() {
        return master.barred_replicas;
    }
    let replicas = deployment.nodes.iter().filter(|node| node.role == Role::Replica);
    let priorities = replicas
        .filter_map(|node| node.facts.as_ref().ok()?.info.get("slave_priority"))
        .filter(|priority| *priority == "0");
    priorities.count()
}

/// `takes_over`: whether a replica would. `barred`: the number of replicas that never do.
fn replicas(facts: &NodeFacts, takes_over: bool, barred: usize) -> Option<Finding> {
    let connected: usize = facts.info.get("connected_slaves")?.parse().ok()?;
    let states = (0..connected).filter_map(|number| facts.info.get(&format!("slave{number}")));
    let is_well = |state: &&String| {
        let lag = state.split(',').find_map(|part| part.strip_prefix("lag=")?.parse::<u64>().ok());
        state.contains("state=online") && lag.is_none_or(|lag| lag <= MAX_REPLICA_SILENCE)
    };
    let well = states.filter(is_well).count();
    Some(match (connected, well) {
        (0, _) if !takes_over => return None,
        (0, _) => Finding::warning(
            "has no replica: when it dies, its locks are lost and no server takes over; give it one",
        ),
        (_, well) if well < connected => Finding::warning(format!(
            "{} of {connected} replicas are not in step; see INFO replication there",
            connected - well
        )),
        (_, well) if takes_over && barred >= well => Finding::warning(
            "has only replicas that never take over (cluster-replica-no-failover, or a replica-priority of 0 with sentinels): \
             when it dies, its locks wait until it is back; let a replica take over",
        ),
        _ => {
            let replicas = format::with_noun(well as u64, "replica", "replicas");
            match barred {
                0 => Finding::ok(format!("{replicas} in step")),
                _ => Finding::ok(format!("{replicas} in step, of which {barred} never take over")),
            }
        }
    })
}

/// Redis reports the number of good replicas only if `min-replicas-to-write` requires some.
pub fn requires_good_replicas(facts: &NodeFacts) -> bool {
    facts.info.contains_key("min_slaves_good_slaves")
}

fn lone_replica(facts: &NodeFacts) -> Option<Finding> {
    if facts.info.get("connected_slaves")? != "1" {
        return None;
    }
    Some(match requires_good_replicas(facts) {
        true => Finding::warning(
            "min-replicas-to-write is set, with one connected replica: when that dies or takes over, no lock is granted; bring back or add a second replica",
        ),
        false => Finding::info(
            "has one replica: when that dies or takes over, every lease that a replica must confirm ends, and none is granted until \
             a second server is back; add a second replica before you use --min-replicas",
        ),
    })
}

fn restart(facts: &NodeFacts) -> Option<Finding> {
    let appends = facts.info.get("aof_enabled")? == "1";
    (!appends).then(|| {
        let advice = "set appendonly yes, or prevent an immediate restart";
        Finding::warning(
            format!("keeps no log: if it is restarted before a replica takes over, all its locks since the last snapshot are lost, also those that replicas have confirmed, and `--fsync master` is refused; {advice}"),
        )
    })
}

fn replication_link(facts: &NodeFacts) -> Option<Finding> {
    let link = facts.info.get("master_link_status")?;
    (link != "up")
        .then(|| Finding::warning("is not connected to its master; see INFO replication there"))
}

#[cfg(test)]
mod tests;
