//! Plants faults in the scripts and in the clients: for each rule about clients, and for each kind
//! of rule about a call. `testing/oracle/src/step/cases.txt` has calls that break each rule of a
//! call, and `make check-mutants` plants the other faults of the scripts.

use std::collections::BTreeSet;

use rwlease_model::client::ClientFault;
use rwlease_model::faults::{ScriptMutant, root};
use rwlease_model::program::ModelPlan;
use rwlease_model::scripts_under_test::ScriptVariant;
use rwlease_model::search::{CAN_FINISH, Violation, search};
use rwlease_model::state_invariants::{self, RECALLS};
use rwlease_model::world::{GUARDS, LockModel};

/// A fault in the scripts, by the text that it changes.
struct SeededFault {
    rule: &'static str,
    world: &'static str,
    file: &'static str,
    old: &'static str,
    new: &'static str,
}

const PLANTED: &[SeededFault] = &[
    SeededFault {
        rule: "the array of readers is dense",
        world: "RU",
        file: "lib/readers.lua",
        old: "  put('i:' .. last_index, false)\n",
        new: "",
    },
    SeededFault {
        rule: "a key outlives what it says",
        world: "W",
        file: "lib/fast/renew.lua",
        old: "  if needs_new_expiry and type(reply) == 'number' then\n    reply = redis.pcall('PEXPIREAT', KEYS[1], expiry_text)",
        new: "  if false then\n    reply = redis.pcall('PEXPIREAT', KEYS[1], expiry_text)",
    },
    SeededFault {
        rule: "tokens rise",
        world: "W,R",
        file: "lib/grant_budget.lua",
        old: "math.max(number('fence') + 1, now_us)",
        new: "number('fence')",
    },
    SeededFault {
        rule: "the last token is never forgotten",
        world: "W",
        file: "release.lua",
        old: "local free_line = '2F' .. sub(line, 3, 31)",
        new: "local free_line = '2F' .. sub(line, 3, 15) .. '0000000000000001'",
    },
    SeededFault {
        rule: "what is revoked is not made longer",
        world: "W,R; 1 revoke, slowness 1",
        file: "revoke.lua",
        old: "    put('revoked_up_to', token_limit)\n",
        new: "",
    },
    SeededFault {
        rule: "the dead are not granted",
        world: "W,R; slowness 1",
        file: "lib/wait_queue.lua",
        old: "if waiter.last_seen + waiter.ttl <= now_ms then",
        new: "if false then",
    },
    SeededFault {
        rule: "who is gone gets nothing",
        world: "W,R; 1 crash",
        file: "lib/notify.lua",
        old: "          revert_grant(granted)\n",
        new: "",
    },
    SeededFault {
        rule: "who comes too late gets nothing",
        world: "W,W; 1 abandoned call",
        file: "lib/acquire_slow.lua",
        old: "request.not_after > 0 and now_ms > request.not_after",
        new: "false",
    },
    SeededFault {
        rule: "a release ends all",
        world: "RU,R; 1 cancel",
        file: "release.lua",
        old: "    delete_waiter(waiter)\n",
        new: "",
    },
    SeededFault {
        rule: "a renewal leaves no more than is held",
        world: "PS,P1; 1 failover",
        file: "semaphore/renew.lua",
        old: "tonumber(record_permits) > kept_permits then",
        new: "false then",
    },
    SeededFault {
        rule: "a message says what is so",
        world: "W,R; 1 force_release",
        file: "force_release.lua",
        old: "  if ends_writer then\n    start_reader_phase()",
        new: "  if ends_writer then\n    do end",
    },
    SeededFault {
        rule: "no reader beside a writer",
        world: "W,R",
        file: "lib/fast/acquire_args.lua",
        old: "find(line, '^2F%d+$') and #line == 31 and",
        new: "find(line, '^2[FRS]%d+') and",
    },
    SeededFault {
        rule: "one writer",
        world: "W,W",
        file: "lib/fast/acquire_args.lua",
        old: "find(line, '^2F%d+$') and #line == 31 and",
        new: "find(line, '^2[FW]%d+') and",
    },
    SeededFault {
        rule: "nobody overtakes a writer",
        world: "W,R",
        file: "acquire_read.lua",
        old: "if line_shape and line_shape ~= 'W' then",
        new: "if line_shape then",
    },
    SeededFault {
        rule: "nothing is left behind",
        world: "W",
        file: "release.lua",
        old: "local free_line = '2F' .. sub(line, 3, 31)",
        new: "local free_line = line",
    },
    SeededFault {
        rule: "the first in line asks who is in its way",
        world: "CW,W",
        file: "lib/recall.lua",
        old: "  elseif state == 'c' and repeat_recall then",
        new: "  elseif false then",
    },
    SeededFault {
        rule: "permits are never more than the limit",
        world: "P2,P1",
        file: "lib/semaphore_state.lua",
        old: "  return number('used') + permits <= number('limit')",
        new: "  return number('used') + permits <= number('limit') + 1",
    },
    SeededFault {
        rule: "permits are granted as they were requested",
        world: "P2,P1",
        file: "lib/semaphore_state.lua",
        old: "add_reader(waiter.id, is_caller and 'h' or 'g', deadline, token, permits)",
        new: "add_reader(waiter.id, is_caller and 'h' or 'g', deadline, token, 1)",
    },
    SeededFault {
        rule: "who believes has a lease",
        world: "PS",
        file: "semaphore/release_permits.lua",
        old: "set_permits(ARGV[2], state, deadline, token, index, permits, kept_permits)",
        new: "set_permits(ARGV[2], state, deadline, token, index, permits, 0)",
    },
    SeededFault {
        rule: "whatever frees a lock grants it",
        world: "PS,P1",
        file: "semaphore/release_permits.lua",
        old: "  finish(true)\n",
        new: "  flush(true)\n",
    },
    SeededFault {
        rule: CAN_FINISH,
        world: "W,R",
        file: "lib/grant_waiters.lua",
        old: "local function grant_next()\n  if current_writer() then",
        new: "local function grant_next()\n  if true then",
    },
];

fn find(plan: ModelPlan, changed: ScriptVariant<'_>) -> Option<Violation> {
    search(&mut LockModel::new(plan, changed)).violation
}

impl SeededFault {
    /// Checks that its rule alone finds it. The worlds show that the rule finds nothing in the
    /// scripts as they ship.
    fn is_found(&self) {
        let rule = self.rule;
        let fault = ScriptMutant { file: self.file, old: self.old, new: self.new };
        let changed =
            ScriptVariant { fault: Some(&fault), only: Some(rule), ..ScriptVariant::default() };
        let violation = find(ModelPlan::named(self.world), changed);
        let violation = violation.unwrap_or_else(|| panic!("{rule} misses {}", self.old));
        println!("{rule}: in {} steps", violation.steps);
        assert!(violation.what.starts_with(rule), "{}", violation.what);
    }
}

#[test]
#[ignore = "a part of `make check`"]
fn each_rule_finds_a_fault_in_the_scripts() {
    PLANTED.iter().for_each(SeededFault::is_found);
}

#[test]
fn each_fault_has_its_place() {
    for SeededFault { rule, file, old, .. } in PLANTED {
        let text = std::fs::read_to_string(root().join("lua").join(file)).unwrap();
        assert_eq!(text.matches(old).count(), 1, "{rule}: {file}: {old}");
    }
}

#[test]
fn each_rule_about_clients_has_a_planted_fault() {
    let planted: BTreeSet<&str> = PLANTED.iter().map(|planted| planted.rule).collect();
    let clients = CLIENT_FAULTS.map(|(rule, ..)| rule).into();
    let states: BTreeSet<&str> = state_invariants::names().chain([CAN_FINISH, GUARDS]).collect();
    let without = &states - &(&planted | &clients);
    assert!(without.is_empty(), "{without:?}");
    let unknown = &(&planted - &states) - &oracle::step::rules().collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// Faults of clients, each with a world and the rule that finds it there.
const CLIENT_FAULTS: [(&str, ClientFault, &str); 10] = [
    (
        "who believes has a lease",
        ClientFault::CountsLeaseFromReply,
        "W,R; slowness 1, calls of a unit",
    ),
    ("nothing is left behind", ClientFault::NeverReleases, "W,R; calls of a unit"),
    (RECALLS, ClientFault::IgnoresRecall, "CR,W; calls of a unit"),
    (RECALLS, ClientFault::ForgetsEarlyRecalls, "CR,W; calls of a unit"),
    (GUARDS, ClientFault::ReusesTokens, "CW,W; calls of a unit"),
    ("who believes has a lease", ClientFault::IgnoresMargin, "W,W; late clocks, lease 3, margin 1"),
    (
        "who believes has a lease",
        ClientFault::IgnoresMargin,
        "CR,W; late clocks, lease and ttl 3, margin 1",
    ),
    (
        "who believes has a lease",
        ClientFault::IgnoresMargin,
        "P1,P2; late clocks, lease 3, margin 1",
    ),
    (
        "who believes has a lease",
        ClientFault::IgnoresMarginOfPushes,
        "W,R; late clocks, slowness 2, lease 3, window 2, margin 1",
    ),
    // Its death is no way out.
    (CAN_FINISH, ClientFault::NeverPolls, "W,R; 1 crash, calls of a unit"),
];

/// All rules are judged, and this one must find the fault.
#[test]
fn each_fault_of_a_client_is_found() {
    for (rule, fault, world) in CLIENT_FAULTS {
        let changed = ScriptVariant { client: Some(fault), ..ScriptVariant::default() };
        let violation = find(ModelPlan::named(world), changed).unwrap();
        println!("{rule}: in {} steps\n{}", violation.steps, violation.history);
        assert!(violation.what.starts_with(rule), "{fault:?}: {}", violation.what);
    }
}

/// A client keeps its number although the search reorders equal clients.
#[test]
fn history_names_the_same_client_by_the_same_number() {
    let fault = Some(ClientFault::CountsLeaseFromReply);
    let changed = ScriptVariant { client: fault, ..ScriptVariant::default() };
    let plan = ModelPlan::named("W,W; slowness 1, calls of a unit");
    let history = find(plan, changed).unwrap().history;
    let (_, begun) = history.split_once("Start(").unwrap();
    let id = begun[..1].repeat(oracle::CLIENT_ID_LEN);
    let ran = history.lines().find(|line| line.contains("acquire_write ")).unwrap();
    assert!(ran.contains(&id), "{history}");
}
