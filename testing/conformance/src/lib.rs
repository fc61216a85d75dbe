//! What locks must do over any backend: one set of tests, run over each backend by a module of
//! `main.rs`.
//!
//! - [`locks`] needs only two clients.
//! - [`servers`] needs a cluster, whose slots it moves and whose servers it kills and freezes: real
//!   servers, or those of the embedded engine.

// Not every backend runs all of it; the ban on direct clocks is for the library.
#![allow(unused_macros, async_fn_in_trait, clippy::disallowed_methods)]

pub mod locks;
pub mod servers;
pub mod site;

use std::time::Duration;

/// Longer than anything takes: the tests check what happens, not how fast.
pub const LONG: Duration = Duration::from_secs(60);

/// Passes the names of the tests of [`locks`] to a macro, after its other arguments.
#[macro_export]
macro_rules! with_lock_tests {
    ($macro:ident, $($before:tt)*) => {
        $macro! { $($before)*
            readers_share_and_writers_exclude
            locks_of_many_slots_are_held_at_once
            cached_locks_exclude_and_give_way
            queued_writers_are_granted_in_order_and_readers_together
            writers_and_readers_take_turns
            write_with_timeout_while_held_returns_timed_out
            dropped_acquire_leaves_no_lock_and_no_waiter
            a_dropped_guard_is_released
            release_tells_the_truth
            leases_are_renewed_for_as_long_as_they_are_held
            tokens_rise
            the_lead_is_handed_on_and_watched
            a_held_lock_is_handed_on
            permits_are_shared_up_to_the_limit
            fenced_value_refuses_the_stale_writer
            fenced_writer_of_an_accepted_transfer_takes_over
            write_of_many_tasks_excludes_each_other
            shutdown_gives_everything_back
            status_names_the_client_of_the_holder
        }
    };
}

/// Makes a test of each function. `$start` is a future of two clients, and of a value that keeps
/// their servers alive.
#[macro_export]
macro_rules! lock_tests {
    ($start:expr) => {
        $crate::with_lock_tests! { lock_tests, $start; }
    };
    ($start:expr; $($test:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                let (one, other, _keep) = $start.await;
                $crate::locks::$test(&one, &other).await;
            }
        )*
    };
}

/// Makes a test of each function of [`servers`], on a cluster with that many masters and replicas,
/// which `$start` starts.
#[macro_export]
macro_rules! server_tests {
    (by $start:expr; on $masters:literal masters with $replicas:literal: $($test:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $test() -> testkit::Result {
                let servers = $start($masters, $replicas).await?;
                $crate::servers::$test(&servers).await
            }
        )*
    };
    (by $start:expr) => {
        $crate::server_tests! { by $start; on 3 masters with 0: locks_follow_their_slot }
        $crate::server_tests! { by $start; on 2 masters with 0:
            scripts_are_sent_where_they_are_unknown
            keys_of_others_are_left_alone
            connections_that_are_cut_cost_nothing
            locks_are_taken_while_their_slot_migrates
            exclusion_holds_while_slots_move
            held_leases_survive_slot_moves_under_load
            waiter_whose_slot_moves_is_granted_at_the_new_master
        }
        $crate::server_tests! { by $start; on 3 masters with 1:
            a_failover_by_order_loses_no_lock
            a_dead_master_is_replaced
            a_frozen_master_is_left
        }
    };
    (by $start:expr, with push) => {
        $crate::server_tests! { by $start; on 2 masters with 0:
            a_hand_off_needs_no_poll
            cached_lease_is_recalled_by_push_without_a_poll
        }
    };
    ($backend:expr) => {
        $crate::server_tests! { by $crate::site::real($backend) }
    };
    ($backend:expr, with push) => {
        $crate::server_tests! { by $crate::site::real($backend), with push }
    };
}
