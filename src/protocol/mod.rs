//! The protocol: typed requests and replies of each script.

mod script;

pub use script::scripts;
pub(crate) use script::Scripts;
