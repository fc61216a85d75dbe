//! Leader election: campaigns and watches on embedded servers, and a leader in a process that is
//! stopped.

#[cfg(feature = "embedded")]
mod campaigns;
mod processes;
