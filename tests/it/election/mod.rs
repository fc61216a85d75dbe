//! Leader election: campaigns and watches on embedded servers, and leaders in processes that are
//! killed and stopped.

#[cfg(feature = "embedded")]
mod campaigns;
mod processes;
