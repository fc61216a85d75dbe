//! Connections to one server each: how they are opened, limited, waited for and given up.

mod call_limit;
pub(crate) mod connect_error;
pub(crate) mod error_reply;
pub(crate) mod exchange;
pub(crate) mod limits;
pub(crate) mod reply_timeout;
pub(crate) mod send_permit;
pub(crate) mod server_connection;
pub(crate) mod server_info;
mod shared_timer;
pub(crate) mod unexpected_server;
