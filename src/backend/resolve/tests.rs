#![allow(clippy::disallowed_methods)]

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use tokio::time::timeout;

use super::*;

/// Ends a test that would never end.
const LONG: Duration = Duration::from_secs(20);

fn address(port: u16) -> Address {
    Address { host: "a.invalid".into(), port }
}

/// Waits until that many lookups have begun, each in a thread of its own.
async fn until_begun(begun: &AtomicUsize, lookups: usize) {
    let wait = async {
        while begun.load(Ordering::Relaxed) < lookups {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LONG, wait).await.expect("a thread for the lookup");
    assert_eq!(begun.load(Ordering::Relaxed), lookups);
}

#[tokio::test]
async fn connect_resolver_addresses_join_a_lookup_that_hangs() {
    let begun = Arc::new(AtomicUsize::new(0));
    let (release, held) = mpsc::channel::<()>();
    let (counter, held) = (begun.clone(), std::sync::Mutex::new(held));
    let mut resolver = Resolver::new(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        let _ = held.lock().unwrap().recv();
        Ok(vec![SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)])
    });
    for port in 0..10 {
        let dial = timeout(Duration::from_millis(10), resolver.addresses(&address(port))).await;
        assert!(dial.is_err(), "it hangs");
    }
    until_begun(&begun, 1).await;
    // It is stuck.
    resolver.max_lookup_time = Duration::from_millis(1);
    let dial = timeout(Duration::from_millis(10), resolver.addresses(&address(1))).await;
    assert!(dial.is_err(), "it hangs");
    resolver.max_lookup_time = LONG;
    until_begun(&begun, 2).await;
    // The last one gets the answer, with its own port.
    let at = address(7);
    let mut last = Box::pin(resolver.addresses(&at));
    assert!(futures::poll!(&mut last).is_pending());
    drop(release);
    let found = timeout(LONG, last).await.expect("an answer").unwrap();
    assert_eq!(found, [SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 7)]);
    assert_eq!(begun.load(Ordering::Relaxed), 2);
    // An answer is not kept.
    timeout(LONG, resolver.addresses(&at)).await.expect("an answer").unwrap();
    assert_eq!(begun.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn connect_resolver_addresses_after_a_lookup_that_panicked_begin_a_new_one() {
    let begun = Arc::new(AtomicUsize::new(0));
    let counter = begun.clone();
    let resolver = Resolver::new(move |_| match counter.fetch_add(1, Ordering::Relaxed) {
        0 => panic!("at first"),
        _ => Ok(Vec::new()),
    });
    assert!(timeout(LONG, resolver.addresses(&address(1))).await.unwrap().is_err());
    assert!(timeout(LONG, resolver.addresses(&address(1))).await.unwrap().is_ok());
}

#[tokio::test]
async fn connect_resolver_addresses_keep_their_order_each_once() {
    let found = [2, 1, 2].map(|last| SocketAddr::new(Ipv4Addr::new(127, 0, 0, last).into(), 0));
    let resolver = Resolver::new(move |_| Ok(found.to_vec()));
    let places = timeout(LONG, resolver.places(&address(1))).await.unwrap();
    assert_eq!(places, ["127.0.0.2", "127.0.0.1"].map(Arc::from));
}
