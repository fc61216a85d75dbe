//! Plants a fault for each rule: a rule that cannot fail proves nothing.

use std::collections::BTreeSet;

use crate::checker::client::ClientFault;
use crate::checker::faults::{ScriptMutant, root};
use crate::checker::model_cases::{CR, CW, NO_FAULTS, P1, P2, PS, R, RU, TP, TW, W, WD, WDU};
use crate::checker::program::{AcquireProgram, FaultBudget, ModelPlan};
use crate::checker::scripts_under_test::ScriptVariant;
use crate::checker::search::{CAN_FINISH, Violation, search};
use crate::checker::state_invariants::{self, RECALLS};
use crate::checker::step_invariants;
use crate::checker::time::UNIT;
use crate::checker::world::{GUARDS, LockModel};

/// A fault in the scripts, by the text that it changes.
struct SeededFault {
    rule: &'static str,
    programs: &'static [&'static [AcquireProgram]],
    budget: FaultBudget,
    file: &'static str,
    old: &'static str,
    new: &'static str,
}

const CRASH: FaultBudget = FaultBudget { crashes: 1, ..NO_FAULTS };
const CANCEL: FaultBudget = FaultBudget { cancelled: 1, ..NO_FAULTS };
const ABANDONED: FaultBudget = FaultBudget { abandoned: 1, ..NO_FAULTS };
const FAILOVER: FaultBudget = FaultBudget { failovers: 1, ..NO_FAULTS };
const SLOW: FaultBudget = FaultBudget { slow: 1, ..NO_FAULTS };
const FORCED: FaultBudget = FaultBudget { forced: 1, ..NO_FAULTS };
const REVOKED: FaultBudget = FaultBudget { revoked: 1, ..SLOW };

const fn planted(
    rule: &'static str,
    programs: &'static [&'static [AcquireProgram]],
    budget: FaultBudget,
    [file, old, new]: [&'static str; 3],
) -> SeededFault {
    SeededFault { rule, programs, budget, file, old, new }
}

/// One permit more than the limit.
const MORE_PERMITS: [&str; 3] = [
    "lib/semaphore_state.lua",
    "  return number('used') + permits <= number('limit')",
    "  return number('used') + permits <= number('limit') + 1",
];

const PLANTED: &[SeededFault] = &[
    planted(
        "the array of readers is dense",
        &[RU],
        NO_FAULTS,
        ["lib/readers.lua", "  put('i:' .. last_index, false)\n", ""],
    ),
    planted(
        "waiters are counted and linked",
        &[W, R],
        NO_FAULTS,
        [
            "lib/wait_queue.lua",
            "  delete_waiter(waiter)\n  count_waiter(waiter, -1)",
            "  delete_waiter(waiter)",
        ],
    ),
    planted(
        "fields go with what they tell of",
        &[RU],
        NO_FAULTS,
        [
            "lib/readers.lua",
            "delete_fields('readers', 'read_min', 'sweep', 'forced')",
            "delete_fields('readers', 'sweep', 'forced')",
        ],
    ),
    planted(
        "the line tells the life of the key",
        &[W],
        NO_FAULTS,
        [
            "lib/fast/renew.lua",
            "  if needs_new_expiry and type(reply) == 'number' then\n    reply = redis.pcall('PEXPIREAT', KEYS[1], expiry_text)",
            "  if false then\n    reply = redis.pcall('PEXPIREAT', KEYS[1], expiry_text)",
        ],
    ),
    planted(
        "the line tells which fields there are",
        &[W, R],
        CANCEL,
        [
            "lib/flush.lua",
            "removed_fields[#removed_fields + 1] = field -- the hash has it",
            "do end",
        ],
    ),
    planted(
        "no first end of the readers is overlooked",
        &[W, R, R],
        CANCEL,
        [
            "lib/readers.lua",
            "if index == 0 or deadline < number('read_min') then",
            "if index == 0 then",
        ],
    ),
    planted(
        "a key outlives what it says",
        &[W],
        NO_FAULTS,
        [
            "lib/fast/renew.lua",
            "  if needs_new_expiry and type(reply) == 'number' then\n    reply = redis.pcall('PEXPIREAT', KEYS[1], expiry_text)",
            "  if false then\n    reply = redis.pcall('PEXPIREAT', KEYS[1], expiry_text)",
        ],
    ),
    planted(
        "a writer is alone",
        &[W, R],
        NO_FAULTS,
        [
            "lib/acquire_slow.lua",
            "if current_writer() or current_upgrader() then",
            "if current_upgrader() then",
        ],
    ),
    planted(
        "tokens rise",
        &[W, R],
        NO_FAULTS,
        ["lib/grant_budget.lua", "math.max(number('fence') + 1, now_us)", "number('fence')"],
    ),
    planted(
        "a read's token is no write's",
        &[RU, R],
        NO_FAULTS,
        [
            "upgrade.lua",
            "  local token = next_token()\n",
            "  local _, _, _, token = find_reader(caller_id)\n",
        ],
    ),
    planted(
        "the last token is kept",
        &[W],
        NO_FAULTS,
        [
            "release.lua",
            "local free_line = '2F' .. sub(line, 3, 31)",
            "local free_line = '2F' .. sub(line, 3, 15) .. '0000000000000001'",
        ],
    ),
    planted(
        "nobody's lease is touched by others",
        &[W, W],
        CANCEL,
        ["release.lua", "    if writer_id == id then", "    if writer_id then"],
    ),
    planted(
        "what is revoked is not made longer",
        &[W, R],
        REVOKED,
        ["renew.lua", "sub(line, 46) == caller and flag <= '1' and", "sub(line, 46) == caller and"],
    ),
    planted(
        "what is revoked is not made longer",
        &[W, R],
        REVOKED,
        ["revoke.lua", "    put('revoked', token_limit)\n", ""],
    ),
    planted(
        "a lease lasts as long as was asked",
        &[W],
        NO_FAULTS,
        ["lib/fast/renew.lua", "math.max(old_deadline, now_ms + lease)", "now_ms + 2 * lease"],
    ),
    planted(
        "a lease lasts as long as was asked",
        &[W],
        NO_FAULTS,
        ["lib/fast/renew.lua", "math.max(old_deadline, now_ms + lease)", "old_deadline"],
    ),
    planted(
        "the living keep their places",
        &[W, R],
        NO_FAULTS,
        [
            "lib/wait_queue.lua",
            "if waiter.last_seen + waiter.ttl <= now_ms then",
            "if waiter.last_seen <= now_ms then",
        ],
    ),
    planted(
        "the dead are not granted",
        &[W, R],
        SLOW,
        ["lib/wait_queue.lua", "if waiter.last_seen + waiter.ttl <= now_ms then", "if false then"],
    ),
    planted(
        "who is gone gets nothing",
        &[W, R],
        CRASH,
        ["lib/notify.lua", "          revert_grant(granted)\n", ""],
    ),
    planted(
        "who comes too late gets nothing",
        &[W, W],
        ABANDONED,
        ["lib/acquire_slow.lua", "request.not_after > 0 and now_ms > request.not_after", "false"],
    ),
    planted(
        "a reply says what is so",
        &[W, R],
        NO_FAULTS,
        [
            "lib/acquire_slow.lua",
            "ok_reply('granted', has_more_work, caller_id, token, deadline)",
            "ok_reply('granted', has_more_work, caller_id, token, deadline + 1)",
        ],
    ),
    planted(
        "a reply says what is so",
        &[TW, R],
        CRASH,
        ["lib/acquire_slow.lua", "elseif can_grant(mode) then", "elseif false then"],
    ),
    planted(
        "a release ends all",
        &[W, R, R],
        NO_FAULTS,
        [
            "release.lua",
            "(remove_own_write(caller) or remove_own_read(caller))",
            "remove_own_write(caller)",
        ],
    ),
    planted(
        "a release ends all",
        &[RU, R],
        CANCEL,
        ["release.lua", "    delete_waiter(waiter)\n", ""],
    ),
    planted(
        "a change names the token",
        &[WDU, R],
        ABANDONED,
        [
            "downgrade.lua",
            "if id == ARGV[2] and writer_token == expected_token then",
            "if id == ARGV[2] then",
        ],
    ),
    planted(
        "a change names the token",
        &[WDU, R],
        ABANDONED,
        ["renew.lua", "  if mode and token == expected_token then", "  if mode then"],
    ),
    planted(
        "a renewal leaves no more than is held",
        &[WD, R],
        FAILOVER,
        [
            "renew.lua",
            "flag <= '1' and (expected_mode == 'w' or line_prefix == '2R') then",
            "flag <= '1' then",
        ],
    ),
    planted(
        "a renewal leaves no more than is held",
        &[WD, R],
        FAILOVER,
        ["renew.lua", "    elseif expected_mode == 'r' then", "    elseif false then"],
    ),
    planted(
        "a renewal leaves no more than is held",
        &[RU, R],
        ABANDONED,
        ["lib/fast/renew.lua", " and tonumber(token) == expected_token then", " then"],
    ),
    planted(
        "a renewal leaves no more than is held",
        &[PS, P1],
        FAILOVER,
        ["semaphore/renew.lua", "tonumber(record_permits) > kept_permits then", "false then"],
    ),
    planted(
        "only its holder gives permits back",
        &[PS, P1],
        ABANDONED,
        ["semaphore/renew.lua", "math.min(kept_permits, permits)", "kept_permits"],
    ),
    planted(
        "a message says what is so",
        &[W, R],
        NO_FAULTS,
        [
            "lib/notify.lua",
            "granted.token, granted.deadline)",
            "granted.token, granted.deadline + 1)",
        ],
    ),
    planted(
        "a message says what is so",
        &[W, R],
        FORCED,
        [
            "force_release.lua",
            "  if ends_writer then\n    start_reader_phase()",
            "  if ends_writer then\n    do end",
        ],
    ),
    planted(
        "who is ended by force is told",
        &[W, R],
        FORCED,
        [
            "force_release.lua",
            "    force_released[#force_released + 1] = { id, writer_token }\n",
            "",
        ],
    ),
    planted(
        "who is ended by force is told",
        &[R, R],
        FORCED,
        ["lib/readers.lua", "        force_released[#force_released + 1] = { id, token }\n", ""],
    ),
    planted(
        "who is granted is told",
        &[W, R],
        NO_FAULTS,
        ["lib/notify.lua", "    if waiter.node ~= '-' then", "    if false then"],
    ),
    planted(
        "a grant lasts for its window",
        &[W, R],
        NO_FAULTS,
        ["lib/grant_waiters.lua", "is_caller and waiter.lease or waiter.window", "waiter.lease"],
    ),
    planted(
        "a phase is closed when a write ends",
        &[W, R],
        NO_FAULTS,
        ["lib/fast/release.lua", "= 'phase', phase", "= 'phase', phase + 1"],
    ),
    planted(
        "the order of the queue is kept",
        &[W, R, R],
        NO_FAULTS,
        [
            "lib/acquire_slow.lua",
            "(not next_writer or (request.fairness == 'r' and number('fair') == 0))",
            "true",
        ],
    ),
    planted(
        "whatever frees, frees the next",
        &[W, R],
        NO_FAULTS,
        [
            "lib/grant_waiters.lua",
            "local function grant_next()\n  if current_writer() then",
            "local function grant_next()\n  if true then",
        ],
    ),
    planted(
        "a writer believes alone",
        &[W, R],
        NO_FAULTS,
        [
            "lib/fast/acquire_args.lua",
            "find(line, '^2F%d+$') and #line == 31 and",
            "find(line, '^2[FRS]%d+') and",
        ],
    ),
    planted(
        "nobody overtakes a writer",
        &[W, R],
        NO_FAULTS,
        ["acquire_read.lua", "if line_shape and line_shape ~= 'W' then", "if line_shape then"],
    ),
    planted(
        "nothing is left behind",
        &[W],
        NO_FAULTS,
        ["release.lua", "local free_line = '2F' .. sub(line, 3, 31)", "local free_line = line"],
    ),
    planted(
        "marks fall",
        &[CW, R],
        NO_FAULTS,
        [
            "renew.lua",
            "  return is_cached(state) and not tokens and 'b' or state",
            "  return is_cached(state) and (not tokens and 'b' or 'k') or state",
        ],
    ),
    planted(
        "who is cached is marked and counted",
        &[CR, R],
        NO_FAULTS,
        ["lib/readers.lua", "    count_cached(-1)", "    do end"],
    ),
    planted(
        "the first in line asks who is in its way",
        &[CR, RU],
        NO_FAULTS,
        ["upgrade.lua", "      recall_readers(waiter)", "      do end"],
    ),
    planted(
        "the first in line asks who is in its way",
        &[CW, W],
        NO_FAULTS,
        ["lib/recall.lua", "  elseif state == 'c' and repeat_recall then", "  elseif false then"],
    ),
    planted("no more permits are held than there are", &[P2, P1], NO_FAULTS, MORE_PERMITS),
    planted("no more permits are believed in than there are", &[P2, P1], NO_FAULTS, MORE_PERMITS),
    planted(
        "permits in use are counted",
        &[PS],
        NO_FAULTS,
        ["lib/semaphore_state.lua", "  put('used', number('used') - permits + new_permits)\n", ""],
    ),
    planted(
        "permits are granted as they were requested",
        &[P2, P1],
        NO_FAULTS,
        [
            "lib/semaphore_state.lua",
            "add_reader(waiter.id, is_caller and 'h' or 'g', deadline, token, permits)",
            "add_reader(waiter.id, is_caller and 'h' or 'g', deadline, token, 1)",
        ],
    ),
    planted(
        "only its holder gives permits back",
        &[P1, P1],
        NO_FAULTS,
        ["semaphore/release.lua", ".. index .. moved_permits", ".. index .. ' 2'"],
    ),
    planted(
        "what a shrink keeps is said",
        &[PS],
        NO_FAULTS,
        [
            "semaphore/shrink.lua",
            "ok_reply('kept', has_more_work, token, deadline, kept_permits)",
            "ok_reply('kept', has_more_work, token, deadline + 1, kept_permits)",
        ],
    ),
    planted(
        "who believes has a lease",
        &[PS],
        NO_FAULTS,
        [
            "semaphore/shrink.lua",
            "set_permits(ARGV[2], state, deadline, token, index, permits, kept_permits)",
            "set_permits(ARGV[2], state, deadline, token, index, permits, 0)",
        ],
    ),
    planted(
        "permits go first in, first out",
        &[P1, P1, P2],
        NO_FAULTS,
        [
            "semaphore/acquire.lua",
            "elseif not first_alive('p') and has_permits(request.permits) then",
            "elseif has_permits(request.permits) then",
        ],
    ),
    planted(
        "permits that are left go to the head",
        &[PS, P1],
        NO_FAULTS,
        ["semaphore/shrink.lua", "  finish(true)\n", "  flush(true)\n"],
    ),
    planted(
        "permits that are left go to the head",
        &[P2, TP],
        CRASH,
        [
            "semaphore/acquire.lua",
            "elseif not first_alive('p') and has_permits(request.permits) then",
            "elseif false then",
        ],
    ),
    planted(
        CAN_FINISH,
        &[W, R],
        NO_FAULTS,
        [
            "lib/grant_waiters.lua",
            "local function grant_next()\n  if current_writer() then",
            "local function grant_next()\n  if true then",
        ],
    ),
];

fn find(plan: ModelPlan, changed: ScriptVariant<'_>) -> Option<Violation> {
    search(&mut LockModel::new(plan, changed)).violation
}

impl SeededFault {
    /// Checks that its rule alone finds it. The worlds show that the rule finds nothing in the
    /// scripts as they ship.
    fn is_found(&self) {
        let SeededFault { rule, programs, budget, .. } = *self;
        let fault = ScriptMutant::new(&format!("lua/{}", self.file), self.old, self.new);
        let plan = ModelPlan { budget, ..ModelPlan::new("planted", programs) };
        let changed =
            ScriptVariant { fault: Some(&fault), only: Some(rule), ..ScriptVariant::default() };
        let violation = find(plan, changed);
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
fn no_rule_is_without_a_fault() {
    let planted: BTreeSet<&str> = PLANTED.iter().map(|planted| planted.rule).collect();
    let clients = BTreeSet::from(["who believes has a lease", RECALLS, GUARDS]);
    let known = step_invariants::names()
        .chain(state_invariants::names())
        .chain([CAN_FINISH, GUARDS])
        .collect();
    assert_eq!(&planted | &clients, known);
}

/// Plants a fault in the client. All rules are judged, and this one must find it.
fn is_found_in_the_client(rule: &str, fault: ClientFault, budget: FaultBudget) {
    is_found_in_clients(&[W, R], rule, fault, budget);
}

fn is_found_in_clients(
    programs: &'static [&'static [AcquireProgram]],
    rule: &str,
    fault: ClientFault,
    budget: FaultBudget,
) {
    let plan = ModelPlan { budget, call_slice: UNIT, ..ModelPlan::new("planted", programs) };
    let changed = ScriptVariant { client: Some(fault), ..ScriptVariant::default() };
    let violation = find(plan, changed).unwrap();
    println!("{rule}: in {} steps\n{}", violation.steps, violation.history);
    assert!(violation.what.starts_with(rule), "{}", violation.what);
}

#[test]
fn client_that_counts_a_lease_from_the_reply_is_found() {
    is_found_in_the_client("who believes has a lease", ClientFault::CountsLeaseFromReply, SLOW);
}

#[test]
fn client_that_never_releases_is_found() {
    is_found_in_the_client("nothing is left behind", ClientFault::NeverReleases, NO_FAULTS);
}

#[test]
fn client_that_ignores_recalls_is_found() {
    is_found_in_clients(&[CR, W], RECALLS, ClientFault::IgnoresRecall, NO_FAULTS);
}

#[test]
fn client_that_forgets_a_recall_before_its_grant_is_found() {
    is_found_in_clients(&[CR, W], RECALLS, ClientFault::ForgetsEarlyRecalls, NO_FAULTS);
}

#[test]
fn client_that_reuses_a_token_is_found() {
    is_found_in_clients(&[CW, W], GUARDS, ClientFault::ReusesTokens, NO_FAULTS);
}

/// Its death is no way out.
#[test]
fn client_that_never_polls_is_found() {
    is_found_in_the_client(CAN_FINISH, ClientFault::NeverPolls, CRASH);
}

/// A client keeps its letter although the search reorders equal clients.
#[test]
fn a_history_tells_of_the_same_client_by_the_same_letter() {
    let plan = ModelPlan { budget: SLOW, call_slice: UNIT, ..ModelPlan::new("planted", &[W, W]) };
    let changed = ScriptVariant {
        client: Some(ClientFault::CountsLeaseFromReply),
        ..ScriptVariant::default()
    };
    let history = find(plan, changed).unwrap().history;
    let begun = history.lines().find(|line| line.contains("begins to acquire")).unwrap();
    let letter = begun.trim_start().split(' ').nth(1).unwrap();
    let taken = format!("carries out the acquire_write of {letter}");
    assert!(history.contains(&taken), "{history}");
}
