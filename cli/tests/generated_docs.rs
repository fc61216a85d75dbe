//! Help, completions and manual pages.

use crate::fixture::Tool;
use testkit::{Result, TempFolder};

const COMMANDS: [&str; 10] = [
    "run",
    "status",
    "list",
    "slot",
    "scripts",
    "revoke",
    "release",
    "doctor",
    "completions",
    "man",
];

#[tokio::test]
async fn help_has_examples_and_exit_statuses() -> Result {
    let tool = Tool::new([""]);
    let help = tool.run(&["--help"]).await?.expect_err_lines(0, 0);
    assert!(!help.out.contains("RWLEASE_USER="), "values of the environment are private");
    for word in COMMANDS.iter().chain(&["RWLEASE_URL", "Examples:", "Exit status:"]) {
        assert!(help.out.contains(word), "{word}");
    }
    for command in COMMANDS {
        let help = tool.exits(&[command, "--help"], 0).await?;
        for word in ["Example", "Exit status:\n", "\n       64  the command line is wrong\n"] {
            assert!(help.out.contains(word), "{command}: {word}: {}", help.out);
        }
        assert!(!help.out.contains('\x1b'), "colour is for terminals");
    }
    let help = tool.run(&["run", "--help"]).await?;
    help.expect_out(&["RWLEASE_TOKEN is the", "RWLEASE_ID", "SIGKILL if", "\n  128 + n  "]);
    let none = tool.run(&[]).await?.expect_output(64, "");
    assert!(none.err.contains("Usage: rwlease"), "{none:?}");
    let version = tool.run(&["--version"]).await?;
    assert_eq!(version.out, format!("rwlease {}\n", env!("CARGO_PKG_VERSION")));
    Ok(())
}

#[tokio::test]
async fn documentation_lists_the_exit_statuses_of_the_help() -> Result {
    let help = Tool::new([""]).run(&["--help"]).await?.out;
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md"))?;
    let rows = help.split("Exit status:\n").nth(1).unwrap_or_default().lines();
    let statuses: Vec<(&str, &str)> =
        rows.filter_map(|row| row.trim_start().split_once("  ")).collect();
    assert_eq!(statuses.len(), 12, "{help}");
    for (status, meaning) in &statuses[..11] {
        assert!(page.contains(&format!("| {status} | {meaning} |")), "{status}: {meaning}");
    }
    assert!(page.contains(&format!("| {} |", statuses[11].0)));
    Ok(())
}

#[tokio::test]
async fn scripts_writes_each_script_under_its_digest() -> Result {
    let parent = TempFolder::new("scripts")?;
    let folder = parent.join("new");
    let ran =
        Tool::new([""]).run(&["scripts", &folder.to_string_lossy()]).await?.expect_err_lines(0, 0);
    let scripts: Vec<_> = rwlease::scripts().collect();
    assert_eq!(ran.out.lines().count(), scripts.len());
    for script in scripts {
        let file = folder.join(format!("{}.lua", script.name()));
        assert_eq!(std::fs::read_to_string(&file)?, script.text());
        let line = format!("{}  {}", script.digest(), file.display());
        assert!(ran.out.lines().any(|written| written == line), "{line}");
    }
    let refused = Tool::new([""]).run(&["scripts", "/dev/null/lua"]).await?;
    refused.expect_err(&["cannot write /dev/null/lua/acquire_read.lua"]);
    Ok(())
}

#[tokio::test]
async fn completions_of_each_shell_name_the_commands() -> Result {
    let tool = Tool::new([""]);
    for (shell, word) in
        [("bash", "complete -F"), ("zsh", "#compdef rwlease"), ("fish", "complete -c rwlease")]
    {
        let ran = tool.exits(&["completions", shell], 0).await?;
        assert!(ran.out.contains(word) && ran.out.contains("doctor"), "{shell}");
    }
    Ok(())
}

#[tokio::test]
async fn man_pages_describe_commands_and_exit_statuses() -> Result {
    let tool = Tool::new([""]);
    let page = tool.run(&["man"]).await?.out;
    for word in [".TH rwlease", ".SH EXIT STATUS\n.nf\n", "doctor"] {
        assert!(page.contains(word), "{word}: {page}");
    }
    let page = tool.run(&["man", "run"]).await?.out;
    for word in [
        "rwlease\\-run",
        "RWLEASE_TOKEN is the",
        "grace",
        "<NAME> \\-\\- <COMMAND>...",
        ".SH EXAMPLES\n.nf\n  rwlease run backup \\-\\- pg_dump",
    ] {
        assert!(page.contains(word), "{word}: {page}");
    }
    for command in COMMANDS {
        let page = tool.run(&["man", command]).await?.out;
        assert!(page.contains(".SH EXIT STATUS\n"), "{command}: {page}");
        // A hyphen that is not escaped is typeset, and two of them are not `--` any more.
        let is_plain = page.lines().any(|line| !line.starts_with('.') && line.contains("--"));
        assert!(!is_plain, "{command}: {page}");
    }
    Ok(())
}
