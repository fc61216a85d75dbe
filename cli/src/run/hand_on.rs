//! Hands the held lock on to the command, and takes up one that was handed on.

use std::ffi::OsString;

use rwlease::{Locks, TakeUp, Ticket};

use super::command::{Command, Event, Orphan};
use super::held::Held;
use super::supervision::{pass_on, stopped};
use super::wait_limit::WaitLimit;
use super::{ID, LEAVING, TOKEN, cannot_run, exit_of, told_to_end};
use crate::args::Run;
use crate::exit::{Exit, Failure};
use crate::signals::Signals;

/// Passes the ticket to the command. Other users can see the arguments of a process, but not its
/// environment.
pub const TICKET: &str = "RWLEASE_TICKET";

/// The ticket in the environment, which must be for this lock.
pub fn ticket_of(name: &str) -> Result<Ticket, Failure> {
    let text = std::env::var(TICKET).map_err(|_| {
        Failure::usage(format!("no ticket in {TICKET}; `rwlease run --hand-on` puts one there"))
    })?;
    let ticket: Ticket = text.parse().map_err(|_| {
        Failure::usage(format!("{TICKET} does not hold a valid ticket; pass it on unchanged"))
    })?;
    match ticket.name() == name {
        true => Ok(ticket),
        false => {
            let of = ticket.name();
            let message = format!("the ticket in {TICKET} is for the lock `{of}`; use that name");
            Err(Failure::usage(message))
        }
    }
}

/// Takes up the lock.
pub async fn take_up(
    locks: &Locks,
    ticket: &Ticket,
    args: &Run,
    wait_limit: &WaitLimit,
    signals: &mut Signals,
) -> Result<Held, Failure> {
    let taking = async {
        let request = locks.take_up(ticket).lease(args.lease).replicas(args.replicas);
        let limit = wait_limit.left()?.filter(|left| !left.is_zero());
        let taken = limit.into_iter().fold(request, TakeUp::timeout).await;
        taken.map(Held::from).map_err(Failure::from)
    };
    let outcome = tokio::select! {
        exit = told_to_end(signals) => Err(exit.into()),
        held = wait_limit.within(taking) => held,
    };
    let outcome = outcome.and_then(|held| wait_limit.left().map(|_| held));
    if outcome.is_err() {
        locks.shutdown(LEAVING).await;
    }
    outcome
}

/// Runs the command, which owns the lock from here on.
pub async fn run(
    locks: &Locks,
    held: Held,
    args: &Run,
    wait_limit: &WaitLimit,
    mut environment: Vec<(&'static str, OsString)>,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    let id = held.lease().id().to_owned();
    let ticket = tokio::select! {
        exit = told_to_end(signals) => Err(exit.into()),
        ticket = wait_limit.within(held.into_ticket()) => ticket,
    };
    let ticket = match ticket {
        Ok(ticket) => ticket,
        Err(failure) => {
            locks.shutdown(LEAVING).await;
            return Err(failure);
        }
    };
    environment.push((TOKEN, ticket.token().to_string().into()));
    environment.push((ID, id.into()));
    environment.push((TICKET, ticket.to_string().into()));
    let started = match wait_limit.left() {
        Ok(_) => Command::start(&args.command, &environment, Orphan::GoesOn)
            .await
            .map_err(|error| cannot_run(&args.command[0].to_string_lossy(), &error)),
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
            event = command.event() => match event? {
                Event::Ended(status) => return Ok(exit_of(status)),
                Event::Stopped(signal) => stopped(&mut command, signal, || true),
            },
            signal = signals.next() => pass_on(&args.name, &mut command, signal),
        }
    }
}
