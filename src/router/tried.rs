//! The servers that were tried, as an error names them.

use std::fmt;

use crate::node::Address;

/// More of them only make the message long.
const NAMED: usize = 3;

/// Servers that were tried: the first few are named, and the others counted.
#[derive(Clone, Debug)]
pub(crate) struct Tried(pub(crate) Vec<Address>);

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (named, others) = self.0.split_at(self.0.len().min(NAMED));
        for (number, address) in named.iter().enumerate() {
            write!(f, "{}{address}", if number == 0 { "" } else { ", " })?;
        }
        match others.len() {
            0 => Ok(()),
            others => write!(f, " and {others} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::fake::address;

    #[test]
    fn a_few_are_named_and_the_others_counted() {
        let tried =
            |hosts: &[&str]| Tried(hosts.iter().map(|host| address(host)).collect()).to_string();
        assert_eq!(tried(&["a"]), "a:1");
        assert_eq!(tried(&["a", "b", "c"]), "a:1, b:1, c:1");
        assert_eq!(tried(&["a", "b", "c", "d", "e"]), "a:1, b:1, c:1 and 2 more");
    }
}
