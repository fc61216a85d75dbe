//! Faults that stay while the load goes on: short versions of the scorecard's rows. `make chaos`
//! runs the rows in full.

use crate::self_test::smoke_tests;

smoke_tests! {
    locks_go_on_while_two_masters_cannot_reach_each_other: "cut-nodes";
    locks_go_on_while_a_client_cannot_reach_a_master: "cut-client";
    locks_go_on_while_a_client_gets_no_reply_of_a_master: "deaf-client";
    locks_go_on_while_a_master_refuses_a_client: "refused-client";
    locks_of_other_masters_go_on_while_a_replica_lags: "lag";
    locks_go_on_while_a_clock_is_ahead: "clock";
    locks_of_other_masters_go_on_while_a_disk_is_full: "disk";
}
