//! Help, completions and manual pages.

use crate::support::Result;
use crate::tool::Tool;

const COMMANDS: [&str; 9] =
    ["run", "status", "list", "slot", "revoke", "release", "doctor", "completions", "man"];

#[tokio::test]
async fn help_has_examples_and_exit_statuses() -> Result {
    let tool = Tool::new([""]);
    let help = tool.run(&["--help"]).await?;
    assert_eq!((help.status, help.err.as_str()), (Some(0), ""));
    assert!(!help.out.contains("RWLEASE_USER="), "values of the environment are private");
    for word in COMMANDS.iter().chain(&["RWLEASE_URL", "Examples:", "Exit status:"]) {
        assert!(help.out.contains(word), "{word}");
    }
    for command in COMMANDS {
        let help = tool.run(&[command, "--help"]).await?;
        assert_eq!(help.status, Some(0));
        assert!(help.out.contains("Example"), "{command}: {}", help.out);
        assert!(!help.out.contains('\x1b'), "colour is for terminals");
    }
    let help = tool.run(&["run", "--help"]).await?;
    for word in ["RWLEASE_TOKEN is the", "RWLEASE_ID", "SIGKILL if"] {
        assert!(help.out.contains(word), "{word}: {}", help.out);
    }
    let none = tool.run(&[]).await?;
    assert_eq!((none.status, none.out.as_str()), (Some(64), ""));
    assert!(none.err.contains("Usage: rwlease"), "{none:?}");
    let version = tool.run(&["--version"]).await?;
    assert_eq!(version.out, format!("rwlease {}\n", env!("CARGO_PKG_VERSION")));
    Ok(())
}

#[tokio::test]
async fn completions_of_each_shell_name_the_commands() -> Result {
    let tool = Tool::new([""]);
    for (shell, word) in
        [("bash", "complete -F"), ("zsh", "#compdef rwlease"), ("fish", "complete -c rwlease")]
    {
        let ran = tool.run(&["completions", shell]).await?;
        assert_eq!(ran.status, Some(0));
        assert!(ran.out.contains(word) && ran.out.contains("doctor"), "{shell}");
    }
    Ok(())
}

#[tokio::test]
async fn man_pages_describe_commands_and_exit_statuses() -> Result {
    let tool = Tool::new([""]);
    let page = tool.run(&["man"]).await?.out;
    for word in [".TH rwlease", "Exit status", "doctor"] {
        assert!(page.contains(word), "{word}: {page}");
    }
    let page = tool.run(&["man", "run"]).await?.out;
    for word in ["rwlease\\-run", "RWLEASE_TOKEN is the", "grace", "<NAME> \\-\\- <COMMAND>..."] {
        assert!(page.contains(word), "{word}: {page}");
    }
    Ok(())
}
