//! The times of messages: latency, bandwidth, and the copies in and out of them.

use std::{convert::Infallible, hint::black_box};

use anyhow::Result;
use attn::train::Collective;

use crate::{
    cost::{BUCKET, Link},
    ranks::{Ranks, median, seconds},
};

/// The numbers that are copied into a message at a time: a matrix of 384 x 384.
const PARAMETER: usize = 384 * 384;

/// Messages as they are measured. All times are means over the ranks, which work at the same time.
pub(crate) struct Messages {
    pub(crate) link: Link,
    /// Seconds per byte: [`Work`](crate::cost::Work).
    pub(crate) pack: f64,
    pub(crate) add: f64,
    pub(crate) read: f64,
    /// The bytes of a message, and the seconds of `all_to_all` with one to each other rank.
    pub(crate) sizes: Vec<[f64; 2]>,
}

/// Sends messages of 1 MiB and more, to all together up to `largest` bytes of each rank.
pub(crate) fn messages(ranks: &mut Ranks, largest: usize, rounds: usize) -> Result<Messages> {
    let largest = (largest / (ranks.ranks() - 1)).max(1 << 20);
    let others = (ranks.ranks() - 1) as f64;
    let small = exchange(ranks, 1, 100 * rounds)?;
    let latency = small[1] / others;
    let mut sizes = Vec::new();
    let mut len = 1 << 18;
    while 4 * len <= largest {
        let [_, exchanged, ..] = exchange(ranks, len, rounds)?;
        sizes.push([(4 * len) as f64, exchanged]);
        len *= 4;
    }
    let len = (BUCKET / ranks.ranks()).min(largest) / 4;
    let [packed, _, added, read] = exchange(ranks, len, rounds)?;
    let bytes = 4.0 * others * len as f64;
    let per_byte = sizes.iter().map(|[bytes, seconds]| {
        let travels = seconds - others * latency;
        travels / (others * bytes)
    });
    let per_byte = median(&per_byte.collect::<Vec<_>>()).max(0.0);
    Ok(Messages {
        link: Link { latency, per_byte },
        pack: packed / bytes,
        add: added / bytes,
        read: read / bytes,
        sizes,
    })
}

/// The seconds in which a rank packs messages with so many numbers, exchanges one with each other rank, adds the numbers of all to its own,
/// and copies them: medians over the rounds of the means over the ranks.
fn exchange(ranks: &mut Ranks, len: usize, rounds: usize) -> Result<[f64; 4]> {
    let numbers = vec![0.5_f32; len];
    let mut sums = vec![0.0_f32; len];
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..rounds {
        let mut messages = vec![Vec::new(); ranks.ranks()];
        ranks.barrier()?;
        let own = ranks.rank();
        let packed = timed(|| {
            let others = messages.iter_mut().enumerate();
            let others = others.filter(|(to, _)| *to != own);
            others.for_each(|(_, message)| write(&numbers, message));
        });
        let mut received = Vec::new();
        ranks.barrier()?;
        let exchanged = seconds(|| {
            received = ranks.all_to_all(messages)?;
            anyhow::Ok(())
        })?;
        received.remove(own);
        let added = timed(|| {
            let each = received.iter();
            each.for_each(|message| put(message, &mut sums, |to, x| *to += x));
        });
        let read = timed(|| {
            let each = received.iter();
            each.for_each(|message| put(message, &mut sums, |to, x| *to = x));
        });
        black_box(&mut sums);
        let all = ranks.sum(&[packed, exchanged, added, read])?;
        times
            .iter_mut()
            .zip(all)
            .for_each(|(times, time)| times.push(time));
    }
    let count = ranks.ranks() as f64;
    Ok(times.map(|times| median(&times) / count))
}

fn timed(run: impl FnOnce()) -> f64 {
    let Ok(seconds) = seconds(|| {
        run();
        Ok::<_, Infallible>(())
    });
    seconds
}

/// Appends numbers, a parameter after the other.
fn write(numbers: &[f32], to: &mut Vec<u8>) {
    for numbers in numbers.chunks(PARAMETER) {
        let start = to.len();
        to.resize(start + size_of_val(numbers), 0);
        let (places, _) = to[start..].as_chunks_mut();
        for (place, number) in places.iter_mut().zip(numbers) {
            *place = number.to_le_bytes();
        }
    }
}

/// Calls `put` with each of `to` and the number that stands there in the bytes.
fn put(bytes: &[u8], to: &mut [f32], put: impl Fn(&mut f32, f32)) {
    let (numbers, _) = bytes.as_chunks();
    for (to, number) in to.iter_mut().zip(numbers) {
        put(to, f32::from_le_bytes(*number));
    }
}
