//! Locks under load while slots move: short versions of the scorecard's rows. `make chaos` runs the
//! rows in full.

use crate::smoke::smoke;
use crate::support::Result;

#[tokio::test(flavor = "multi_thread")]
async fn locks_under_load_without_faults_keep_every_promise() -> Result {
    smoke("steady").await
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_move_key_by_key() -> Result {
    smoke("moves").await
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_move_in_one_piece() -> Result {
    smoke("atomic").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_moves_to_a_new_node() -> Result {
    smoke("drain").await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_masters_name_each_other() -> Result {
    smoke("split-master").await
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_are_forgotten() -> Result {
    smoke("flush").await
}
