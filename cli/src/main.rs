//! `rwlease`: the locks for the shell. Each command has a file. `args.rs` has their arguments, and
//! `exit.rs` their exit statuses.

#[cfg(not(unix))]
compile_error!("the command `rwlease` needs Unix: process groups and signals");

mod args;
mod connect;
mod doctor;
mod exit;
mod format;
mod list;
mod lock_kind;
mod manual;
mod messages;
mod revoke;
mod run;
mod scripts;
mod signals;
mod slot;
mod status;

use std::process::ExitCode;

use args::{Args, CliCommand};
use exit::{CliError, ExitStatus};

fn main() -> ExitCode {
    if let Some(arguments) = run::launch::arguments() {
        return run::launch::become_command(arguments);
    }
    let args = match args::parse() {
        Ok(args) => args,
        Err(code) => return code,
    };
    signals::unblock_children();
    // One thread: there is one lock to keep, and lending the terminal changes the signal mask of
    // the thread.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(perform(args));
            // A name that is still being resolved must not keep this process.
            runtime.shutdown_background();
            outcome
        }
        Err(error) => Err(error.into()),
    };
    let exit = match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(),
    };
    messages::finish();
    exit
}

async fn perform(args: Args) -> Result<ExitStatus, CliError> {
    let servers = args.servers;
    match args.command {
        CliCommand::Run(args) => run::run(&servers, args).await,
        CliCommand::Status(args) => status::status(&servers, args).await,
        CliCommand::List(args) => list::list(&servers, args).await,
        CliCommand::Slot(args) => slot::slot(&servers.prefix, &args.names),
        CliCommand::Scripts(args) => scripts::write(&args.folder),
        CliCommand::Revoke(args) => revoke::revoke(&servers, &args.name).await,
        CliCommand::Release(args) => revoke::release(&servers, &args.name).await,
        CliCommand::Doctor => doctor::doctor(&servers).await,
        CliCommand::Completions(args) => manual::completions(args.shell),
        CliCommand::Man(args) => manual::man(args.command.as_deref()),
    }
}
