//! Holding locks on real servers: changing, sharing, losing and releasing them.

mod at_least;
mod at_risk;
mod clocks;
mod lease_loss;
mod let_expire;
mod observers;
mod releasing;
mod revoking;
mod run_while_held;
mod shards;
mod upgrade_downgrade;
