//! The sentinels of the server: the master that they report, and whether they could fail over.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use redis::RedisResult;
use redis::aio::MultiplexedConnection as Connection;

use super::access_error::access_error;
use super::checks::{requires_good_replicas, survives_outage};
use super::finding::Finding;
use super::probe::{Address, Deployment, Prober, is_refused, query};
use super::rights::refusal;
use crate::args::ServerArgs;
use crate::exit::{CliError, USAGE};
use crate::format;

/// With fewer, the death of one can leave too few to replace the master.
const MIN_SENTINELS: usize = 3;

/// What an election and its news take in addition to the silence, as measured; somewhat more in the
/// worst case.
const ELECTION_TIME: Duration = Duration::from_secs(3);

/// Stands for the name of the master.
const NAME: &str = "NAME";

/// Optional rights: the right, a command that tries it, and what it is for.
const OPTIONAL: [(&str, &str, &str); 4] = [
    (
        "+sentinel|master",
        "SENTINEL MASTER NAME",
        "telling the last failover from those before, and checks of the sentinels and their settings",
    ),
    (
        "+sentinel|sentinels",
        "SENTINEL SENTINELS NAME",
        "finding sentinels that no URL names, and counting those that live",
    ),
    ("+sentinel|myid", "SENTINEL MYID", "counting a sentinel with two addresses once"),
    ("+subscribe and the channel", "SUBSCRIBE +switch-master", "hearing of a failover at once"),
];

pub struct SentinelFacts {
    /// The scheme, with the user and the password for the servers, as in the URL.
    start: String,
    /// The database, after a slash.
    end: String,
    master: Address,
    all: Vec<SentinelNode>,
}

struct SentinelNode {
    address: Address,
    /// What it reports about the master, or why it could not be queried.
    report: Result<BTreeMap<String, String>, String>,
    /// Whether it does not answer at all.
    is_away: bool,
    /// What it reports about the other sentinels. Empty if the user may not ask.
    others: Vec<BTreeMap<String, String>>,
    /// The optional rights that the user lacks at the sentinel.
    missing_rights: Vec<Finding>,
}

impl SentinelFacts {
    /// Queries all of them.
    pub async fn probe(servers: &ServerArgs, url: &str) -> Result<SentinelFacts, CliError> {
        let wrong = || {
            let message = "not the URL of sentinels; use redis+sentinel://HOST[:PORT]/MASTER";
            CliError::new(USAGE, message)
        };
        let (scheme, rest) = url.split_once("+sentinel://").ok_or_else(wrong)?;
        let (authority, path) = rest.split_once('/').ok_or_else(wrong)?;
        let (user, places) = match authority.rsplit_once('@') {
            Some((user, places)) => (format!("{user}@"), places),
            None => (String::new(), authority),
        };
        let (name, database) = match path.split_once('/') {
            Some((name, database)) => (name, format!("/{database}")),
            None => (path, String::new()),
        };
        let urls = places.split(',').map(|place| match place.rsplit_once(':') {
            Some((_, port)) if !port.contains(']') => format!("{scheme}://{place}"),
            _ => format!("{scheme}://{place}:26379"),
        });
        let (user_there, password) = servers.sentinel_credentials()?.unzip();
        let entrance =
            Prober::new(servers, urls.collect())?.with_credentials(user_there.flatten(), password);
        let entrance = &entrance;
        let all =
            entrance.seeds().iter().map(|address| SentinelNode::look(entrance, address, name));
        let all = join_all(all).await;
        let named = all.iter().filter_map(|sentinel| {
            let says = sentinel.report.as_ref().ok()?;
            Some((epoch(says), master(says)?))
        });
        let Some((_, master)) = named.max_by_key(|(epoch, _)| *epoch) else {
            let whys = all.iter().filter_map(|sentinel| {
                Some(format!("{}: {}", sentinel.address, sentinel.report.as_ref().err()?))
            });
            let whys = whys.collect::<Vec<_>>().join(", ");
            let own = format!("no sentinel names the master `{name}`: {whys}");
            return Err(access_error(servers, own).await);
        };
        Ok(SentinelFacts { start: format!("{scheme}://{user}"), end: database, master, all })
    }

    pub fn master_url(&self) -> String {
        format!("{}{}{}", self.start, self.master, self.end)
    }
}

impl SentinelNode {
    async fn look(entrance: &Prober, address: &Address, name: &str) -> SentinelNode {
        let (mut lacks, mut others) = (Vec::new(), Vec::new());
        let said = async {
            let connection = &mut entrance.open(address).await?;
            let says = query_master_fields(connection, name).await?;
            others =
                query(connection, &format!("SENTINEL SENTINELS {name}")).await.unwrap_or_default();
            lacks = lacking(connection, name).await?;
            Ok(says)
        };
        let said: RedisResult<_> = said.await;
        // After an error line of the server it answers, if not to this user.
        let is_away = said.as_ref().is_err_and(|error| error.code().is_none());
        let report = said.map_err(|error| error.to_string());
        SentinelNode { address: address.clone(), report, is_away, others, missing_rights: lacks }
    }
}

/// The fields that a sentinel reports about the master, with the address that it gives to clients.
async fn query_master_fields(
    connection: &mut Connection,
    name: &str,
) -> RedisResult<BTreeMap<String, String>> {
    let mut says: BTreeMap<String, String> =
        match query(connection, &format!("SENTINEL MASTER {name}")).await {
            Err(error) if is_refused(&error) => BTreeMap::new(),
            said => said?,
        };
    let named: Option<(String, String)> =
        query(connection, &format!("SENTINEL GET-MASTER-ADDR-BY-NAME {name}")).await?;
    if let Some((host, port)) = named {
        says.extend([("ip".to_owned(), host), ("port".to_owned(), port)]);
    }
    Ok(says)
}

async fn lacking(connection: &mut Connection, name: &str) -> RedisResult<Vec<Finding>> {
    let mut lacking = Vec::new();
    for (right, words, what_for) in OPTIONAL {
        let words = words.split(' ').map(|word| if word == NAME { name } else { word });
        if refusal(connection, words).await?.is_some() {
            let says = format!("the user lacks a right for {what_for}: give {right}");
            lacking.push(Finding::warning(says));
        }
    }
    Ok(lacking)
}

fn master(says: &BTreeMap<String, String>) -> Option<Address> {
    let port = says.get("port")?.parse().ok()?;
    Some(Address { host: says.get("ip")?.clone(), port })
}

fn epoch(says: &BTreeMap<String, String>) -> u64 {
    number(says, "config-epoch").unwrap_or(0)
}

fn number(says: &BTreeMap<String, String>, field: &str) -> Option<u64> {
    says.get(field).and_then(|digits| digits.parse().ok())
}

pub fn all(deployment: &Deployment) -> Vec<Finding> {
    let Some(sentinels) = &deployment.sentinels else {
        return Vec::new();
    };
    let all = sentinels.all.iter();
    let mut findings: Vec<Finding> =
        all.flat_map(|sentinel| at_sentinel(sentinel, &sentinels.master)).collect();
    findings.extend(number_of(sentinels));
    findings.extend(failover(sentinels));
    findings.extend(partitioned(deployment));
    findings
}

fn at_sentinel(sentinel: &SentinelNode, agreed: &Address) -> Vec<Finding> {
    let finding = match sentinel.report.as_ref().map(master) {
        Err(why) => Finding::warning(format!(
            "this sentinel cannot be queried: {why}; check that it runs and accepts this user"
        )),
        Ok(Some(master)) if master == *agreed => Finding::ok(format!("names the master {agreed}")),
        Ok(_) => Finding::warning(format!(
            "names another master than {agreed}, which a later failover promoted; try again in a few seconds"
        )),
    };
    let found = sentinel.missing_rights.iter().cloned().chain([finding]);
    found.map(|finding| finding.at(sentinel.address.to_string())).collect()
}

/// The sentinels of the master, as one of them sees them.
struct Electorate {
    known: usize,
    living: usize,
    /// How many a failover takes: the quorum, and a majority of those that are known.
    needed: usize,
}

impl Electorate {
    /// The view of the sentinel that could sooner begin a failover than the others.
    fn best(sentinels: &SentinelFacts) -> Option<Electorate> {
        let away: Vec<&Address> = sentinels
            .all
            .iter()
            .filter(|sentinel| sentinel.is_away)
            .map(|sentinel| &sentinel.address)
            .collect();
        let views =
            sentinels.all.iter().filter_map(|sentinel| Electorate::seen_by(sentinel, &away));
        views.max_by_key(|view| view.living as i64 - view.needed as i64)
    }

    fn seen_by(sentinel: &SentinelNode, away: &[&Address]) -> Option<Electorate> {
        let says = sentinel.report.as_ref().ok()?;
        let known = number(says, "num-other-sentinels")? as usize + 1;
        let is_dead = |other: &&BTreeMap<String, String>| {
            let flags = other.get("flags").map_or("", String::as_str);
            let is_away = master(other).is_some_and(|address| away.contains(&&address));
            is_away || flags.split(',').any(|flag| flag == "s_down" || flag == "o_down")
        };
        let dead = match &sentinel.others[..] {
            [] => away.len().min(known - 1),
            others => others.iter().filter(is_dead).count(),
        };
        let quorum = number(says, "quorum").unwrap_or(0) as usize;
        let needed = quorum.max(known / 2 + 1);
        Some(Electorate { known, living: known.saturating_sub(dead), needed })
    }
}

fn number_of(sentinels: &SentinelFacts) -> Option<Finding> {
    let Electorate { known, living, needed } = Electorate::best(sentinels)?;
    let counted = format::with_noun(known as u64, "sentinel watches", "sentinels watch");
    let advice = "run at least three, on separate machines";
    let says = match living {
        living if living < needed => format!(
            "{living} of {known} sentinels live, and a failover takes {needed}: no replica takes over; \
             start the others, or lower the quorum"
        ),
        _ if known < MIN_SENTINELS => format!(
            "{counted} the server: if one of them fails, a failover may be impossible; {advice}"
        ),
        living if living == needed => format!(
            "{living} of {known} sentinels live, and a failover takes {needed}: if one more fails, no replica takes over; \
             start the others, or lower the quorum"
        ),
        _ => return None,
    };
    Some(Finding::warning(says))
}

fn failover(sentinels: &SentinelFacts) -> Option<Finding> {
    let says = sentinels.all.iter().filter_map(|sentinel| sentinel.report.as_ref().ok());
    let silence = says.filter_map(|says| number(says, "down-after-milliseconds")).max()?;
    survives_outage(Duration::from_millis(silence) + ELECTION_TIME, "down-after-milliseconds")
}

fn partitioned(deployment: &Deployment) -> Option<Finding> {
    let facts = deployment.nodes.first()?.facts.as_ref().ok()?;
    let replicas: usize = facts.info.get("connected_slaves")?.parse().ok()?;
    (!requires_good_replicas(facts)).then(|| {
        // With one replica, both would end all locks when one of the two servers dies.
        let what = "set min-replicas-to-write 1, or use locks that a replica confirms";
        let advice = match replicas {
            0 | 1 => format!("have two replicas, then {what}"),
            _ => what.to_owned(),
        };
        Finding::warning(
            format!("a master that is cut off from its replicas still grants locks while another takes over; {advice}"),
        )
    })
}

#[cfg(test)]
mod tests;
