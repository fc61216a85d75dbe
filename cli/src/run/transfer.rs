//! Transfers the held lock to the command, and accepts a transfer.

use std::ffi::OsString;

use rwlease::request::AcceptTransfer;
use rwlease::{Client, LeaseTransfer};

use super::command::{CommandEvent, Orphan, SupervisedCommand};
use super::held_guard::HeldGuard;
use super::supervision::{forward_signal, on_stopped};
use super::wait_limit::WaitLimit;
use super::{
    ID, QUEUE_EXIT_TIMEOUT, ReleaseReport, TOKEN, end_at_server, exit_of, spawn_error,
    wait_termination_signal,
};
use crate::args::RunArgs;
use crate::exit::{CliError, ExitStatus, error_chain_without_lock};
use crate::signals::Signals;

/// Passes the transfer to the command. Other users can see the arguments of a process, but not its
/// environment.
pub const TRANSFER_VAR: &str = "RWLEASE_TRANSFER";

/// Returns the transfer in the environment. Fails if it is for another lock.
pub fn transfer_from_env(name: &str) -> Result<LeaseTransfer, CliError> {
    let text = std::env::var(TRANSFER_VAR).map_err(|_| {
        CliError::usage(format!(
            "no transfer in {TRANSFER_VAR}; `rwlease run --transfer` puts one there"
        ))
    })?;
    let incoming: LeaseTransfer = text.parse().map_err(|_| {
        CliError::usage(format!(
            "{TRANSFER_VAR} does not hold a valid transfer; pass it on unchanged"
        ))
    })?;
    let of = incoming.name();
    if of != name {
        let message =
            format!("the transfer in {TRANSFER_VAR} is for the lock `{of}`; use that name");
        return Err(CliError::usage(message));
    }
    Ok(incoming)
}

/// Accepts the transfer of the lock.
pub async fn accept_transfer(
    locks: &Client,
    incoming: &LeaseTransfer,
    args: &RunArgs,
    wait_limit: &WaitLimit,
    signals: &mut Signals,
) -> Result<HeldGuard, CliError> {
    let taking = async {
        let request = locks
            .accept_transfer(incoming)
            .lease(args.lease)
            .min_replicas(args.min_replicas)
            .fsync(args.fsync);
        let limit = wait_limit.left()?.filter(|left| !left.is_zero());
        let taken = limit.into_iter().fold(request, AcceptTransfer::timeout).await;
        taken.map(HeldGuard::from).map_err(CliError::from)
    };
    let outcome = tokio::select! {
        exit = wait_termination_signal(signals) => Err(exit.into()),
        held = wait_limit.within(taking) => held,
    };
    let outcome = outcome.and_then(|held| wait_limit.left().map(|_| held));
    if outcome.is_err() {
        locks.shutdown(QUEUE_EXIT_TIMEOUT).await;
    }
    outcome
}

/// Transfers the lock and runs the command, which owns the lock from here on.
pub async fn run(
    locks: &Client,
    held: HeldGuard,
    args: &RunArgs,
    wait_limit: &WaitLimit,
    mut environment: Vec<(&'static str, OsString)>,
    signals: &mut Signals,
) -> Result<ExitStatus, CliError> {
    let id = held.lease().id().to_owned();
    let outgoing = tokio::select! {
        exit = wait_termination_signal(signals) => Err(exit.into()),
        outgoing = wait_limit.within(held.into_transfer()) => outgoing,
    };
    let outgoing = match outgoing {
        Ok(outgoing) => outgoing,
        Err(failure) => {
            locks.shutdown(QUEUE_EXIT_TIMEOUT).await;
            return Err(failure);
        }
    };
    environment.push((TOKEN, outgoing.fencing_token().get().to_string().into()));
    environment.push((ID, id.into()));
    environment.push((TRANSFER_VAR, outgoing.to_string().into()));
    let started = match wait_limit.left() {
        Ok(_) => SupervisedCommand::start(&args.command, &environment, Orphan::StillRunning)
            .await
            .map_err(|error| spawn_error(&args.command[0], &error)),
        Err(failure) => Err(failure),
    };
    let mut command = match started {
        Ok(command) => command,
        Err(failure) => {
            let accepted = locks.accept_transfer(&outgoing).lease(args.lease).await;
            let free_at = end_at_server(args.lease);
            let released = match accepted {
                Ok(guard) => ReleaseReport::of(guard.release().await),
                Err(error) => ReleaseReport::Unknown(error_chain_without_lock(&error)),
            };
            locks.shutdown(QUEUE_EXIT_TIMEOUT).await; // ends what is in doubt
            return Err(failure.and(&released.describe(free_at)));
        }
    };
    loop {
        tokio::select! {
            biased;
            event = command.next_event() => match event? {
                CommandEvent::Ended(status) => return Ok(exit_of(status)),
                CommandEvent::Stopped(signal) => on_stopped(&mut command, signal, || true),
            },
            signal = signals.next() => forward_signal(&args.name, &mut command, signal),
        }
    }
}
