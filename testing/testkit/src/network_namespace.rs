//! A separate network for some processes, with one link to this one that can be cut. It needs the
//! right to make it (root, on Linux).

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Result;
use super::container::succeed;

const NOT_ALLOWED: [&str; 3] = ["not permitted", "ermission denied", "No such file"];

/// Removed, with its link, when this is dropped.
#[derive(Debug)]
pub struct NetworkNamespace {
    name: String,
    /// This end of the link.
    cable: String,
    /// The first three bytes of both addresses.
    net: String,
}

impl NetworkNamespace {
    /// `None` if this process lacks the right, or if there is no `ip`.
    pub fn create_if_allowed() -> Result<Option<NetworkNamespace>> {
        match NetworkNamespace::create() {
            Ok(space) => Ok(Some(space)),
            Err(error) if NOT_ALLOWED.iter().any(|why| error.to_string().contains(why)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn create() -> Result<NetworkNamespace> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}x{number}", std::process::id());
        let mut random = fastrand::Rng::new();
        // What a killed process has left goes first.
        let _ = ip(&format!("netns delete rwlease{id}"));
        ip(&format!("netns add rwlease{id}"))?;
        let space = NetworkNamespace {
            name: format!("rwlease{id}"),
            cable: format!("rwl{id}a"),
            net: format!("10.{}.{}", random.u8(190..250), random.u8(..)),
        };
        let (name, cable, far, net) = (&space.name, &space.cable, format!("rwl{id}b"), &space.net);
        for words in [
            format!("link add {cable} type veth peer name {far}"),
            format!("link set {far} netns {name}"),
            format!("addr add {net}.1/30 dev {cable}"),
            format!("link set {cable} up"),
            format!("-n {name} addr add {net}.2/30 dev {far}"),
            format!("-n {name} link set {far} up"),
            format!("-n {name} link set lo up"),
        ] {
            ip(&words)?;
        }
        Ok(space)
    }

    /// The words before a command that is to run in the namespace.
    pub fn before(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.name].map(String::from).to_vec()
    }

    /// The address of this side.
    pub fn host_addr(&self) -> String {
        format!("{}.1", self.net)
    }

    /// The address of the other side.
    pub fn namespace_addr(&self) -> String {
        format!("{}.2", self.net)
    }

    /// A second address of this side, which the other side can be kept from reaching.
    pub fn add_host_addr(&self) -> Result<String> {
        let (name, cable, net) = (&self.name, &self.cable, &self.net);
        ip(&format!("addr add {net}.5/32 dev {cable}"))?;
        ip(&format!("-n {name} route add {net}.5/32 via {net}.1"))?;
        Ok(format!("{net}.5"))
    }

    /// Drops what the other side sends to that second address. What comes from it still arrives.
    pub fn drop_to_second_addr(&self) -> Result {
        ip(&format!("-n {} route replace blackhole {}.5/32", self.name, self.net))
    }

    /// Ends `drop_to_second_addr`.
    pub fn reach_second_addr(&self) -> Result {
        let (name, net) = (&self.name, &self.net);
        ip(&format!("-n {name} route delete blackhole {net}.5/32"))?;
        ip(&format!("-n {name} route replace {net}.5/32 via {net}.1"))
    }

    /// Cuts the link. Neither side is notified.
    pub fn cut(&self) -> Result {
        ip(&format!("link set {} down", self.cable))
    }

    pub fn restore(&self) -> Result {
        ip(&format!("link set {} up", self.cable))
    }

    /// The state of the link as the system reports it: `up`, `down`.
    pub fn state(&self) -> Result<String> {
        let state = std::fs::read_to_string(format!("/sys/class/net/{}/operstate", self.cable))?;
        Ok(state.trim().to_owned())
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        // This removes the link, too. A failure cannot be handled here: `ip netns` shows what is
        // left.
        let _ = ip(&format!("netns delete {}", self.name));
        let _ = ip(&format!("link delete {}", self.cable));
    }
}

fn ip(words: &str) -> Result {
    succeed(Command::new("ip").args(words.split(' ')))
}
