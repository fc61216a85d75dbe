//! Deliberate faults in the scripts, as `tests/mutants/scripts.txt` lists them.

use std::path::Path;

/// One fault.
#[derive(Clone, Debug)]
pub(super) struct ScriptMutant {
    pub(super) name: String,
    pub(super) file: String,
    /// What it breaks.
    pub(super) invariant: String,
    old: String,
    new: String,
}

/// Whether the rules must be written without looking at this fault. This applies to a third of the
/// faults, by a hash (FNV-1a) of their names.
pub(super) fn is_held_out(name: &str) -> bool {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash % 3 == 0
}

pub(super) fn all() -> Vec<ScriptMutant> {
    let text = std::fs::read_to_string(root().join("tests/mutants/scripts.txt")).unwrap();
    text.split("\n\n").filter(|block| block.contains("file:")).map(ScriptMutant::read).collect()
}

pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

impl ScriptMutant {
    pub(super) fn new(file: &str, old: &str, new: &str) -> ScriptMutant {
        let (name, invariant) = (old.to_owned(), String::new());
        ScriptMutant { name, file: file.into(), invariant, old: old.into(), new: new.into() }
    }

    fn read(block: &str) -> ScriptMutant {
        let part = |name: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.strip_prefix(' ').unwrap_or("").replace("\\n", "\n")
        };
        let name = block.lines().filter_map(|line| line.strip_prefix("# ")).next_back();
        ScriptMutant {
            name: name.unwrap().to_owned(),
            file: part("file:"),
            invariant: part("invariant:"),
            old: part("old:"),
            new: part("new:"),
        }
    }

    /// The text of a file of the scripts with the fault in it.
    pub(super) fn plant(&self, file: &str, text: String) -> String {
        if self.file != format!("lua/{file}") {
            return text;
        }
        assert_eq!(text.matches(&self.old).count(), 1, "{}", self.name);
        text.replace(&self.old, &self.new)
    }
}
