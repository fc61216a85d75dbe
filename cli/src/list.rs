use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use futures::{StreamExt, stream};
use rwlease::{Client, ErrorKind};

use crate::args::{ListArgs, ServerArgs};
use crate::exit::{CliError, ExitStatus, UNAVAILABLE, WRONG_TYPE, error_chain};
use crate::format;
use crate::messages::print_error;
use crate::status::{AnyStatus, Extent};

/// How long a master may be silent.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);

/// How many locks are queried at the same time.
const MAX_QUERIES: usize = 64;

/// The columns SINCE, LEFT and WAIT.
const ALIGNED_RIGHT: &[usize] = &[2, 3, 4];

pub async fn list(servers: &ServerArgs, args: ListArgs) -> Result<ExitStatus, CliError> {
    let settings = servers.builder()?.label("").call_timeout(REPLY_TIMEOUT);
    let locks = servers.connect_with(settings).await?;
    let mut report = Report::default();
    let names = report.names(&locks, &args.start).await?;
    let mut queries = stream::iter(&names)
        .map(async |name| (name, AnyStatus::query(&locks, name, Extent::FirstPage).await))
        .buffered(MAX_QUERIES);
    let mut found = Vec::new();
    while let Some((name, status)) = queries.next().await {
        match status {
            Ok(status) => found.push(status),
            // A hash of another program, perhaps with a name that no lock has.
            Err(error)
                if matches!(error.kind(), ErrorKind::WrongType | ErrorKind::InvalidInput) => {}
            Err(error) if error.kind() == ErrorKind::UnsupportedVersion => {
                report.fail(WRONG_TYPE, error_chain(&error));
            }
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                report.fail(UNAVAILABLE, format!("`{name}` is not shown: {}", error_chain(&error)));
            }
            Err(error) => return Err(error.into()),
        }
    }
    found.retain(|lock| (!args.held || lock.is_held()) && (!args.waiting || lock.has_waiters()));
    let mut out = anstream::stdout().lock();
    if args.json {
        found.iter().try_for_each(|lock| writeln!(out, "{}", lock.to_json()))?;
    } else if !found.is_empty() {
        let rows: Vec<[String; 6]> = found.iter().map(AnyStatus::row).collect();
        let header = ["NAME", "HELD", "SINCE", "LEFT", "WAIT", "WHO"];
        format::write_table(&mut out, header, ALIGNED_RIGHT, &rows)?;
    }
    out.flush()?;
    Ok(report.exit)
}

/// What the list lacks.
#[derive(Default)]
struct Report {
    exit: ExitStatus,
}

impl Report {
    /// The names on all masters that reply.
    async fn names(&mut self, locks: &Client, start: &str) -> Result<BTreeSet<String>, CliError> {
        let mut names = BTreeSet::new();
        let mut scan = locks.scan(start);
        loop {
            match scan.next_page().await {
                Ok(Some(page)) => names.extend(page),
                Ok(None) => return Ok(names),
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    let Some(master) = scan.skip_master() else { return Err(error.into()) };
                    let why = error_chain(&error);
                    self.fail(UNAVAILABLE, format!("the locks on {master} are not shown: {why}"));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A master that is away outweighs a lock that cannot be read.
    fn fail(&mut self, status: u8, message: String) {
        print_error(&message);
        self.exit = ExitStatus(self.exit.0.max(status));
    }
}
