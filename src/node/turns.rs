//! Turns for other tasks, before what they have put in is written.

/// The most turns that are given. A second one pays off on several threads, where callers that are
/// woken together do not all run in one; more of them do not.
const MOST: u32 = 2;

/// Gives turns to other tasks for as long as they put more in, of which `put` tells how much.
pub(super) async fn give_turns<T: PartialEq>(put: impl Fn() -> T) {
    let mut before = put();
    for _ in 0..MOST {
        tokio::task::yield_now().await;
        let now = put();
        if now == before {
            return;
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    async fn looks(put: impl Fn(u32) -> u32) -> u32 {
        let looks = Cell::new(0);
        give_turns(|| {
            looks.set(looks.get() + 1);
            put(looks.get())
        })
        .await;
        looks.get()
    }

    #[tokio::test]
    async fn turns_are_given_while_more_is_put_in_and_not_for_longer() {
        assert_eq!(looks(|_| 1).await, 2, "one turn");
        assert_eq!(looks(|look| look).await, 1 + MOST, "no more than the most");
    }
}
