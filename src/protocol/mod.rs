//! The protocol: typed requests and replies of each script.

mod script;

pub(crate) use script::Scripts;
pub use script::scripts;
