//! What a lock protects: a store that checks fencing tokens.

use rwlease::FencingToken;

/// Keeps one value, and refuses whoever is older than the newest writer it has seen.
#[derive(Debug, Default)]
pub struct Store {
    newest: Option<FencingToken>,
    value: String,
}

impl Store {
    pub fn write(&mut self, token: FencingToken, value: &str) -> Result<(), String> {
        if let Some(newest) = self.newest.filter(|newest| token < *newest) {
            return Err(format!("refused, token {token} is older than {newest}"));
        }
        self.newest = Some(token);
        self.value = value.into();
        Ok(())
    }

    pub fn value(&self) -> &str {
        &self.value
    }
}
