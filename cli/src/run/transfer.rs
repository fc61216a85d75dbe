//! Hands the held lock on to the command, and takes up one that was handed on.

use std::ffi::OsString;

use rwlease::{Locks, TakeUp, Ticket};

use super::command::{CommandEvent, Orphan, SupervisedCommand};
use super::held::HeldGuard;
use super::supervision::{pass_on, stopped};
use super::wait_limit::WaitLimit;
use super::{ID, QUEUE_EXIT_TIMEOUT, TOKEN, exit_of, spawn_error, wait_termination_signal};
use crate::args::RunArgs;
use crate::exit::{CliError, ExitStatus};
use crate::signals::Signals;

/// Passes the ticket to the command. Other users can see the arguments of a process, but not its
/// environment.
pub const TRANSFER_VAR: &str = "RWLEASE_TICKET";

/// The ticket in the environment, which must be for this lock.
pub fn transfer_from_env(name: &str) -> Result<Ticket, CliError> {
    let text = std::env::var(TRANSFER_VAR).map_err(|_| {
        CliError::usage(format!(
            "no ticket in {TRANSFER_VAR}; `rwlease run --hand-on` puts one there"
        ))
    })?;
    let ticket: Ticket = text.parse().map_err(|_| {
        CliError::usage(format!(
            "{TRANSFER_VAR} does not hold a valid ticket; pass it on unchanged"
        ))
    })?;
    match ticket.name() == name {
        true => Ok(ticket),
        false => {
            let of = ticket.name();
            let message =
                format!("the ticket in {TRANSFER_VAR} is for the lock `{of}`; use that name");
            Err(CliError::usage(message))
        }
    }
}

/// Takes up the lock.
pub async fn accept_transfer(
    locks: &Locks,
    ticket: &Ticket,
    args: &RunArgs,
    wait_limit: &WaitLimit,
    signals: &mut Signals,
) -> Result<HeldGuard, CliError> {
    let taking = async {
        let request = locks.take_up(ticket).lease(args.lease).replicas(args.replicas);
        let limit = wait_limit.left()?.filter(|left| !left.is_zero());
        let taken = limit.into_iter().fold(request, TakeUp::timeout).await;
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

/// Runs the command, which owns the lock from here on.
pub async fn run(
    locks: &Locks,
    held: HeldGuard,
    args: &RunArgs,
    wait_limit: &WaitLimit,
    mut environment: Vec<(&'static str, OsString)>,
    signals: &mut Signals,
) -> Result<ExitStatus, CliError> {
    let id = held.lease().id().to_owned();
    let ticket = tokio::select! {
        exit = wait_termination_signal(signals) => Err(exit.into()),
        ticket = wait_limit.within(held.into_ticket()) => ticket,
    };
    let ticket = match ticket {
        Ok(ticket) => ticket,
        Err(failure) => {
            locks.shutdown(QUEUE_EXIT_TIMEOUT).await;
            return Err(failure);
        }
    };
    environment.push((TOKEN, ticket.token().to_string().into()));
    environment.push((ID, id.into()));
    environment.push((TRANSFER_VAR, ticket.to_string().into()));
    let started = match wait_limit.left() {
        Ok(_) => SupervisedCommand::start(&args.command, &environment, Orphan::GoesOn)
            .await
            .map_err(|error| spawn_error(&args.command[0].to_string_lossy(), &error)),
        Err(failure) => Err(failure),
    };
    let mut command = match started {
        Ok(command) => command,
        Err(failure) => {
            if let Ok(guard) = locks.take_up(&ticket).await {
                let _ = guard.release().await;
            }
            return Err(failure);
        }
    };
    loop {
        tokio::select! {
            biased;
            event = command.next_event() => match event? {
                CommandEvent::Ended(status) => return Ok(exit_of(status)),
                CommandEvent::Stopped(signal) => stopped(&mut command, signal, || true),
            },
            signal = signals.next() => pass_on(&args.name, &mut command, signal),
        }
    }
}
