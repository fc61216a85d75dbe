//! Locks under load while masters and clients die, stop and refuse: short versions of the
//! scorecard's rows. `make chaos` runs the rows in full.

use crate::smoke::smoke;
use crate::support::Result;

#[tokio::test(flavor = "multi_thread")]
async fn replicas_take_over_by_order() -> Result {
    smoke("failover").await
}

#[tokio::test(flavor = "multi_thread")]
async fn masters_are_killed() -> Result {
    smoke("kill").await
}

#[tokio::test(flavor = "multi_thread")]
async fn masters_stop_and_go_on() -> Result {
    smoke("pause").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_is_cut_off_with_its_clients() -> Result {
    smoke("partition").await
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_killed_stopped_and_stalled() -> Result {
    smoke("clients").await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_is_full() -> Result {
    smoke("memory").await
}

#[tokio::test(flavor = "multi_thread")]
async fn acl_right_removed_under_load_breaks_no_promise() -> Result {
    smoke("permission-publish").await?;
    smoke("permission-set").await
}

#[tokio::test(flavor = "multi_thread")]
async fn clocks_differ() -> Result {
    smoke("skew").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_jumps() -> Result {
    smoke("step").await
}
