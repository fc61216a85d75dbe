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
