//! Plants a fault for each rule: a rule that cannot fail proves nothing.

use std::collections::BTreeSet;

use crate::checker::beliefs::{self, RECALLS};
use crate::checker::client::ClientFault;
use crate::checker::faults::{ScriptMutant, root};
use crate::checker::program::{FaultBudget, ModelPlan, AcquireProgram};
use crate::checker::rules;
use crate::checker::search::{CAN_FINISH, Violation, search};
use crate::checker::step::ScriptVariant;
use crate::checker::time::UNIT;
use crate::checker::world::{GUARDS, LockModel};
use crate::checker::worlds::{CR, CW, NO_FAULTS, P1, P2, PS, R, RU, TP, TW, W, WD, WDU};

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
    "lib/semaphore.lua",
    "  return number('used') + permits <= number('limit')",
    "  return number('used') + permits <= number('limit') + 1",
];

const PLANTED: &[SeededFault] = &[
    planted(
        "the array of readers is dense",
        &[RU],
        NO_FAULTS,
        ["lib/readers.lua", "  put('i:' .. last, false)\n", ""],
    ),
    planted(
        "waiters are counted and linked",
        &[W, R],
        NO_FAULTS,
        ["lib/waiters.lua", "  forget(entry)\n  tally(entry, -1)", "  forget(entry)"],
    ),
    planted(
        "fields go with what they tell of",
        &[RU],
        NO_FAULTS,
        [
            "lib/readers.lua",
            "drop('readers', 'read_min', 'sweep', 'forced')",
            "drop('readers', 'sweep', 'forced')",
        ],
    ),
    planted(
        "the line tells the life of the key",
        &[W],
        NO_FAULTS,
        [
            "lib/fast/renewed.lua",
            "  if longer and type(done) == 'number' then\n    done = redis.pcall('PEXPIREAT', KEYS[1], kept)",
            "  if false then\n    done = redis.pcall('PEXPIREAT', KEYS[1], kept)",
        ],
    ),
    planted(
        "the line tells which fields there are",
        &[W, R],
        CANCEL,
        ["lib/flush.lua", "gone[#gone + 1] = field -- it stood in the hash", "do end"],
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
            "lib/fast/renewed.lua",
            "  if longer and type(done) == 'number' then\n    done = redis.pcall('PEXPIREAT', KEYS[1], kept)",
            "  if false then\n    done = redis.pcall('PEXPIREAT', KEYS[1], kept)",
        ],
    ),
    planted(
        "a writer is alone",
        &[W, R],
        NO_FAULTS,
        ["lib/acquire.lua", "if writing() or upgrading() then", "if upgrading() then"],
    ),
    planted(
        "tokens rise",
        &[W, R],
        NO_FAULTS,
        ["lib/turns.lua", "math.max(number('fence') + 1, us)", "number('fence')"],
    ),
    planted(
        "a read's token is no write's",
        &[RU, R],
        NO_FAULTS,
        ["upgrade.lua", "  local token = mint()\n", "  local _, _, _, token = reading(me)\n"],
    ),
    planted(
        "the last token is kept",
        &[W],
        NO_FAULTS,
        [
            "release.lua",
            "local free = '2F' .. sub(line, 3, 31)",
            "local free = '2F' .. sub(line, 3, 15) .. '0000000000000001'",
        ],
    ),
    planted(
        "nobody's lease is touched by others",
        &[W, W],
        CANCEL,
        ["release.lua", "    if writes == id then", "    if writes then"],
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
        ["revoke.lua", "    put('revoked', limit)\n", ""],
    ),
    planted(
        "a lease lasts as long as was asked",
        &[W],
        NO_FAULTS,
        ["lib/fast/renewed.lua", "math.max(was, now + lease)", "now + 2 * lease"],
    ),
    planted(
        "a lease lasts as long as was asked",
        &[W],
        NO_FAULTS,
        ["lib/fast/renewed.lua", "math.max(was, now + lease)", "was"],
    ),
    planted(
        "the living keep their places",
        &[W, R],
        NO_FAULTS,
        ["lib/waiters.lua", "if entry.seen + entry.ttl <= now then", "if entry.seen <= now then"],
    ),
    planted(
        "the dead are not granted",
        &[W, R],
        SLOW,
        ["lib/waiters.lua", "if entry.seen + entry.ttl <= now then", "if false then"],
    ),
    planted(
        "who is gone gets nothing",
        &[W, R],
        CRASH,
        ["lib/tell.lua", "          take_back(granted)\n", ""],
    ),
    planted(
        "who comes too late gets nothing",
        &[W, W],
        ABANDONED,
        ["lib/acquire.lua", "demand.not_after > 0 and now > demand.not_after", "false"],
    ),
    planted(
        "a reply says what is so",
        &[W, R],
        NO_FAULTS,
        [
            "lib/acquire.lua",
            "reply('granted', more, me, token, deadline)",
            "reply('granted', more, me, token, deadline + 1)",
        ],
    ),
    planted(
        "a reply says what is so",
        &[TW, R],
        CRASH,
        ["lib/acquire.lua", "elseif is_free(mode) then", "elseif false then"],
    ),
    planted(
        "a release ends all",
        &[W, R, R],
        NO_FAULTS,
        ["release.lua", "(end_writing(caller) or end_reading(caller))", "end_writing(caller)"],
    ),
    planted("a release ends all", &[RU, R], CANCEL, ["release.lua", "    forget(entry)\n", ""]),
    planted(
        "a change names the token",
        &[WDU, R],
        ABANDONED,
        ["downgrade.lua", "if id == ARGV[2] and held == asked then", "if id == ARGV[2] then"],
    ),
    planted(
        "a change names the token",
        &[WDU, R],
        ABANDONED,
        ["renew.lua", "  if mode and token == asked then", "  if mode then"],
    ),
    planted(
        "a renewal leaves no more than is held",
        &[WD, R],
        FAILOVER,
        ["renew.lua", "flag <= '1' and (how == 'w' or shape == '2R') then", "flag <= '1' then"],
    ),
    planted(
        "a renewal leaves no more than is held",
        &[WD, R],
        FAILOVER,
        ["renew.lua", "    elseif how == 'r' then", "    elseif false then"],
    ),
    planted(
        "a renewal leaves no more than is held",
        &[RU, R],
        ABANDONED,
        ["lib/fast/renewed.lua", " and tonumber(token) == asked then", " then"],
    ),
    planted(
        "a renewal leaves no more than is held",
        &[PS, P1],
        FAILOVER,
        ["semaphore/renew.lua", "tonumber(permits) > keeps then", "false then"],
    ),
    planted(
        "only its holder gives permits back",
        &[PS, P1],
        ABANDONED,
        ["semaphore/renew.lua", "math.min(keeps, permits)", "keeps"],
    ),
    planted(
        "a message says what is so",
        &[W, R],
        NO_FAULTS,
        [
            "lib/tell.lua",
            "granted.token, granted.deadline)",
            "granted.token, granted.deadline + 1)",
        ],
    ),
    planted(
        "a message says what is so",
        &[W, R],
        FORCED,
        ["force_release.lua", "  if writes then\n    end_write()", "  if writes then\n    do end"],
    ),
    planted(
        "who is ended by force is told",
        &[W, R],
        FORCED,
        ["force_release.lua", "    evicted[#evicted + 1] = { id, writes_by }\n", ""],
    ),
    planted(
        "who is ended by force is told",
        &[R, R],
        FORCED,
        ["lib/readers.lua", "        evicted[#evicted + 1] = { id, token }\n", ""],
    ),
    planted(
        "who is granted is told",
        &[W, R],
        NO_FAULTS,
        ["lib/tell.lua", "    if entry.node ~= '-' then", "    if false then"],
    ),
    planted(
        "a grant lasts for its window",
        &[W, R],
        NO_FAULTS,
        ["lib/pump.lua", "asks and entry.lease or entry.window", "entry.lease"],
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
            "lib/acquire.lua",
            "(not next_writer or (demand.fairness == 'r' and number('fair') == 0))",
            "true",
        ],
    ),
    planted(
        "whatever frees, frees the next",
        &[W, R],
        NO_FAULTS,
        [
            "lib/pump.lua",
            "local function step()\n  if writing() then",
            "local function step()\n  if true then",
        ],
    ),
    planted(
        "a writer believes alone",
        &[W, R],
        NO_FAULTS,
        [
            "lib/fast/acquire.lua",
            "find(line, '^2F%d+$') and #line == 31 and",
            "find(line, '^2[FRS]%d+') and",
        ],
    ),
    planted(
        "nobody overtakes a writer",
        &[W, R],
        NO_FAULTS,
        ["acquire_read.lua", "if stands and stands ~= 'W' then", "if stands then"],
    ),
    planted(
        "nothing is left behind",
        &[W],
        NO_FAULTS,
        ["release.lua", "local free = '2F' .. sub(line, 3, 31)", "local free = line"],
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
        ["upgrade.lua", "      recall_readers(mine)", "      do end"],
    ),
    planted(
        "the first in line asks who is in its way",
        &[CW, W],
        NO_FAULTS,
        ["lib/recall.lua", "  elseif state == 'c' and again then", "  elseif false then"],
    ),
    planted("no more permits are held than there are", &[P2, P1], NO_FAULTS, MORE_PERMITS),
    planted("no more permits are believed in than there are", &[P2, P1], NO_FAULTS, MORE_PERMITS),
    planted(
        "permits in use are counted",
        &[PS],
        NO_FAULTS,
        ["lib/semaphore.lua", "  put('used', number('used') - permits + kept)\n", ""],
    ),
    planted(
        "permits are granted as they were requested",
        &[P2, P1],
        NO_FAULTS,
        [
            "lib/semaphore.lua",
            "add_reader(entry.id, asks and 'h' or 'g', deadline, token, permits)",
            "add_reader(entry.id, asks and 'h' or 'g', deadline, token, 1)",
        ],
    ),
    planted(
        "only its holder gives permits back",
        &[P1, P1],
        NO_FAULTS,
        ["semaphore/release.lua", ".. index .. its_permits", ".. index .. ' 2'"],
    ),
    planted(
        "what a shrink keeps is said",
        &[PS],
        NO_FAULTS,
        [
            "semaphore/shrink.lua",
            "reply('kept', more, token, deadline, keeps)",
            "reply('kept', more, token, deadline + 1, keeps)",
        ],
    ),
    planted(
        "who believes has a lease",
        &[PS],
        NO_FAULTS,
        [
            "semaphore/shrink.lua",
            "keep_permits(ARGV[2], state, deadline, token, index, permits, keeps)",
            "keep_permits(ARGV[2], state, deadline, token, index, permits, 0)",
        ],
    ),
    planted(
        "permits go first in, first out",
        &[P1, P1, P2],
        NO_FAULTS,
        [
            "semaphore/acquire.lua",
            "elseif not first('p') and has_room(demand.permits) then",
            "elseif has_room(demand.permits) then",
        ],
    ),
    planted(
        "permits that are left go to the head",
        &[PS, P1],
        NO_FAULTS,
        ["semaphore/shrink.lua", "  settle(true)\n", "  flush(true)\n"],
    ),
    planted(
        "permits that are left go to the head",
        &[P2, TP],
        CRASH,
        [
            "semaphore/acquire.lua",
            "elseif not first('p') and has_room(demand.permits) then",
            "elseif false then",
        ],
    ),
    planted(
        CAN_FINISH,
        &[W, R],
        NO_FAULTS,
        [
            "lib/pump.lua",
            "local function step()\n  if writing() then",
            "local function step()\n  if true then",
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
        let changed = ScriptVariant { fault: Some(&fault), only: Some(rule), ..ScriptVariant::default() };
        let violation = find(plan, changed);
        let violation = violation.unwrap_or_else(|| panic!("{rule} misses {}", self.old));
        println!("{rule}: in {} steps", violation.steps);
        assert!(violation.what.starts_with(rule), "{}", violation.what);
    }
}

#[test]
#[ignore = "a part of `make check`"]
fn invariant_detects_its_seeded_fault() {
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
    let known = rules::names().chain(beliefs::names()).chain([CAN_FINISH, GUARDS]).collect();
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
fn counts_lease_from_reply_breaks_exclusion() {
    is_found_in_the_client("who believes has a lease", ClientFault::CountsLeaseFromReply, SLOW);
}

#[test]
fn never_releases_leaves_record() {
    is_found_in_the_client("nothing is left behind", ClientFault::NeverReleases, NO_FAULTS);
}

#[test]
fn ignored_recall_blocks_waiters() {
    is_found_in_clients(&[CR, W], RECALLS, ClientFault::IgnoresRecall, NO_FAULTS);
}

#[test]
fn early_recall_ignored_blocks_waiters() {
    is_found_in_clients(&[CR, W], RECALLS, ClientFault::ForgetsEarlyRecalls, NO_FAULTS);
}

#[test]
fn reused_token_is_detected() {
    is_found_in_clients(&[CW, W], GUARDS, ClientFault::ReusesTokens, NO_FAULTS);
}

/// Its death is no way out.
#[test]
fn client_without_polls_cannot_finish() {
    is_found_in_the_client(CAN_FINISH, ClientFault::NeverPolls, CRASH);
}

/// A client keeps its letter although the search reorders equal clients.
#[test]
fn history_keeps_client_letters() {
    let plan = ModelPlan { budget: SLOW, call_slice: UNIT, ..ModelPlan::new("planted", &[W, W]) };
    let changed = ScriptVariant { client: Some(ClientFault::CountsLeaseFromReply), ..ScriptVariant::default() };
    let history = find(plan, changed).unwrap().history;
    let begun = history.lines().find(|line| line.contains("begins to acquire")).unwrap();
    let letter = begun.trim_start().split(' ').nth(1).unwrap();
    let taken = format!("carries out the acquire_write of {letter}");
    assert!(history.contains(&taken), "{history}");
}
