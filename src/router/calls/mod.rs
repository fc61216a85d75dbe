//! Calls of scripts and queries of masters: attempts, retries, batches, and calls that replicas
//! confirm.

mod batch;
mod delifeq;
pub(crate) mod in_flight;
mod master_query;
pub(crate) mod replicated;
pub(crate) mod reply_action;
pub(crate) mod script_upload;
pub(crate) mod send_gate;

use std::sync::Arc;
use std::time::Duration;

use rwlease_core::protocol::{CallError, CallErrorKind, Doubt};

use crate::backend::ConnectionError;
use crate::backoff::Backoff;

/// Pauses between the attempts of one call.
pub(crate) const ATTEMPT_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(5), Duration::from_millis(100));

/// The error of a call, with the last failure of an attempt.
pub(crate) fn call_error(
    kind: CallErrorKind,
    in_doubt: Doubt,
    last: Option<ConnectionError>,
) -> CallError {
    CallError { kind, in_doubt, source: last.map(|failure| Arc::new(failure) as _) }
}

/// The error of a call without a connection, which no retry can fix.
pub(crate) fn unconnected(failure: ConnectionError) -> CallError {
    let ConnectionError { message, is_invalid, source, .. } = failure;
    let kind = CallErrorKind::Unconnected { message, is_invalid };
    CallError { kind, in_doubt: Doubt::None, source }
}
