//! Locks under load while masters and clients die, stop and refuse: short versions of the
//! scorecard's rows. `make chaos` runs the rows in full.

use crate::self_test::smoke_tests;

smoke_tests! {
    replicas_take_over_by_order: "failover";
    masters_are_killed: "kill";
    masters_restart_before_a_failover: "restart";
    masters_stop_and_go_on: "pause";
    a_master_is_cut_off_with_its_clients: "partition";
    clients_are_killed_stopped_and_stalled: "clients";
    the_memory_is_full: "memory";
    acl_right_removed_under_load_breaks_no_promise: "permission-publish", "permission-set";
    clocks_differ: "skew";
    a_clock_jumps: "step";
}
