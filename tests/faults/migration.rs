//! Locks under load while slots move: short versions of the scorecard's rows. `make chaos` runs the
//! rows in full.

use crate::self_test::smoke_tests;

smoke_tests! {
    locks_under_load_without_faults_keep_every_promise: "steady";
    slots_move_key_by_key: "moves";
    slots_move_in_one_piece: "atomic";
    a_shard_moves_to_a_new_node: "drain";
    source_fails_over_while_slot_moves_key_by_key: "move-failover-source", "forgotten-move";
    target_fails_over_while_slot_moves_key_by_key: "move-failover-target";
    a_side_fails_over_while_slot_moves_in_one_piece: "atomic-failover";
    a_side_is_killed_while_slot_moves: "move-kill", "atomic-kill";
    move_cancelled_key_by_key: "cancelled-move";
    move_in_one_piece_cancelled: "cancelled-atomic-move";
    two_masters_name_each_other: "split-master";
    scripts_are_forgotten: "flush";
}
