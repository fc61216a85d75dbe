//! From what the command line says of the servers to a client.

use std::path::Path;

use rwlease::{Credentials, Locks};

use crate::args::Servers;
use crate::exit::{Failure, SYSTEM};

const PASSWORD: &str = "RWLEASE_PASSWORD";

/// The name in the servers' `CLIENT LIST`, of the client and of its library.
pub const NAME: &str = "rwlease";

/// Certificates in PEM, as they were read.
#[derive(Clone, Default)]
pub struct Certificates {
    pub roots: Option<Vec<u8>>,
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Servers {
    pub async fn connect(&self) -> Result<Locks, Failure> {
        let mut settings =
            Locks::builder().servers(self.urls()?).prefix(&self.prefix).client_name(NAME);
        if let Some((user, password)) = self.credentials()? {
            settings = settings.credentials(Credentials::new(user, password));
        }
        let certificates = self.certificates()?;
        if let Some(roots) = certificates.roots {
            settings = settings.tls_roots(roots);
        }
        if let Some((certificate, key)) = certificates.client {
            settings = settings.tls_client(certificate, key);
        }
        Ok(settings.connect().await?)
    }

    /// At least one.
    pub fn urls(&self) -> Result<Vec<String>, Failure> {
        let named = self.urls.iter().map(|url| url.trim()).filter(|url| !url.is_empty());
        let urls: Vec<String> = named.map(with_scheme).collect();
        if urls.is_empty() {
            return Err(Failure::usage(
                "no server is named; give --redis redis://HOST:PORT or set RWLEASE_URL",
            ));
        }
        Ok(urls)
    }

    /// The user that was named beside the URLs, and its password.
    pub fn credentials(&self) -> Result<Option<(String, String)>, Failure> {
        let Some(user) = &self.user else {
            return Ok(None);
        };
        let password = std::env::var(PASSWORD).map_err(|_| {
            Failure::usage(format!("--user {user} needs a password; set {PASSWORD}"))
        })?;
        Ok(Some((user.clone(), password)))
    }

    pub fn certificates(&self) -> Result<Certificates, Failure> {
        let roots = self.tls_roots.as_deref().map(read).transpose()?;
        let client = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
            _ => None,
        };
        Ok(Certificates { roots, client })
    }
}

/// `HOST:PORT` is enough.
fn with_scheme(url: &str) -> String {
    if url.contains("://") { url.to_owned() } else { format!("redis://{url}") }
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(file).map_err(|error| {
        Failure::new(SYSTEM, format!("{}: {error}; name a file that can be read", file.display()))
    })
}
