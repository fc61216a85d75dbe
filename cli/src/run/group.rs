//! The processes of the command's group, as the system lists them.

use std::fmt;
use std::fs;

use nix::errno::Errno;
use nix::sys::signal::{kill, killpg};
use nix::unistd::Pid;

/// A process of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    id: Pid,
    name: String,
    /// False for a process that has ended, but that its parent has not reaped.
    is_alive: bool,
}

/// A process group.
#[derive(Clone, Copy)]
pub struct Group(pub Pid);

impl Group {
    /// Returns true if any process of the group is alive. If the system does not list processes,
    /// zombies count as alive.
    pub fn is_alive(self) -> bool {
        if killpg(self.0, None) == Err(Errno::ESRCH) {
            return false;
        }
        let members = self.members();
        members.is_empty() || members.iter().any(|member| member.is_alive)
    }

    /// The living processes.
    pub fn living(self) -> Vec<Member> {
        self.members().into_iter().filter(|member| member.is_alive).collect()
    }

    /// The living processes that this one may not signal, because they run as another user.
    pub fn foreign(self) -> Vec<Member> {
        let is_foreign = |id| kill(id, None) == Err(Errno::EPERM);
        let mut foreign = self.living();
        foreign.retain(|member| is_foreign(member.id));
        if foreign.is_empty() && killpg(self.0, None) == Err(Errno::EPERM) {
            // The system hides the processes of other users.
            foreign.push(Member { id: self.0, name: "hidden".to_owned(), is_alive: true });
        }
        foreign
    }

    /// Returns true if no process of the group, or not its first one, may be signalled. This is
    /// cheaper than a look at all processes.
    pub fn is_foreign(self) -> bool {
        [killpg(self.0, None), kill(self.0, None)].contains(&Err(Errno::EPERM))
    }

    fn has(self, id: Pid) -> bool {
        nix::unistd::getpgid(Some(id)) == Ok(self.0)
    }

    fn members(self) -> Vec<Member> {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
        ids.map(Pid::from_raw).filter(|id| self.has(*id)).filter_map(look).collect()
    }
}

/// Reads a line like `12 (sleep) S 1 12 ...`: the id, the name, the state. The 18th word after the
/// name is the number of threads.
fn look(id: Pid) -> Option<Member> {
    let line = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (start, rest) = line.rsplit_once(") ")?;
    let (_, name) = start.split_once(" (")?;
    let words: Vec<&str> = rest.split(' ').collect();
    let has_ended = matches!(*words.first()?, "Z" | "X" | "x");
    // While other threads of a process run, the first one can have ended.
    let is_alive = !has_ended || words.get(17).is_some_and(|threads| *threads != "1");
    Some(Member { id, name: name.to_owned(), is_alive })
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} (`{}`)", self.id, self.name)
    }
}

/// Names the first few processes.
pub fn named(members: &[Member]) -> String {
    const FEW: usize = 3;
    let mut names: Vec<String> = members.iter().take(FEW).map(Member::to_string).collect();
    if members.len() > FEW {
        names.push(format!("{} more", members.len() - FEW));
    }
    names.join(", ")
}
