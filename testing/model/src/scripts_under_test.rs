//! Runs scripts, as they ship or with a planted fault or small limits, once for each input.

use std::path::PathBuf;

use crate::client::ClientFault;
use crate::faults::{ScriptMutant, root};
use rwlease::testing::Scripts;

/// How the scripts, the clients or the rules differ from what ships.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScriptVariant<'a> {
    pub fault: Option<&'a ScriptMutant>,
    /// The fault of the clients.
    pub client: Option<ClientFault>,
    /// Only this rule is judged.
    pub only: Option<&'static str>,
    pub small_limits: bool,
}

/// Limits that few clients reach, in place of those that ship.
const SMALL_LIMITS: [(&str, &str, &str); 5] = [
    ("lib/constants.lua", "local MAX_GRANTS = 32 ", "local MAX_GRANTS = 2 "),
    ("lib/grant_budget.lua", "local MAX_READERS_CHECKED = 16 ", "local MAX_READERS_CHECKED = 1 "),
    (
        "lib/grant_budget.lua",
        "local MAX_READERS_CHECKED_UNBLOCKED = 2",
        "local MAX_READERS_CHECKED_UNBLOCKED = 1",
    ),
    ("lib/wait_queue.lua", "local MAX_SEARCH_STEPS = 16 ", "local MAX_SEARCH_STEPS = 1 "),
    ("lib/constants.lua", "local LISTPACK_READERS = 8 ", "local LISTPACK_READERS = 1 "),
];

impl ScriptVariant<'_> {
    /// From `lua/`, or from the folder that `RWLEASE_LUA` names. They are leaked, because a call
    /// borrows them forever.
    pub fn scripts(&self) -> &'static Scripts {
        let folder = std::env::var_os("RWLEASE_LUA").map(PathBuf::from);
        let folder = folder.unwrap_or_else(|| root().join("lua"));
        let read = |name: &str| {
            let text = std::fs::read_to_string(folder.join(name))?;
            Ok::<_, std::io::Error>(self.change(name, text).into())
        };
        Box::leak(Box::new(Scripts::assemble(read).unwrap()))
    }

    fn change(&self, file: &str, text: String) -> String {
        let text = match self.fault {
            Some(fault) => fault.plant(file, text),
            None => text,
        };
        let limits = SMALL_LIMITS.iter().filter(|(of, ..)| self.small_limits && *of == file);
        limits.fold(text, |text, (_, old, new)| text.replace(old, new))
    }
}

#[test]
fn small_limits_are_in_their_places() {
    for (file, old, new) in SMALL_LIMITS {
        let folder = root().join("lua");
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        assert_eq!((text.matches(old).count(), text.matches(new).count()), (1, 0), "{file} {old}");
    }
}
