//! Leader election: campaigns and watches on servers in this process, and leaders in processes that
//! are killed and stopped.

#[cfg(feature = "embedded")]
mod campaigns;
mod processes;
