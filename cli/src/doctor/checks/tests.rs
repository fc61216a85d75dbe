use super::super::clock_offset::ClockOffset;
use super::super::probe::{Address, SlotRange};
use super::*;

fn master(port: u16, facts: NodeFacts) -> Node {
    let host = "127.0.0.1".to_owned();
    let (address, facts) = (Address { host, port }, Ok(facts));
    let role = Role::Master(vec![(0, 16_383)]);
    Node { address, role, facts }
}

fn master_with_map(port: u16, map: Vec<SlotRange>) -> Node {
    let facts = NodeFacts { map, ..NodeFacts::default() };
    master(port, facts)
}

fn cluster_of(nodes: Vec<Node>) -> Deployment {
    Deployment { is_cluster: true, nodes, named: Vec::new(), sentinels: None }
}

#[test]
fn failover_longer_than_a_lease_survives_is_noted_or_warned_of() {
    let level =
        |millis| survives_outage(Duration::from_millis(millis), "it").map(|found| found.severity);
    assert_eq!(level(11_500), None);
    assert_eq!([11_501, 19_500].map(level), [Some(Severity::Info); 2]);
    assert_eq!(level(19_501), Some(Severity::Warning));
    let finding = survives_outage(Duration::from_secs(20), "it").unwrap();
    assert!(
        finding.message.contains("up to 20s") && finding.message.contains("survives 19s 500ms")
    );
}

fn with_info(fields: &[(&str, &str)]) -> NodeFacts {
    let fields = fields.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    NodeFacts { info: fields.collect(), ..NodeFacts::default() }
}

#[test]
fn clocks_that_differ_by_more_than_the_margin_are_wrong() {
    let node = |port, ahead| {
        let clock = Some(ClockOffset::new(ahead, 0, 1_000));
        master(port, NodeFacts { clock, ..NodeFacts::default() })
    };
    let level = |ahead: [i64; 2]| {
        let deployment = cluster_of(vec![node(1, ahead[0]), node(2, ahead[1])]);
        clocks(&deployment).unwrap().severity
    };
    assert_eq!(level([0, 100]), Severity::Ok);
    assert_eq!(level([300_000, 0]), Severity::Warning);
    assert_eq!(level([0, 502_000]), Severity::Error);
}

#[test]
fn slots_without_a_master_are_named() {
    assert_eq!(unserved_slots(vec![(8_192, 16_383), (0, 8_191)]), []);
    assert_eq!(
        unserved_slots(vec![(10, 20), (1, 5), (22, 16_000)]),
        [(0, 0), (6, 9), (21, 21), (16_001, 16_383)]
    );
    assert_eq!(unserved_slots(Vec::new()), [(0, 16_383)]);
}

#[test]
fn nodes_that_name_other_masters_do_not_agree() {
    let says = |port, master: &str, replica| {
        let address = |port| Address { host: "127.0.0.1".to_owned(), port };
        let range = SlotRange {
            first: 0,
            last: 16_383,
            master: master.to_owned(),
            nodes: vec![address(1), address(replica)],
        };
        master_with_map(port, vec![range])
    };
    let agree = |nodes| agreement(&cluster_of(nodes)).is_none();
    assert!(agree(vec![says(1, "a", 3), says(2, "a", 4)]), "replicas may differ");
    assert!(!agree(vec![says(1, "a", 3), says(2, "b", 3)]));
    assert!(!agree(vec![says(1, "a", 3), master_with_map(2, Vec::new())]));
    let away = Node { facts: Err("away".to_owned()), ..says(2, "b", 3) };
    assert!(agree(vec![says(1, "a", 3), away]), "one that cannot be queried says nothing");
}

#[test]
fn scripts_must_run_and_see_the_time() {
    let level =
        |lua| lua_check(&NodeFacts { lua, ..NodeFacts::default() }).map(|found| found.severity);
    assert_eq!([LuaSupport::Unknown, LuaSupport::Fine].map(level), [None, None]);
    assert_eq!([LuaSupport::Missing, LuaSupport::NoTime].map(level), [Some(Severity::Error); 2]);
}

#[test]
fn server_version_too_old_is_wrong_or_a_warning() {
    let level = |field, version| self::version(&with_info(&[(field, version)])).unwrap().severity;
    assert_eq!(level("redis_version", "6.0.16"), Severity::Error);
    assert_eq!(level("redis_version", "6.2.14"), Severity::Warning);
    assert_eq!(level("redis_version", "7.0.15"), Severity::Ok);
    let valkey = version(&with_info(&[("redis_version", "7.2.4"), ("valkey_version", "9.1.2")]));
    assert_eq!(valkey.unwrap().message, "Valkey 9.1.2");
}

#[test]
fn memory_policy_that_evicts_is_wrong_with_a_limit() {
    let level = |policy, most, used| {
        let facts =
            with_info(&[("maxmemory_policy", policy), ("maxmemory", most), ("used_memory", used)]);
        memory(&facts).unwrap().severity
    };
    assert_eq!(level("allkeys-lru", "100", "1"), Severity::Error);
    assert_eq!(level("volatile-ttl", "0", "1"), Severity::Warning);
    assert_eq!(level("noeviction", "100", "95"), Severity::Warning);
    assert_eq!(level("noeviction", "100", "50"), Severity::Ok);
}

#[test]
fn master_that_needs_its_only_replica_to_write_is_a_warning() {
    let level = |fields: &[(&str, &str)]| Some(lone_replica(&with_info(fields))?.severity);
    let (one, two) = (("connected_slaves", "1"), ("connected_slaves", "2"));
    let set = ("min_slaves_good_slaves", "1");
    assert_eq!(level(&[one, set]), Some(Severity::Warning));
    assert_eq!(level(&[one]), Some(Severity::Info), "leases can want it, too");
    assert_eq!(level(&[two, set]), None);
}

#[test]
fn expired_keys_deleted_at_once_are_noted() {
    let is_noted =
        |frees_lazily| expiry(&NodeFacts { frees_lazily, ..NodeFacts::default() }).is_some();
    assert!(is_noted(Some(false)));
    assert!(!is_noted(Some(true)) && !is_noted(None));
}

#[test]
fn master_without_replicas_in_step_is_a_warning() {
    let level = |fields: &[(&str, &str)]| replicas(&with_info(fields), true, 0).unwrap().severity;
    let (online, late) = ("state=online,lag=0", "state=online,lag=60");
    assert_eq!(level(&[("connected_slaves", "0")]), Severity::Warning);
    assert_eq!(level(&[("connected_slaves", "1"), ("slave0", online)]), Severity::Ok);
    assert_eq!(
        level(&[("connected_slaves", "2"), ("slave0", online), ("slave1", late)]),
        Severity::Warning
    );
    assert_eq!(
        level(&[("connected_slaves", "1"), ("slave0", "state=wait_bgsave")]),
        Severity::Warning
    );
}
