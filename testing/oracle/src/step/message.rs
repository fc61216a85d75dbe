//! The messages that a script publishes.

/// What a message tells of an acquisition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Grant {
        id: String,
        token: u64,
        deadline: u64,
    },
    /// Another acquisition requests the cached lease.
    Recall {
        id: String,
    },
    /// A forced release has ended the lease with this token.
    Ended {
        id: String,
        token: u64,
    },
}

impl Message {
    /// Decodes a message, which may have several grants.
    pub fn decode(text: &str) -> Vec<Message> {
        let words: Vec<&str> = text.split(' ').collect();
        let number = |word: &str| word.parse().unwrap_or(0);
        match words[..] {
            [_, "r" | "w", id] => vec![Message::Recall { id: id.into() }],
            [_, "f", id, token] => vec![Message::Ended { id: id.into(), token: number(token) }],
            [_, _more, ref grants @ ..] => {
                let grants = grants.chunks_exact(3).map(|grant| Message::Grant {
                    id: grant[0].into(),
                    token: number(grant[1]),
                    deadline: number(grant[2]),
                });
                grants.collect()
            }
            _ => Vec::new(),
        }
    }
}
