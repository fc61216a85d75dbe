//! `Slot::of` agrees with the servers' `CLUSTER KEYSLOT`, for odd tags and for many generated
//! names.
//!
//! The seed is printed, and `RWLEASE_SEED` replays it.

use redis::pipe;
use rwlease::Slot;
use testkit::{Cluster, ClusterConfig, Error, Result};

const GENERATED: usize = 40_000;
const BATCH: usize = 1_000;
const BRACES: &[u8] = b"{}{}{}ab\0";

/// Names around the rule, in quotes: the tag is what stands between the first `{` and the first `}`
/// after it, if that is not empty.
const ODD: &[u8] =
    b"'' 'a' '123456789' '{' '}' '{}' '}{' '{}a' 'a{}' '{}{a}' 'a{}{b}' '{{}' '{}}' \
    '{{}}' '{{a}}b' '{a}' 'a{b}' '{a}b' 'a{b}c' 'a{b}{c}' '{a}{b}' 'foo{bar' 'foo}bar' 'foo}bar{' \
    'foo}{bar}' 'foo{bar{zap}' 'foo{{bar}}zap' '{ }' '{\0}' '\0{a}\0' '{\r\n}x' 'a{\xff\xfe}b' \
    '\xff{\xff}\xff' 'schl\xc3\xbcssel:{\xe2\x82\xac}'";

#[tokio::test]
async fn slot_of_matches_cluster_keyslot() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await?;
    let seed = seed()?;
    println!("RWLEASE_SEED={seed}");

    let mut random = fastrand::Rng::with_seed(seed);
    let quoted = ODD.split(|byte| *byte == b'\'').skip(1).step_by(2);
    let mut names: Vec<Vec<u8>> = quoted.map(<[u8]>::to_vec).collect();
    assert_eq!(names.len(), 34);
    names.extend((0..GENERATED).map(|_| name(&mut random)));

    let mut connection = cluster.node(0).connect().await?;
    for names in names.chunks(BATCH) {
        let mut query = pipe();
        for name in names {
            query.cmd("CLUSTER").arg("KEYSLOT").arg(name);
        }
        let slots: Vec<u16> = query.query_async(&mut connection).await?;
        for (name, slot) in names.iter().zip(slots) {
            assert_eq!(Slot::of(name).get(), slot, "{}", name.escape_ascii());
        }
    }
    Ok(())
}

/// A name of up to 40 bytes. A third of them are ordinary, a third full of braces, a third any
/// bytes at all.
fn name(random: &mut fastrand::Rng) -> Vec<u8> {
    let length = random.usize(..=40);
    let kind = random.u8(..3);
    let byte = |random: &mut fastrand::Rng| match kind {
        0 => random.alphanumeric() as u8,
        1 => BRACES[random.usize(..BRACES.len())],
        _ => random.u8(..),
    };
    std::iter::repeat_with(|| byte(random)).take(length).collect()
}

fn seed() -> Result<u64> {
    match std::env::var("RWLEASE_SEED") {
        Ok(seed) => {
            seed.parse().map_err(|_| Error::new(format!("RWLEASE_SEED={seed} is no number")))
        }
        Err(_) => Ok(fastrand::u64(..)),
    }
}
