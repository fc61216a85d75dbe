//! Turns the names by which servers announce each other into addresses to dial.

use std::sync::Arc;

use rwlease_core::resp::Address;

use crate::health::catch;
use crate::telemetry::callback_panicked;

/// Turns an announced host and port into those to dial, where the two differ (port forwarding,
/// container networks).
pub(crate) type TranslateFn = Arc<dyn Fn(&str, u16) -> (String, u16) + Send + Sync>;

/// The translation in the settings, if there is one.
#[derive(Clone, Default)]
pub(crate) struct AddressTranslator(pub(crate) Option<TranslateFn>);

impl AddressTranslator {
    /// The address to dial for a node that the server at `asked` announced.
    ///
    /// A server that does not know a node's host leaves it empty or sends `?`: it means the host at
    /// which the server itself was reached. That host was not announced, so it is not translated.
    /// If the translator panics, the address is the announced one.
    pub(crate) fn address(&self, host: &str, port: u16, asked: &Address) -> Address {
        if host.is_empty() || host == "?" {
            return Address { host: asked.host.clone(), port };
        }
        match &self.0 {
            None => Address { host: host.into(), port },
            Some(address_translator) => {
                let (host, port) =
                    catch(|| address_translator(host, port)).unwrap_or_else(|panic| {
                        callback_panicked("address_translator", &panic);
                        (host.to_owned(), port)
                    });
                Address { host: host.into(), port }
            }
        }
    }
}
