use super::*;
use crate::clock::SystemClock;
use crate::health::ClientHealth;

const PERIOD: Duration = Duration::from_millis(5);

#[tokio::test]
async fn pulse_beats_wake_every_caller_and_end_without_callers() {
    let timer = SharedTimer::new(
        Arc::new(SystemClock),
        PERIOD,
        RuntimeHandle::current(ClientHealth::default()),
    );
    assert!(timer.ticks_before(PERIOD * 2) && !timer.ticks_before(PERIOD));
    for _ in 0..3 {
        futures::join!(timer.next_tick(), timer.next_tick());
        assert!(timer.is_running.load(Ordering::SeqCst));
    }
    while timer.is_running.load(Ordering::SeqCst) {
        tokio::time::sleep(PERIOD).await;
    }
    assert_eq!(Arc::strong_count(&timer), 1, "nobody waits, and the task has ended");
    timer.next_tick().await;
}

fn two_runtimes() -> [tokio::runtime::Runtime; 2] {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build();
    [runtime().unwrap(), runtime().unwrap()]
}

fn on(runtime: &tokio::runtime::Runtime) -> Arc<SharedTimer> {
    let _inside = runtime.enter();
    SharedTimer::new(Arc::new(SystemClock), PERIOD, RuntimeHandle::current(ClientHealth::default()))
}

#[test]
fn pulse_beats_while_the_runtime_of_its_first_caller_is_blocked() {
    let [client, caller] = two_runtimes();
    let timer = on(&client);
    let mut waiting = Box::pin(timer.next_tick());
    caller.block_on(async { assert!(futures::poll!(&mut waiting).is_pending()) });
    let beaten = async { tokio::time::timeout(PERIOD * 1000, timer.next_tick()).await };
    client.block_on(beaten).expect("a beat");
}

#[test]
fn pulse_beat_after_its_runtime_has_ended_wakes_each_caller() {
    let [first, second] = two_runtimes();
    let timer = on(&first);
    first.block_on(timer.next_tick());
    let mut waiting = Box::pin(timer.next_tick());
    second.block_on(async { assert!(futures::poll!(&mut waiting).is_pending()) });
    drop(first);
    second.block_on(waiting);
    let start = std::time::Instant::now();
    second.block_on(timer.next_tick());
    assert!(start.elapsed() >= PERIOD, "each caller waits by itself");
}
