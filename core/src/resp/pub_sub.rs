//! What a server tells a subscriber.

use bytes::Bytes;

use super::ServerError;

/// An event on a subscription's connection.
#[derive(Clone, Debug, PartialEq)]
pub enum PubSubEvent {
    /// The server confirmed the subscription.
    Subscribed {
        channel: Bytes,
    },
    /// The server ended the subscription, requested or not (the slot has moved, the master was
    /// demoted).
    Unsubscribed {
        channel: Bytes,
    },
    /// The server refused the subscription (`MOVED`, `NOPERM`, unknown command).
    Rejected {
        channel: Bytes,
        error: ServerError,
    },
    Message {
        channel: Bytes,
        payload: Bytes,
    },
}
