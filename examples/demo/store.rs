//! What a lock protects: a store that checks fencing tokens.

/// Keeps one value, and refuses whoever is older than the newest writer it has seen.
#[derive(Debug, Default)]
pub struct Store {
    newest: u64,
    value: String,
}

impl Store {
    pub fn write(&mut self, token: u64, value: &str) -> Result<(), String> {
        if token < self.newest {
            return Err(format!("refused, token {token} is older than {}", self.newest));
        }
        self.newest = token;
        self.value = value.into();
        Ok(())
    }

    pub fn value(&self) -> &str {
        &self.value
    }
}
