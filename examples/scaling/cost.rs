//! The time of a training step of several ranks, computed from the times of its parts.
//!
//! The schedule is that of [`Trainer::across`](attn::train::Trainer::across). Parameters are exchanged in buckets, the last ones first.
//!
//! 1. Forward and backward pass of the rank's part of the batch.
//! 2. For each bucket, `all_to_all`: a rank packs the gradients of what other ranks update, sends them, and adds those that it
//!    receives. A bucket travels while the one before it is added.
//! 3. The ranks update what they own.
//! 4. For each bucket, `all_gather` of the parameters.
//!
//! Each rank has a clock, a link out and a link in. Links are full-duplex and have no contention: a rank sends and receives at the full
//! bandwidth at the same time. Each message takes the latency of the link that it leaves by, one after the other, so an operation of `P`
//! ranks takes `P - 1` of them. An operation is complete when all ranks have sent, and the rank has received.

use std::{cmp::Reverse, collections::VecDeque};

/// The least bytes of a bucket between machines: each takes a message to every rank.
pub(crate) const BUCKET: usize = 25 << 20;
/// The bytes of a number.
const NUMBER: usize = 4;
/// The bytes that each message has for its header.
const HEADER: f64 = 24.0;

/// How the parameters are given to ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shards {
    /// Each whole parameter to one rank, the largest first, to the rank that has least: as it is implemented for algorithms of whole matrices.
    Whole,
    /// An equal part of each parameter to each rank: as it is implemented for algorithms that update number by number.
    Equal,
}

/// A connection of each rank to the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// Seconds per message.
    pub(crate) latency: f64,
    /// Seconds per byte.
    pub(crate) per_byte: f64,
}

impl Link {
    pub(crate) const fn of_gigabits(gigabits: f64, latency: f64) -> Self {
        Self {
            latency,
            per_byte: 8e-9 / gigabits,
        }
    }
}

/// The times of the work of a rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Seconds of forward and backward pass of the rank's part of the batch.
    pub(crate) compute: f64,
    /// Seconds per parameter that the rank updates.
    pub(crate) update: f64,
    /// Seconds per byte that is copied into a message.
    pub(crate) pack: f64,
    /// Seconds per byte of gradients that is added out of a message.
    pub(crate) add: f64,
    /// Seconds per byte of parameters that is copied out of a message.
    pub(crate) read: f64,
}

impl Work {
    /// The seconds of a step of one rank without others.
    pub(crate) fn alone(&self, lens: &[usize]) -> f64 {
        self.compute + self.update * lens.iter().sum::<usize>() as f64
    }
}

/// The ranks of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cluster {
    pub(crate) ranks: usize,
    pub(crate) link: Link,
    pub(crate) shards: Shards,
    /// The least bytes of a bucket, in full numbers.
    pub(crate) bucket: usize,
    /// Whether the gradients of a bucket are sent as soon as the backward pass has them.
    pub(crate) hidden: bool,
    /// Whether gradients are sent in bf16, in half of the bytes. They are rounded in the time in which full ones are copied.
    pub(crate) bf16: bool,
}

/// A step as it is predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) seconds: f64,
    /// The seconds for which a rank waits, as a mean over the ranks.
    pub(crate) waiting: f64,
    /// The bytes that a rank sends, as a mean over the ranks.
    pub(crate) bytes: f64,
}

/// The share of the backward pass in the time of both.
const BACKWARD: f64 = 2.0 / 3.0;

/// Predicts a step of a model whose parameters have so many numbers each, in the order of the model.
pub(crate) fn step(lens: &[usize], work: &Work, cluster: &Cluster) -> Step {
    let ranks = cluster.ranks;
    if ranks == 1 {
        let seconds = work.alone(lens);
        let (waiting, bytes) = (0.0, 0.0);
        return Step {
            seconds,
            waiting,
            bytes,
        };
    }
    let buckets = buckets(lens, cluster);
    let all: f64 = buckets.iter().map(|bucket| bucket.bytes).sum();
    let others = (ranks - 1) as f64;
    let mut clocks = Clocks::new(ranks, cluster.link);
    // The ranks say how many targets they have.
    clocks.numbers(2);
    let behind = if cluster.hidden { BACKWARD } else { 0.0 };
    clocks.work(|_| (1.0 - behind) * work.compute);
    let parts = |bucket: &Bucket| behind * work.compute * bucket.bytes / all;
    let sent = if cluster.bf16 { 0.5 } else { 1.0 };
    clocks.exchange(
        &buckets,
        if cluster.hidden { buckets.len() } else { 1 },
        |bucket, rank| parts(bucket) + work.pack * (bucket.bytes - bucket.owned[rank]),
        |bucket, rank| {
            [
                sent * (bucket.bytes - bucket.owned[rank]),
                sent * others * bucket.owned[rank],
            ]
        },
        |bucket, rank| work.add * others * bucket.owned[rank],
    );
    // The norm of the gradients and the loss.
    clocks.numbers(2);
    let mut updated = vec![0.0; ranks];
    for bucket in &buckets {
        updated
            .iter_mut()
            .zip(&bucket.owned)
            .for_each(|(sum, x)| *sum += x);
    }
    clocks.work(|rank| work.update * updated[rank] / NUMBER as f64);
    clocks.exchange(
        &buckets,
        1,
        |bucket, rank| work.pack * bucket.owned[rank],
        |bucket, rank| {
            [
                others * bucket.owned[rank],
                bucket.bytes - bucket.owned[rank],
            ]
        },
        |bucket, rank| work.read * (bucket.bytes - bucket.owned[rank]),
    );
    let mean = |all: &[f64]| all.iter().sum::<f64>() / ranks as f64;
    Step {
        seconds: clocks.now.iter().copied().fold(0.0, f64::max),
        waiting: mean(&clocks.waited),
        bytes: mean(&clocks.sent),
    }
}

/// Parameters that are exchanged at a time.
struct Bucket {
    bytes: f64,
    /// The bytes that each rank owns.
    owned: Vec<f64>,
}

/// The buckets, the last parameters first.
fn buckets(lens: &[usize], cluster: &Cluster) -> Vec<Bucket> {
    let owners = owners(lens, cluster.ranks);
    let mut buckets = Vec::new();
    let (mut bytes, mut owned) = (0, vec![0.0; cluster.ranks]);
    for (index, len) in lens.iter().enumerate().rev() {
        bytes += NUMBER * len;
        owned[owners[index]] += (NUMBER * len) as f64;
        if bytes >= cluster.bucket || index == 0 {
            let bytes = std::mem::take(&mut bytes) as f64;
            let whole = std::mem::replace(&mut owned, vec![0.0; cluster.ranks]);
            let owned = match cluster.shards {
                Shards::Whole => whole,
                Shards::Equal => vec![bytes / cluster.ranks as f64; cluster.ranks],
            };
            buckets.push(Bucket { bytes, owned });
        }
    }
    buckets
}

/// The owner of each whole parameter.
fn owners(lens: &[usize], ranks: usize) -> Vec<usize> {
    let mut by_size: Vec<_> = (0..lens.len()).collect();
    by_size.sort_by_key(|index| Reverse(lens[*index]));
    let mut loads = vec![0; ranks];
    let mut owners = vec![0; lens.len()];
    for index in by_size {
        let least = (0..ranks).min_by_key(|rank| loads[*rank]).unwrap_or(0);
        owners[index] = least;
        loads[least] += lens[index];
    }
    owners
}

/// The time on each rank.
struct Clocks {
    link: Link,
    now: Vec<f64>,
    waited: Vec<f64>,
    sent: Vec<f64>,
    /// When the link of each rank has sent, and received, all that was begun.
    links: [Vec<f64>; 2],
}

impl Clocks {
    fn new(ranks: usize, link: Link) -> Self {
        let zeros = || vec![0.0; ranks];
        Self {
            link,
            now: zeros(),
            waited: zeros(),
            sent: zeros(),
            links: [zeros(), zeros()],
        }
    }

    fn work(&mut self, seconds: impl Fn(usize) -> f64) {
        for (rank, now) in self.now.iter_mut().enumerate() {
            *now += seconds(rank);
        }
    }

    /// Every rank says some numbers to all.
    fn numbers(&mut self, count: usize) {
        let bytes = (8 * count * (self.now.len() - 1)) as f64;
        let arrived = self.begin(|_| [bytes; 2]);
        self.wait(&arrived);
    }

    /// Begins an operation in which each rank sends and receives so many bytes, and returns when it is complete on each.
    fn begin(&mut self, bytes: impl Fn(usize) -> [f64; 2]) -> Vec<f64> {
        let others = (self.now.len() - 1) as f64;
        let begun = self.now.iter().copied().fold(0.0, f64::max);
        let [out, into] = &mut self.links;
        for (rank, out) in out.iter_mut().enumerate() {
            let [sent, _] = bytes(rank);
            let sent = sent + HEADER * others;
            self.sent[rank] += sent;
            *out = out.max(self.now[rank]) + others * self.link.latency + sent * self.link.per_byte;
        }
        let all_sent = out.iter().copied().fold(0.0, f64::max);
        for (rank, into) in into.iter_mut().enumerate() {
            let [_, received] = bytes(rank);
            let received = received + HEADER * others;
            *into = into.max(begun) + self.link.latency + received * self.link.per_byte;
        }
        into.iter().map(|into| into.max(all_sent)).collect()
    }

    fn wait(&mut self, arrived: &[f64]) {
        for (rank, arrived) in arrived.iter().enumerate() {
            let waits = (arrived - self.now[rank]).max(0.0);
            self.waited[rank] += waits;
            self.now[rank] += waits;
        }
    }

    /// An operation for each bucket, of which at most so many are begun before the first is waited for.
    fn exchange(
        &mut self,
        buckets: &[Bucket],
        window: usize,
        before: impl Fn(&Bucket, usize) -> f64,
        bytes: impl Fn(&Bucket, usize) -> [f64; 2],
        behind: impl Fn(&Bucket, usize) -> f64,
    ) {
        let mut pending = VecDeque::new();
        let finish = |clocks: &mut Self, pending: &mut VecDeque<(&Bucket, Vec<f64>)>| {
            if let Some((bucket, arrived)) = pending.pop_front() {
                clocks.wait(&arrived);
                clocks.work(|rank| behind(bucket, rank));
            }
        };
        for bucket in buckets {
            self.work(|rank| before(bucket, rank));
            let arrived = self.begin(|rank| bytes(bucket, rank));
            pending.push_back((bucket, arrived));
            if pending.len() > window {
                finish(self, &mut pending);
            }
        }
        while !pending.is_empty() {
            finish(self, &mut pending);
        }
    }
}

/// The seconds of `overhead + slope * x` for two measured points: the best line through them, none of whose parts is negative.
pub(crate) fn line([x0, y0]: [f64; 2], [x1, y1]: [f64; 2]) -> [f64; 2] {
    let slope = ((y1 - y0) / (x1 - x0)).clamp(0.0, y1 / x1);
    [(y1 - slope * x1).max(0.0), slope]
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Link = Link {
        latency: 0.0,
        per_byte: 0.0,
    };

    /// Without work that more ranks make more of.
    const COMPUTE: Work = Work {
        compute: 3.0,
        update: 1e-6,
        pack: 0.0,
        add: 0.0,
        read: 0.0,
    };

    fn cluster(ranks: usize, link: Link, shards: Shards, hidden: bool) -> Cluster {
        Cluster {
            ranks,
            link,
            shards,
            bucket: BUCKET,
            hidden,
            bf16: false,
        }
    }

    fn assert_near(found: f64, expected: f64) {
        // Sums of a few thousand numbers.
        let allowed = 1e-9 * expected.abs().max(1e-9);
        assert!(
            (found - expected).abs() <= allowed,
            "{found}, not {expected}"
        );
    }

    #[test]
    fn a_free_exchange_leaves_the_pass_and_a_share_of_the_update() {
        for ranks in [1, 2, 8, 64] {
            for hidden in [false, true] {
                let cluster = cluster(ranks, FREE, Shards::Equal, hidden);
                let found = step(&[1 << 20, 64, 1 << 22], &COMPUTE, &cluster);
                let parameters = f64::from((1 << 20) + 64 + (1 << 22));
                assert_near(found.seconds, 3.0 + 1e-6 * parameters / ranks as f64);
                assert_near(found.waiting, 0.0);
            }
        }
    }

    #[test]
    fn two_ranks_with_one_bucket_are_a_sum_by_hand() {
        // 1,000 numbers on rank 0 and 600 on rank 1; one bucket. Latency 1 ms, a byte 1 us.
        let link = Link {
            latency: 1e-3,
            per_byte: 1e-6,
        };
        let work = Work {
            compute: 1.0,
            update: 1e-4,
            pack: 2e-6,
            add: 3e-6,
            read: 4e-6,
        };
        let cluster = cluster(2, link, Shards::Whole, false);
        let found = step(&[1000, 600], &work, &cluster);
        // Two numbers of 8 bytes and the header of 24: 1.04 ms, twice.
        let numbers = 2.0 * (1e-3 + 40e-6);
        // Rank 1 packs 4,000 bytes of gradients (8 ms) and sends them (1 ms + 4.024 ms). Rank 0 adds 4,000 bytes (12 ms).
        let reduce = 8e-3 + 5.024e-3 + 12e-3;
        // Rank 0 updates 1,000 parameters (100 ms), packs 4,000 bytes (8 ms) and sends them (5.024 ms). Rank 1 reads them (16 ms).
        let gather = 100e-3 + 8e-3 + 5.024e-3 + 16e-3;
        assert_near(found.seconds, 1.0 + numbers + reduce + gather);
        // Rank 0 sends 2,400 and 4,000 bytes, rank 1 4,000 and 2,400; each 4 headers, and twice two numbers.
        assert_near(found.bytes, 6400.0 + 4.0 * 24.0 + 2.0 * 16.0);
    }

    #[test]
    fn bf16_halves_the_bytes_of_gradients_alone() {
        // A byte takes 1 us, everything else nothing. Two ranks with half of 2,000 numbers each send 4,000 bytes of gradients and of parameters.
        let link = Link {
            latency: 0.0,
            per_byte: 1e-6,
        };
        let full = cluster(2, link, Shards::Equal, false);
        let half = Cluster { bf16: true, ..full };
        let [full, half] = [full, half].map(|cluster| step(&[2000], &COMPUTE, &cluster));
        assert_near(full.bytes - half.bytes, 2000.0);
        assert_near(full.seconds - half.seconds, 2e-3);
        assert_near(half.bytes, 2000.0 + 4000.0 + 2.0 * 24.0 + 2.0 * 40.0);
        // With many ranks three quarters of the bytes are left, and of the time of an exchange on a slow link.
        let link = Link::of_gigabits(1.0, 0.0);
        let full = cluster(64, link, Shards::Equal, false);
        let half = Cluster { bf16: true, ..full };
        let [full, half] = [full, half].map(|cluster| {
            let step = step(
                &[32 << 20],
                &Work {
                    update: 0.0,
                    ..COMPUTE
                },
                &cluster,
            );
            step.seconds - COMPUTE.compute
        });
        assert!((half / full - 0.75).abs() < 1e-3, "{half} of {full}");
    }

    #[test]
    fn bytes_of_equal_shards_approach_two_numbers_for_each_parameter() {
        for ranks in [2, 4, 16] {
            let cluster = cluster(ranks, FREE, Shards::Equal, false);
            let lens = [8 << 20, 7 << 20, 100];
            let others = (ranks - 1) as f64;
            let numbers = lens.iter().sum::<usize>() as f64 * 4.0 * others / ranks as f64;
            // Two buckets, so six messages to each other rank.
            let small = others * (6.0 * 24.0 + 2.0 * 16.0);
            // Reduced: a part to each owner. Gathered: the own part to each other rank.
            assert_near(step(&lens, &COMPUTE, &cluster).bytes, 2.0 * numbers + small);
        }
    }

    #[test]
    fn steps_are_no_longer_with_more_bandwidth_less_latency_or_a_hidden_exchange() {
        let lens = [9 << 20, 1 << 20, 40, 7 << 20, 1 << 21, 8 << 20];
        let work = Work {
            pack: 1e-10,
            add: 2e-10,
            read: 1e-10,
            ..COMPUTE
        };
        for shards in [Shards::Whole, Shards::Equal] {
            for ranks in [2, 7, 64] {
                let seconds = |gigabits, latency, hidden| {
                    let link = Link::of_gigabits(gigabits, latency);
                    let cluster = cluster(ranks, link, shards, hidden);
                    step(&lens, &work, &cluster).seconds
                };
                for hidden in [false, true] {
                    assert!(seconds(100.0, 1e-5, hidden) < seconds(10.0, 1e-5, hidden));
                    assert!(seconds(10.0, 1e-5, hidden) < seconds(10.0, 1e-3, hidden));
                }
                assert!(seconds(10.0, 1e-5, true) < seconds(10.0, 1e-5, false));
            }
        }
    }

    #[test]
    fn an_exchange_that_is_shorter_than_the_backward_pass_leaves_its_last_bucket() {
        // Two equal buckets of 32 MiB on 2 ranks. A byte takes 10 ns: 16 MiB take 0.168 s, and a part of the backward pass 1 s.
        let lens = [8 << 20, 8 << 20];
        let link = Link {
            latency: 0.0,
            per_byte: 1e-8,
        };
        let work = Work {
            update: 0.0,
            ..COMPUTE
        };
        let hidden = step(&lens, &work, &cluster(2, link, Shards::Equal, true));
        let message = (f64::from(16 << 20) + 24.0) * 1e-8;
        let numbers = 2.0 * 40e-8;
        // The second bucket of gradients, and both of the parameters.
        assert_near(hidden.seconds, 3.0 + numbers + 3.0 * message);
        let open = step(&lens, &work, &cluster(2, link, Shards::Equal, false));
        assert_near(open.seconds, 3.0 + numbers + 4.0 * message);
    }

    #[test]
    fn an_operation_takes_the_latency_of_a_message_to_each_other_rank() {
        let link = Link {
            latency: 1e-3,
            per_byte: 0.0,
        };
        let lens = [8 << 20, 7 << 20];
        for ranks in [2, 9, 33] {
            for shards in [Shards::Whole, Shards::Equal] {
                let work = Work {
                    update: 0.0,
                    ..COMPUTE
                };
                let found = step(&lens, &work, &cluster(ranks, link, shards, false));
                // Twice numbers, and both buckets twice.
                assert_near(found.seconds, 3.0 + 6.0 * 1e-3 * (ranks - 1) as f64);
            }
        }
    }

    #[test]
    fn the_owner_of_a_large_parameter_bounds_whole_shards() {
        // One parameter of 32 MiB: its owner receives it of all others, and sends it to them.
        let lens = [8 << 20];
        let link = Link {
            latency: 0.0,
            per_byte: 1e-9,
        };
        let work = Work {
            compute: 0.0,
            update: 0.0,
            ..COMPUTE
        };
        for ranks in [2, 9, 33] {
            let others = (ranks - 1) as f64;
            let seconds = |shards| step(&lens, &work, &cluster(ranks, link, shards, false)).seconds;
            let bytes = f64::from(32 << 20);
            let headers = 2.0 * (24.0 + 40.0) * others;
            assert_near(
                seconds(Shards::Whole),
                1e-9 * (2.0 * others * bytes + headers),
            );
            assert_near(
                seconds(Shards::Equal),
                1e-9 * (2.0 * others / ranks as f64 * bytes + headers),
            );
        }
    }

    #[test]
    fn owners_are_those_of_the_trainer() {
        // The loads are 9, 8 and 7, as in the unit test of the trainer's whole shards.
        let lens = [9, 1, 5, 4, 1, 1, 3];
        let mut loads = [0; 3];
        for (owner, len) in owners(&lens, 3).iter().zip(lens) {
            loads[*owner] += len;
        }
        assert_eq!(loads, [9, 8, 7]);
    }

    #[test]
    fn a_line_goes_through_two_points_unless_it_would_fall_or_begin_below_zero() {
        assert_eq!(line([1.0, 3.0], [3.0, 7.0]), [1.0, 2.0]);
        assert_eq!(line([1.0, 9.0], [3.0, 7.0]), [7.0, 0.0]);
        assert_eq!(line([1.0, 1.0], [2.0, 6.0]), [0.0, 3.0]);
    }
}
