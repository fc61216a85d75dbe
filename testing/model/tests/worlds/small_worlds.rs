//! Worlds that find most planted faults of the scripts. `scripts/script-faults` runs them with each
//! fault.

use rwlease_model::program::ModelPlan;
use rwlease_model::scripts_under_test::ScriptVariant;
use rwlease_model::search::search;
use rwlease_model::world::LockModel;

/// How many states of one world are searched.
const MAX_STATES: usize = 120_000;

/// The quickest come first.
const WORLDS: [&str; 26] = [
    "W,W,R; 1 crash",
    "W,R; 1 abandoned call, slowness 1",
    "WDU,R; 1 abandoned call",
    "RU,RU,W",
    "RU,R; 1 abandoned call, 1 cancel",
    "W,R; 1 revoke, 1 force_release, slowness 1",
    "W,W; 1 failover, slowness 1",
    "WF,RF,R; slowness 1",
    "W,WF,RF,RF",
    "W,R,R; slowness 1",
    "WD,R; 1 abandoned call, slowness 1",
    "TW,W; slowness 1",
    "W,WS; window 2, slowness 1",
    "CW,R",
    "CR,W",
    "CW,W; slowness 1",
    "CR,RU",
    "W,W,W,R",
    "P1,P1,P2; slowness 1",
    "PS,P1; 1 abandoned call",
    "P1,P2,TP; 1 cancel",
    "W,R,R; small limits, 1 crash",
    "W,R,R,R; small limits",
    "WD,R; 1 failover",
    "PS,P1; 1 failover",
    "W,R; 1 failover, 1 abandoned call",
];

/// `RWLEASE_LUA` names a folder with other scripts than those of `lua/`.
#[test]
#[ignore = "`make check-mutants`"]
fn small_worlds_keep_every_promise() {
    for name in WORLDS {
        let plan = ModelPlan { max_states: MAX_STATES, ..ModelPlan::named(name) };
        let summary = search(&mut LockModel::new(plan, ScriptVariant::default()));
        println!("{}", summary.row());
        assert!(summary.violation.is_none(), "{:?}", summary.violation);
    }
}
