//! Locks under load while slots move: short versions of the scorecard's rows. `make chaos` runs the
//! rows in full.

use crate::self_test::smoke_tests;

smoke_tests! {
    locks_under_load_without_faults_keep_every_promise: "steady";
    slots_move_key_by_key: "moves";
    slots_move_in_one_piece: "atomic";
    a_shard_moves_to_a_new_node: "drain";
    two_masters_name_each_other: "split-master";
    scripts_are_forgotten: "flush";
}
