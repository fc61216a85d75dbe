//! Makes a client from the options for servers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::{Duration, Instant};

use futures::FutureExt;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rwlease::{Client, ClientBuilder, Credentials, SentinelConfig};
use tokio::time::timeout;

use crate::args::{self, ServerArgs};
use crate::exit::{CliError, SYSTEM};
use crate::format;
use crate::messages::print_error;

const PASSWORD: &str = "RWLEASE_PASSWORD";
const SENTINEL_PASSWORD: &str = "RWLEASE_SENTINEL_PASSWORD";

/// Marks the URL of sentinels.
const SENTINEL_SCHEME: &str = "+sentinel://";

/// The name of the library in the servers' `CLIENT LIST`.
pub const LIB_NAME: &str = "rwlease";

/// How long a command line that seems to be wrong is tried a second time, before the command says
/// that it waits for servers. If the first attempt took more than half of this, twice its time.
const USAGE_ERROR_DELAY: Duration = Duration::from_secs(1);

/// Certificates in PEM.
#[derive(Clone, Default)]
pub struct Certificates {
    pub roots: Option<Vec<u8>>,
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

impl ServerArgs {
    /// Connects for queries: holders have a label, queries have none.
    pub async fn connect(&self) -> Result<Client, CliError> {
        self.connect_as(Some("")).await
    }

    /// Connects as a holder with this label.
    pub async fn connect_as(&self, label: Option<&str>) -> Result<Client, CliError> {
        self.connect_with(label.into_iter().fold(self.builder()?, ClientBuilder::label)).await
    }

    /// Connects with these settings. With `--wait-for-servers` it waits, and says so once, if no
    /// server can be used. The nodes of a cluster that is being made look like a wrong command
    /// line: the line about these comes later, since a wrong command line fails again at once.
    pub async fn connect_with(&self, builder: ClientBuilder) -> Result<Client, CliError> {
        let began = Instant::now();
        let failure = match builder.clone().connect().await.map_err(CliError::from) {
            Err(failure) if failure.is_transient() || failure.is_usage() => failure,
            connected => return connected,
        };
        let took = began.elapsed();
        let left = || self.wait_for_servers.unwrap_or_default().saturating_sub(began.elapsed());
        if left().is_zero() {
            return Err(failure);
        }
        let mut waiting = pin!(builder.wait_for_servers(left()).connect());
        if failure.is_usage()
            && let Ok(connected) = timeout(USAGE_ERROR_DELAY.max(2 * took), &mut waiting).await
        {
            return Ok(connected?);
        }
        let left = left();
        let seconds = left.as_secs().saturating_add(u64::from(left.subsec_nanos() > 0));
        let seconds = format::duration(Duration::from_secs(seconds));
        print_error(&format!("{failure}; waiting up to {seconds}"));
        Ok(waiting.await?)
    }

    pub fn builder(&self) -> Result<ClientBuilder, CliError> {
        let mut settings = Client::builder().key_prefix(&self.prefix);
        settings = match self.sentinels()? {
            Some(url) => {
                let mut sentinel: SentinelConfig = url.parse()?;
                if let Some((user, password)) = self.sentinel_credentials()? {
                    sentinel = sentinel.credentials(match user {
                        Some(user) => Credentials::new(user, password),
                        None => Credentials::password(password),
                    });
                }
                settings.sentinel(sentinel)
            }
            None => settings.urls(self.urls()?),
        };
        if let Some((user, password)) = self.credentials()? {
            settings = settings.credentials(Credentials::new(user, password));
        }
        let certificates = self.certificates()?;
        if let Some(roots) = certificates.roots {
            settings = settings.tls_root_certificates(roots);
        }
        if let Some((certificate, key)) = certificates.client {
            settings = settings.tls_client_identity(certificate, key);
        }
        Ok(settings)
    }

    /// Fails for invalid options, such as a malformed URL. The library checks the options before it
    /// waits for a server.
    pub fn check(&self) -> Result<(), CliError> {
        match self.connect().now_or_never() {
            Some(Err(failure)) if failure.is_usage() => Err(failure),
            _ => Ok(()),
        }
    }

    /// Returns the options as environment variables for a command, so that the command uses the
    /// same servers. The command inherits passwords from the environment of this process.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(OsString::from);
        let text = |text: &Option<String>| text.as_ref().map(OsString::from);
        let options = [
            (args::URL, Some(self.urls.join(",").into())),
            (args::USER, text(&self.user)),
            (args::SENTINEL_USER, text(&self.sentinel_user)),
            (args::TLS_ROOTS, path(&self.tls_roots)),
            (args::TLS_CERT, path(&self.tls_cert)),
            (args::TLS_KEY, path(&self.tls_key)),
            (
                args::WAIT_FOR_SERVERS,
                self.wait_for_servers.map(|wait| format::duration(wait).into()),
            ),
            (args::PREFIX, Some(OsString::from(&self.prefix))),
        ];
        options.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// The URLs; at least one.
    pub fn urls(&self) -> Result<Vec<String>, CliError> {
        let named = self.urls.iter().flat_map(|urls| split(urls)).map(str::trim);
        let mut urls: Vec<String> = Vec::new();
        for url in named.filter(|url| !url.is_empty()) {
            match urls.last_mut().filter(|last| continues_sentinel_url(last)) {
                Some(last) => *last = format!("{last},{url}"),
                None => urls.push(with_scheme(url)),
            }
        }
        if urls.is_empty() {
            return Err(CliError::usage(
                "no server is named; use --redis redis://HOST:PORT or set RWLEASE_URL",
            ));
        }
        Ok(urls)
    }

    /// The URL of the sentinels, if sentinels are named in place of servers.
    pub fn sentinels(&self) -> Result<Option<String>, CliError> {
        let mut urls = self.urls()?;
        match (urls.iter().any(|url| is_sentinel_url(url)), urls.len()) {
            (false, _) => Ok(None),
            (true, 1) => Ok(urls.pop()),
            (true, _) => Err(CliError::usage(
                "both sentinels and other servers are named; use one URL, with all sentinels in it",
            )),
        }
    }

    /// Returns the user and the password for sentinels, if a password is set.
    pub fn sentinel_credentials(&self) -> Result<Option<(Option<String>, String)>, CliError> {
        match (std::env::var(SENTINEL_PASSWORD), &self.sentinel_user) {
            (Ok(password), user) => Ok(Some((user.clone(), password))),
            (Err(_), None) => Ok(None),
            (Err(_), Some(user)) => Err(CliError::usage(format!(
                "--sentinel-user {user} needs a password; set {SENTINEL_PASSWORD}"
            ))),
        }
    }

    /// Returns the user of `--user` and its password. A password without a user belongs to the user
    /// `default`, unless a URL has credentials.
    pub fn credentials(&self) -> Result<Option<(String, String)>, CliError> {
        match (std::env::var(PASSWORD), &self.user) {
            (Ok(password), Some(user)) => Ok(Some((user.clone(), password))),
            (Err(_), Some(user)) => {
                Err(CliError::usage(format!("--user {user} needs a password; set {PASSWORD}")))
            }
            (Ok(password), None) if !self.urls()?.iter().any(|url| has_credentials(url)) => {
                Ok(Some(("default".to_owned(), password)))
            }
            (_, None) => Ok(None),
        }
    }

    pub fn certificates(&self) -> Result<Certificates, CliError> {
        let roots = self.tls_roots.as_deref().map(read_roots).transpose()?;
        let client = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
            _ => None,
        };
        Ok(Certificates { roots, client })
    }
}

/// Splits a list of URLs at its commas, except at commas in a user or a password.
fn split(urls: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = urls;
    while let Some(comma) = next_comma(rest) {
        parts.push(&rest[..comma]);
        rest = &rest[comma + 1..];
    }
    parts.push(rest);
    parts
}

/// The comma that ends the first URL. Credentials begin after `://` and end at the last `@` before
/// the next URL that has a scheme.
fn next_comma(urls: &str) -> Option<usize> {
    let start = urls.find("://").map_or(0, |colon| colon + 3);
    let first = urls.find(',')?;
    if first < start {
        return Some(first);
    }
    let end = urls[start..].find("://").map_or(urls.len(), |colon| start + colon);
    let credentials = urls[start..end].rfind('@').map_or(start, |at| start + at);
    urls[credentials..].find(',').map(|comma| credentials + comma)
}

/// Accepts a bare `HOST:PORT`.
fn with_scheme(url: &str) -> String {
    if url.contains("://") { url.to_owned() } else { format!("redis://{url}") }
}

/// Whether there is an `@` before the path.
fn has_credentials(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('/').next().is_some_and(|authority| authority.contains('@'))
}

fn is_sentinel_url(url: &str) -> bool {
    url.contains(SENTINEL_SCHEME)
}

/// Commas separate URLs, and also the sentinels in one URL: that URL continues until it has the
/// name of the master.
fn continues_sentinel_url(url: &str) -> bool {
    url.split_once(SENTINEL_SCHEME).is_some_and(|(_, rest)| !rest.contains('/'))
}

/// Without a certificate in the file, the client would trust no server.
fn read_roots(file: &Path) -> Result<Vec<u8>, CliError> {
    let pem = read(file)?;
    match CertificateDer::pem_slice_iter(&pem).next() {
        Some(Ok(_)) => Ok(pem),
        _ => Err(CliError::usage(format!(
            "no certificate in {}; use a file of root certificates in PEM",
            file.display()
        ))),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, CliError> {
    std::fs::read(file).map_err(|error| {
        CliError::new(SYSTEM, format!("{}: {error}; use a file that can be read", file.display()))
    })
}

#[cfg(test)]
mod tests;
