//! Holding locks on real servers: changing, sharing, losing and releasing them.

mod bench;

mod changing;
mod clocks;
mod keeping;
mod losing;
mod observers;
mod reentrant;
mod releasing;
mod replicas;
mod revoking;
mod running;
mod shards;
mod stopped;
