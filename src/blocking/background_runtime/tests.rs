use super::*;

#[test]
fn wait_on_all_threads_shares_one_thread_in_the_background() {
    let background = || {
        let ask = || block_on(async { tokio::spawn(async { thread::current().id() }).await });
        thread::spawn(move || ask().unwrap())
    };
    let asked: Vec<_> = std::iter::repeat_with(background).take(4).collect();
    let ids: Vec<_> = asked.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}
