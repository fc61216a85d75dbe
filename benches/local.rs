//! Measures the work that needs no network: `cargo bench -p rwlease-bench --bench local`.

#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use rwlease::{Locks, Slot};
use tokio::runtime::Builder;

/// A server's answer to an acquire.
const REPLY: &[u8] =
    b"*5\r\n:1785000000000\r\n$7\r\ngranted\r\n:0\r\n:1785000000000000\r\n:1785000030000\r\n";

fn local(criterion: &mut Criterion) {
    criterion.bench_function("slot of a key", |bench| {
        bench.iter(|| Slot::of(black_box("rwlease:order:{4711}:line")));
    });
    criterion.bench_function("parsing a reply, by the redis crate", |bench| {
        bench.iter(|| redis::parse_redis_value(black_box(REPLY)).unwrap());
    });

    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let locks = runtime.block_on(Locks::embedded()).unwrap();
    criterion.bench_function("a lock's name checked, its key and slot", |bench| {
        bench.iter(|| locks.rwlock(black_box("order:{4711}:line")).unwrap());
    });
    let lock = locks.rwlock("local").unwrap();
    criterion.bench_function(
        "a write taken and released, with the scripts run in-process",
        |bench| {
            bench.iter(|| {
                runtime.block_on(async {
                    let guard = lock.write().await.unwrap();
                    guard.release().await.unwrap()
                })
            });
        },
    );
    let guard = runtime.block_on(async { lock.write().await.unwrap() });
    criterion.bench_function("whether a guard holds", |bench| {
        bench.iter(|| black_box(&guard).is_held())
    });
    criterion.bench_function("what is left of a lease", |bench| {
        bench.iter(|| black_box(&guard).remaining())
    });
    let _ = runtime.block_on(async { guard.release().await.unwrap() });
}

criterion_group!(parts, local);
criterion_main!(parts);
