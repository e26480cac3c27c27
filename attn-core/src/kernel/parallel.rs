//! Work for several threads. Where a result depends on how it is cut, that never depends on how many there are.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use rayon::prelude::*;
use smallvec::SmallVec;

/// Elements that are not worth another thread: a few microseconds of work, about what waking one costs.
pub const SMALL: usize = 16 * 1024;

/// Multiplications that are not worth another thread: some ten microseconds.
pub const FEW_MULTIPLICATIONS: usize = 32 * SMALL;

/// Lists of so many items take no memory from the heap.
pub const FEW: usize = 16;

/// How many threads there are.
pub fn threads() -> usize {
    rayon::current_num_threads()
}

/// `body(item)` for every item, in any order and by any thread of the current rayon pool.
pub fn for_each<T: Send>(items: impl IntoIterator<Item = T>, body: impl Fn(T) + Send + Sync) {
    let mut items: SmallVec<[Option<T>; FEW]> = items.into_iter().map(Some).collect();
    let run = |item: &mut Option<T>| {
        if let Some(item) = item.take() {
            body(item);
        }
    };
    match items.len() {
        0 | 1 => items.iter_mut().for_each(run),
        _ => items.par_iter_mut().with_max_len(1).for_each(run),
    }
}

/// Runs all of `body` on a thread of the current rayon pool: there, dividing work among the threads wakes nobody who is not
/// needed. From outside, every kernel would wait for one thread to wake another.
pub fn on_pool<R: Send>(body: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| body())
}

/// [`on_pool`] for a whole pass that computes so many numbers at least, if they are worth it: with the other threads kept awake,
/// which takes some bytes from the heap.
pub fn inside<R: Send>(numbers: usize, body: impl FnOnce() -> R + Send) -> R {
    if numbers < SMALL {
        return body();
    }
    on_pool(|| {
        keep_awake();
        body()
    })
}

/// Threads of all pools that wait for work without sleeping.
static AWAKE: AtomicUsize = AtomicUsize::new(0);

/// So long after its last piece of work a thread may sleep.
const PATIENCE: Duration = Duration::from_micros(200);

/// Keeps the other threads of the pool awake between kernels. A thread of rayon that finds no work for some ten microseconds
/// goes to sleep, and to wake it takes longer than many a kernel of a small model.
fn keep_awake() {
    let owner = rayon::current_thread_index();
    for _ in AWAKE.load(Ordering::Relaxed)..threads().saturating_sub(1) {
        AWAKE.fetch_add(1, Ordering::Relaxed);
        rayon::spawn(move || {
            let mut last = Instant::now();
            // The thread whose work it is has better things to do. Others may find this while they wait for something else:
            // it has to end by itself.
            while rayon::current_thread_index() != owner && last.elapsed() < PATIENCE {
                match rayon::yield_now() {
                    Some(rayon::Yield::Executed) => last = Instant::now(),
                    // About a microsecond, for the other thread of the core.
                    _ => (0..16).for_each(|_| std::hint::spin_loop()),
                }
            }
            AWAKE.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// How many rows of `width` make a piece of work that is worth a thread.
pub fn rows_per_task(width: usize) -> usize {
    (SMALL / width.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_threads_awake_ends_and_holds_nothing_up() {
        for threads in [1, 2, 3, 8] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let pool = pool.expect("a pool");
            for round in 0..100 {
                let sum = AtomicUsize::new(0);
                pool.install(|| {
                    inside(SMALL, || {
                        for_each(0..8, |i| {
                            for_each(0..8, |j| {
                                sum.fetch_add(8 * i + j, Ordering::Relaxed);
                            });
                        });
                    });
                });
                assert_eq!(
                    sum.into_inner(),
                    63 * 32,
                    "round {round} of {threads} threads"
                );
            }
        }
        // Other tests keep threads awake, too, but not for so long.
        let sleeps = (0..6_000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            AWAKE.load(Ordering::Relaxed) == 0
        });
        assert!(sleeps, "a thread waits after its patience is gone");
    }
}
