//! The command line.

use std::ffi::OsString;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{ArgGroup, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

use crate::exit::{self, CliError};

/// Distributed read/write locks on Redis Cluster, for the shell
///
/// Takes locks, shows who holds them and who waits, and looks for what would break them. The locks
/// are those of the library `rwlease`: leases with fencing tokens, granted in a fair order.
#[derive(Parser)]
#[command(name = "rwlease", version, after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", exit::TABLE))]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub struct Args {
    #[command(flatten)]
    pub servers: ServerArgs,
    #[command(subcommand)]
    pub command: CliCommand,
}

const EXAMPLES: &str = "\
Examples:
  export RWLEASE_URL=redis://127.0.0.1:7000       one node of the cluster is enough
  rwlease run backup -- pg_dump -f all.sql        one at a time, on all machines
  rwlease status backup --watch                   who holds it, who waits
  rwlease doctor                                  what would break a lock here?";

pub const URL: &str = "RWLEASE_URL";
pub const USER: &str = "RWLEASE_USER";
pub const SENTINEL_USER: &str = "RWLEASE_SENTINEL_USER";
pub const TLS_ROOTS: &str = "RWLEASE_TLS_ROOTS";
pub const TLS_CERT: &str = "RWLEASE_TLS_CERT";
pub const TLS_KEY: &str = "RWLEASE_TLS_KEY";
pub const PREFIX: &str = "RWLEASE_PREFIX";

/// Which servers to use, and as which user to connect. (`environment` passes all of it on to a
/// command.)
#[derive(clap::Args)]
#[command(next_help_heading = "Servers")]
pub struct ServerArgs {
    /// Servers: `redis://[[USER]:PASSWORD@]HOST[:PORT]`, or `rediss://` for TLS; one node of a
    /// cluster is enough. Or the sentinels of a server:
    /// `redis+sentinel://[[USER]:PASSWORD@]HOST[:PORT],HOST[:PORT]/MASTER`
    #[arg(long = "redis", value_name = "URL", env = URL, global = true)]
    #[arg(num_args = 1, hide_env_values = true)]
    pub urls: Vec<String>,

    /// User to connect as, in place of that in the URL; RWLEASE_PASSWORD has its password, and
    /// without a user, that of the user `default`
    #[arg(long, value_name = "NAME", env = USER, hide_env_values = true, global = true)]
    pub user: Option<String>,

    /// User to connect to sentinels as; RWLEASE_SENTINEL_PASSWORD has its password, and can be set
    /// without a user
    #[arg(long, value_name = "NAME", env = SENTINEL_USER, hide_env_values = true, global = true)]
    pub sentinel_user: Option<String>,

    /// Root certificates (PEM) to trust instead of the system's
    #[arg(long, value_name = "FILE", env = TLS_ROOTS, hide_env_values = true, global = true)]
    pub tls_roots: Option<PathBuf>,

    /// The client's own certificate (PEM)
    #[arg(long, value_name = "FILE", env = TLS_CERT, hide_env_values = true, global = true)]
    #[arg(requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// The key of the client's own certificate (PEM)
    #[arg(long, value_name = "FILE", env = TLS_KEY, hide_env_values = true, global = true)]
    #[arg(requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Goes before a lock's name in its key; all users of the lock need the same prefix
    #[arg(long, value_name = "PREFIX", env = PREFIX, hide_env_values = true, global = true)]
    #[arg(default_value = "rwlease:")]
    pub prefix: String,
}

#[derive(Subcommand)]
pub enum CliCommand {
    /// Run a command under a lock
    ///
    /// Ends with the command's exit status. In the command's environment, RWLEASE_TOKEN is the
    /// fencing token, and RWLEASE_ID the id by which `rwlease status` names this holder.
    ///
    /// The command runs in its own process group, and signals are passed on to it. When the lease
    /// cannot be renewed, the group gets SIGTERM, and SIGKILL if it is still running after the
    /// grace. Both come before the servers can grant the lock to the next waiter. A command that
    /// runs as another user cannot be stopped; `run` says so.
    Run(RunArgs),
    /// Show who holds a lock and who waits for it
    Status(StatusArgs),
    /// List the locks that the servers know
    List(ListArgs),
    /// Show the slots of locks, without a call to a server
    Slot(SlotArgs),
    /// Prevent the holders of a lock from renewing it
    ///
    /// The lock is free when their leases end, and is never held by two that exclude each other. A
    /// command that `rwlease run` started is stopped before that.
    #[command(after_help = "Example:\n  rwlease revoke backup")]
    Revoke(LockArgs),
    /// Free a lock at once, although its holders are not stopped
    ///
    /// The old holders believe that they hold the lock until they learn otherwise, while others
    /// already hold it. Holders that waited for the lock, or cache it, usually learn it at once;
    /// the others learn it at their next renewal. Until then, only a store that compares fencing
    /// tokens is safe. Prefer `rwlease revoke`, which waits for the leases to end.
    #[command(after_help = "Example:\n  rwlease release --force backup")]
    Release(ReleaseArgs),
    /// Look for what would break a lock here
    ///
    /// Checks the state of the cluster, versions, the user's rights, the memory policy, clocks and
    /// replicas, and takes a lock on each master for a moment. The exit status is 1 if something is
    /// wrong.
    #[command(after_help = "Example:\n  rwlease doctor --redis redis://127.0.0.1:7000")]
    Doctor,
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  rwlease completions bash > /etc/bash_completion.d/rwlease")]
    Completions(CompletionsArgs),
    /// Print a manual page
    #[command(after_help = "Example:\n  rwlease man run | man -l -")]
    Man(ManArgs),
}

#[derive(clap::Args)]
#[command(group = ArgGroup::new("mode"), after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    /// The lock; a name that begins with `-` goes between two `--`
    pub name: String,

    /// Hold the lock together with other readers
    #[arg(long, group = "mode")]
    pub read: bool,

    /// Hold the lock alone (the default)
    #[arg(long, group = "mode")]
    pub write: bool,

    /// Hand the held lock on to the command, by a ticket in RWLEASE_TICKET. The command must take
    /// the lock up before the lease ends; this process neither renews nor releases it
    #[arg(long, conflicts_with = "permits")]
    pub hand_on: bool,

    /// Take up the lock of the ticket in RWLEASE_TICKET, instead of waiting for the lock
    #[arg(long, conflicts_with = "mode")]
    pub take_up: bool,

    /// Hold N permits of a semaphore that has LIMIT permits, such as 2/10
    #[arg(long, group = "mode", value_name = "N/LIMIT", value_parser = permits)]
    pub permits: Option<PermitSpec>,

    /// Longest time to wait for the lock, such as 30s; 0s does not wait for other holders [default:
    /// no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub timeout: Option<Duration>,

    /// How long the servers keep the lock if this process does not renew it
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "30s")]
    pub lease: Duration,

    /// Time from SIGTERM to SIGKILL when the lease is being lost, at most a third of the lease
    /// [default: a quarter of it, at most 10s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub grace: Option<Duration>,

    /// Number of replicas that must confirm the lock and each renewal
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub replicas: u32,

    /// Show nothing while waiting
    #[arg(long, short)]
    pub quiet: bool,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

const RUN_EXAMPLES: &str = "\
Examples:
  rwlease run backup -- pg_dump -f all.sql
  rwlease run --timeout 0s nightly -- ./report       do not wait if another holds it
  rwlease run --permits 2/10 uploads -- ./upload     two of ten permits on all machines
  rwlease run --read --lease 10s catalog -- sh -c 'publish --fence \"$RWLEASE_TOKEN\"'
  rwlease run --hand-on backup -- sh -c 'rwlease run --take-up backup -- ./dump &'";

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  rwlease status backup\n  rwlease status backup --watch --json | jq .waiters"
)]
pub struct StatusArgs {
    /// The lock
    pub name: String,

    /// Repeat until interrupted
    #[arg(long)]
    pub watch: bool,

    /// Time between two queries
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1s", requires = "watch")]
    pub every: Duration,

    /// Print one JSON object for each query
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  rwlease list order:")]
pub struct ListArgs {
    /// Beginning of the names
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub start: String,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  rwlease slot 'order:{42}' 'invoice:{42}'")]
pub struct SlotArgs {
    /// The locks
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
}

#[derive(clap::Args)]
pub struct LockArgs {
    /// The lock
    pub name: String,
}

#[derive(clap::Args)]
pub struct ReleaseArgs {
    /// The lock
    pub name: String,

    /// Required, because the holders are not stopped
    #[arg(long, required = true)]
    pub force: bool,
}

#[derive(clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

#[derive(clap::Args)]
pub struct ManArgs {
    /// Command whose page to print
    pub command: Option<String>,
}

/// The command line, or the exit status if there is nothing to do (help, version) or the line is
/// wrong.
pub fn parse() -> Result<Args, ExitCode> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let read = parse_words(&words).or_else(|error| match error.kind() {
        ErrorKind::MissingRequiredArgument => with_marked_name(words).unwrap_or(Err(error)),
        _ => Err(error),
    });
    read.map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            match error.print().and_then(|()| stdout().flush()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => CliError::from(error).report(),
            }
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = write!(anstream::stderr(), "{}", command().render_help().ansi());
            exit::USAGE.into()
        }
        _ => CliError::usage(single_line(&error)).report(),
    })
}

fn parse_words(words: &[OsString]) -> clap::error::Result<Args> {
    command().try_get_matches_from(words).and_then(|matches| Args::from_arg_matches(&matches))
}

/// Parses `run ... -- NAME -- COMMAND`, which is for names that begin with `-`. `None` if it is
/// something else.
fn with_marked_name(mut words: Vec<OsString>) -> Option<clap::error::Result<Args>> {
    let mark = words.iter().position(|word| word == "--")?;
    if words.get(mark + 2)? != "--" {
        return None;
    }
    let marked = words.remove(mark + 1).into_string().ok()?;
    words[mark] = "NAME".into();
    let mut args = parse_words(&words);
    if let Ok(Args { command: CliCommand::Run(RunArgs { name, .. }), .. }) = &mut args {
        *name = marked;
    }
    Some(args)
}

/// The parser, for generators.
pub fn command() -> clap::Command {
    Args::command()
}

/// Joins an error of the parser, which has several lines: the complaint, and its advice if it has
/// one.
fn single_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let complaint = text.split("\n\n").next().unwrap_or_default();
    let complaint = complaint.strip_prefix("error: ").unwrap_or(complaint);
    let after = |start| text.lines().find_map(|line| line.trim().strip_prefix(start));
    let advice = after("tip: ").or_else(|| after("Usage: "));
    let words = complaint.split_whitespace().collect::<Vec<_>>().join(" ");
    let advice = advice.unwrap_or("see `rwlease --help`");
    format!("{words}; {advice}")
}

/// Permits of a semaphore, and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitSpec {
    pub count: u32,
    pub limit: u32,
}

fn permits(text: &str) -> Result<PermitSpec, String> {
    let advice = "write it as 2/10: two permits of ten";
    let (count, limit) = text.split_once('/').ok_or(advice)?;
    let number = |text: &str| text.parse::<u32>().map_err(|error| format!("{error}; {advice}"));
    let (count, limit) = (number(count)?, number(limit)?);
    match count {
        0 => Err(format!("no permits; {advice}")),
        _ if count > limit => Err(format!("{count} are more than {limit}; {advice}")),
        _ => Ok(PermitSpec { count, limit }),
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write it as 1500ms, 30s or 5m"))
}
