use std::ffi::OsString;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{ArgGroup, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use rwlease::Fsync;

use crate::exit::{self, CliError};

/// Distributed read/write locks on Redis Cluster, for the shell
///
/// Runs commands under locks, shows the holders and the waiters of a lock, and checks whether the
/// servers are fit for locks. The locks are those of the library `rwlease`: leases with fencing
/// tokens, granted in a fair order.
#[derive(Parser)]
#[command(name = "rwlease", version, after_help = EXAMPLES)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", exit::full_table()))]
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
  rwlease status backup --watch                   holders and waiters
  rwlease doctor                                  check the servers";

/// Ends a help text: examples, and the exit statuses of the command.
fn help_end(examples: &str, statuses: &[u8]) -> String {
    format!("{examples}\n\n{}", exit::table(statuses))
}

pub const URL: &str = "RWLEASE_URL";
pub const USER: &str = "RWLEASE_USER";
pub const SENTINEL_USER: &str = "RWLEASE_SENTINEL_USER";
pub const TLS_ROOTS: &str = "RWLEASE_TLS_ROOTS";
pub const TLS_CERT: &str = "RWLEASE_TLS_CERT";
pub const TLS_KEY: &str = "RWLEASE_TLS_KEY";
pub const WAIT_FOR_SERVERS: &str = "RWLEASE_WAIT_FOR_SERVERS";
pub const PREFIX: &str = "RWLEASE_PREFIX";
const MIN_REPLICAS: &str = "RWLEASE_MIN_REPLICAS";
const FSYNC: &str = "RWLEASE_FSYNC";

/// The servers, and the user to connect as. (`environment` passes all options to a command.)
#[derive(clap::Args)]
#[command(next_help_heading = "Servers")]
pub struct ServerArgs {
    /// Servers: `redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`, or `rediss://` for TLS; several
    /// times, or separated by commas. One node of a cluster is enough if it answers. For a server
    /// with sentinels:
    /// `redis+sentinel://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/MASTER[/DATABASE]`
    #[arg(long = "redis", value_name = "URL", env = URL, global = true)]
    #[arg(num_args = 1, hide_env_values = true)]
    pub urls: Vec<String>,

    /// User to connect as, instead of the user in the URL. RWLEASE_PASSWORD is the password of this
    /// user or, without this option, of the user `default`
    #[arg(long, value_name = "NAME", env = USER, hide_env_values = true, global = true)]
    pub user: Option<String>,

    /// User to connect to sentinels as. RWLEASE_SENTINEL_PASSWORD is the password, and can be set
    /// without a user
    #[arg(long, value_name = "NAME", env = SENTINEL_USER, hide_env_values = true, global = true)]
    pub sentinel_user: Option<String>,

    /// Root certificates (PEM) to trust instead of the system's
    #[arg(long, value_name = "FILE", env = TLS_ROOTS, hide_env_values = true, global = true)]
    pub tls_roots: Option<PathBuf>,

    /// Client certificate (PEM)
    #[arg(long, value_name = "FILE", env = TLS_CERT, hide_env_values = true, global = true)]
    #[arg(requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// Key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", env = TLS_KEY, hide_env_values = true, global = true)]
    #[arg(requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Maximum time to wait for servers that start later, such as 60s [default: do not wait]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, env = WAIT_FOR_SERVERS)]
    #[arg(hide_env_values = true, global = true)]
    pub wait_for_servers: Option<Duration>,

    /// Prefix of the keys of locks. All clients of a lock must use the same prefix
    #[arg(long, value_name = "PREFIX", env = PREFIX, hide_env_values = true, global = true)]
    #[arg(default_value = "rwlease:")]
    pub prefix: String,
}

#[derive(Subcommand)]
pub enum CliCommand {
    /// Run a command under a lock
    ///
    /// Waits for the lock, runs the command, renews the lease while the command runs, and releases
    /// the lock. In the environment of the command, RWLEASE_TOKEN is the fencing token, and
    /// RWLEASE_ID is the id of this holder in `rwlease status`.
    ///
    /// The command runs in its own process group, and `run` forwards signals to the group. If the
    /// lease cannot be renewed, the group gets SIGTERM, and SIGKILL if it is still running after
    /// the grace period. Both come before the servers can grant the lock to the next waiter, while
    /// the servers keep the lease. If they no longer have it (a failover, a restart, a forced
    /// release, a deleted or evicted key), `run` stops the command at its next renewal at the
    /// latest, a third of the lease later. Another client may hold the lock by then. A command that
    /// runs as another user cannot be stopped; `run` prints a warning.
    Run(RunArgs),
    /// Show the holders and the waiters of a lock
    Status(StatusArgs),
    /// List the locks that exist on the servers, sorted by their names
    ///
    /// Shows locks and semaphores, who holds them and how many wait. If a master does not reply,
    /// its locks are missing: a line on standard error names it, and the exit status is 69.
    List(ListArgs),
    /// Show the hash slots of locks, without a server
    Slot(SlotArgs),
    /// Write the Lua scripts into a folder, for a client in another language
    ///
    /// Prints the SHA-1 digest of each script, which EVALSHA takes, and its file. Files that exist
    /// are replaced.
    Scripts(ScriptsArgs),
    /// Prevent the holders of a lock from renewing it
    ///
    /// The lock becomes free when the leases end. Two clients that exclude each other never hold it
    /// together. `rwlease run` stops its command before its lease ends. If nobody holds the lock,
    /// nothing changes, and the exit status is 0.
    #[command(after_help = help_end("Example:\n  rwlease revoke backup", exit::OF_LOCK))]
    Revoke(LockArgs),
    /// Free a lock at once, although its holders are not stopped
    ///
    /// The old holders continue to work until they learn that the lock is lost, while other clients
    /// already hold it. Holders that waited for the lock, or cache it, usually learn it at once;
    /// other holders learn it at their next renewal. Until then, only a store that compares fencing
    /// tokens is safe. Prefer `rwlease revoke`, which waits until the leases end. If nobody holds
    /// the lock, nothing changes, and the exit status is 0.
    #[command(after_help = help_end("Example:\n  rwlease release --force backup", exit::OF_LOCK))]
    Release(ReleaseArgs),
    /// Check whether the servers are fit for locks
    ///
    /// Checks the state of the cluster, versions, the user's rights, the memory policy, clocks and
    /// replicas, and takes a lock on each master for a moment. Warnings do not change the exit
    /// status.
    #[command(after_help = help_end(
        "Example:\n  rwlease doctor --redis redis://127.0.0.1:7000",
        exit::OF_DOCTOR,
    ))]
    Doctor,
    /// Print a completion script for a shell
    #[command(after_help = help_end(
        "Example:\n  rwlease completions bash > /etc/bash_completion.d/rwlease",
        exit::OF_LOCAL,
    ))]
    Completions(CompletionsArgs),
    /// Print a manual page
    #[command(after_help = help_end("Example:\n  rwlease man run | man -l -", exit::OF_LOCAL))]
    Man(ManArgs),
}

#[derive(clap::Args)]
#[command(group = ArgGroup::new("mode"))]
#[command(after_help = format!("{RUN_EXAMPLES}\n\n{}", exit::run_table()))]
pub struct RunArgs {
    /// Name of the lock. Put a name that begins with `-` between two `--`
    pub name: String,

    /// Share the lock with other readers
    #[arg(long, group = "mode")]
    pub read: bool,

    /// Hold the lock exclusively (the default)
    #[arg(long, group = "mode")]
    pub write: bool,

    /// Transfer the held lock to the command, which finds the transfer in RWLEASE_TRANSFER and must
    /// accept it before the lease ends. This process does not renew or release the lock
    #[arg(long, conflicts_with = "permits")]
    pub transfer: bool,

    /// Accept the transfer in RWLEASE_TRANSFER instead of waiting for the lock
    #[arg(long, conflicts_with = "mode")]
    pub accept_transfer: bool,

    /// Hold N permits of a semaphore that has LIMIT permits, such as 2/10
    #[arg(long, group = "mode", value_name = "N/LIMIT", value_parser = permits)]
    pub permits: Option<PermitSpec>,

    /// Maximum time to wait for the lock, such as 30s. 0s does not wait for other holders [default:
    /// no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub timeout: Option<Duration>,

    /// Time after which the servers free the lock if this process does not renew it
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "30s")]
    pub lease: Duration,

    /// Minimum time for which the lock stays taken, counted from the grant, also if the command or
    /// this process ends before. For a job that several machines start once per period
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    #[arg(conflicts_with_all = ["read", "permits", "transfer", "accept_transfer"])]
    pub at_least: Option<Duration>,

    /// Exit with 0 and without a message if others hold the lock. Without --timeout, do not wait
    /// for other holders
    #[arg(long, conflicts_with = "accept_transfer")]
    pub ok_if_held: bool,

    /// Time from SIGTERM to SIGKILL if the lease cannot be renewed, at most a third of the lease
    /// [default: a quarter of the lease, at most 10s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub grace: Option<Duration>,

    /// Minimum number of replicas that must confirm the grant and each renewal
    #[arg(long, value_name = "N", env = MIN_REPLICAS, hide_env_values = true, default_value_t = 0)]
    pub min_replicas: u32,

    /// Servers that must have the grant and each renewal on disk. `replicas` and `all` mean the
    /// replicas of --min-replicas
    #[arg(long, value_name = "SERVERS", env = FSYNC, hide_env_values = true)]
    #[arg(default_value = "none", value_parser = fsync_parser())]
    pub fsync: Fsync,

    /// Who holds the lock, in one word, for `rwlease status` [default: the host and the process id]
    #[arg(long, value_name = "LABEL")]
    pub label: Option<String>,

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
  rwlease run --timeout 0s nightly -- ./report       do not wait for other holders
  rwlease run --at-least 50s --ok-if-held minutely -- ./job   once a minute, on one machine
  rwlease run --permits 2/10 uploads -- ./upload     two of ten permits on all machines
  rwlease run --read --lease 10s catalog -- sh -c 'publish --fence \"$RWLEASE_TOKEN\"'
  rwlease run --transfer backup -- sh -c 'rwlease run --accept-transfer backup -- ./dump &'";

#[derive(clap::Args)]
#[command(after_help = help_end(
    "Examples:\n  rwlease status backup\n  rwlease status backup --watch --json | jq .waiter_count",
    exit::OF_LOCK,
))]
pub struct StatusArgs {
    /// Name of the lock
    pub name: String,

    /// Repeat until interrupted
    #[arg(long)]
    pub watch: bool,

    /// Time between two queries
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1s", requires = "watch")]
    pub every: Duration,

    /// Print one JSON object a query, with times in seconds
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
#[command(after_help = help_end(
    "Examples:\n  rwlease list order:\n  rwlease list --waiting --json | jq -r .name",
    exit::OF_LOCK,
))]
pub struct ListArgs {
    /// Beginning of the names
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub start: String,

    /// Only locks that are held
    #[arg(long)]
    pub held: bool,

    /// Only locks that somebody waits for
    #[arg(long)]
    pub waiting: bool,

    /// Print one JSON object a lock, as `rwlease status --json`, with at most 100 holders and 100
    /// waiters
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
#[command(after_help = help_end(
    "Example:\n  rwlease slot 'order:{42}' 'invoice:{42}'",
    exit::OF_LOCAL,
))]
pub struct SlotArgs {
    /// Names of the locks
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
}

#[derive(clap::Args)]
#[command(after_help = help_end("Example:\n  rwlease scripts lua", exit::OF_LOCAL))]
pub struct ScriptsArgs {
    /// Folder for the files; made if it is missing
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

#[derive(clap::Args)]
pub struct LockArgs {
    /// Name of the lock
    pub name: String,
}

#[derive(clap::Args)]
pub struct ReleaseArgs {
    /// Name of the lock
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

fn fsync_parser() -> impl TypedValueParser<Value = Fsync> {
    PossibleValuesParser::new(["none", "master", "replicas", "all"]).map(|servers| {
        match servers.as_str() {
            "master" => Fsync::Master,
            "replicas" => Fsync::Replicas,
            "all" => Fsync::All,
            _ => Fsync::None,
        }
    })
}

/// Parses the command line. Returns an exit status if help or the version was printed, or if the
/// command line is wrong.
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

/// Parses `run ... -- NAME -- COMMAND`, which is for names that begin with `-`. Returns `None` if
/// the command line has another form.
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

/// Joins the lines of a parser error: the complaint, and the advice if there is one.
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
        0 => Err(format!("the number of permits must be at least 1; {advice}")),
        _ if count > limit => {
            Err(format!("{count} permits are more than the limit {limit}; {advice}"))
        }
        _ => Ok(PermitSpec { count, limit }),
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write it as 1500ms, 30s or 5m"))
}
