//! Work for several threads. Where a result depends on the partition, the partition does not depend on the number of threads.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use rayon::prelude::*;
use smallvec::SmallVec;

use super::MatrixMut;
use crate::memory;

/// The number of elements below which a second thread does not pay: a few microseconds of work, about the cost of waking a
/// thread.
pub const SMALL: usize = 16 * 1024;

/// The number of multiplications below which a second thread does not pay: about ten microseconds.
pub const FEW_MULTIPLICATIONS: usize = 32 * SMALL;

/// Lists of up to this many items need no heap memory.
pub const FEW: usize = 16;

/// The number of threads that share a kernel: one where a thread has a share of rows.
pub fn threads() -> usize {
    match memory::is_in_share() {
        true => 1,
        false => rayon::current_num_threads(),
    }
}

/// Runs `body(item)` for every item, in any order and on any thread of the current rayon pool. A thread that has a share of rows runs all: if it waited for others, it
/// might begin work of another pass meanwhile, whose memory is not its own.
pub fn for_each<T: Send>(items: impl IntoIterator<Item = T>, body: impl Fn(T) + Send + Sync) {
    let mut items: SmallVec<[Option<T>; FEW]> = items.into_iter().map(Some).collect();
    let run = |item: &mut Option<T>| {
        if let Some(item) = item.take() {
            body(item);
        }
    };
    match items.len() {
        0 | 1 => items.iter_mut().for_each(run),
        _ if memory::is_in_share() => items.iter_mut().for_each(run),
        _ => items.par_iter_mut().with_max_len(1).for_each(run),
    }
}

/// Runs all of `body` on a thread of the current rayon pool. There, dividing work among the threads wakes only those that are
/// needed. From outside, every kernel would wait for one thread to wake another.
pub fn on_pool<R: Send>(body: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| body())
}

/// [`on_pool`] for a whole pass that computes at least this many numbers. If they are worth it, the other threads are kept awake.
/// This needs some bytes of the heap, and threads that wait for the next kernel use their core.
pub fn run_pass<R: Send>(numbers: usize, body: impl FnOnce() -> R + Send) -> R {
    if numbers < SMALL {
        return body();
    }
    let mut body = Some(body);
    let mut result = None;
    awake_on_pool(&mut || result = body.take().map(|body| body()));
    match result {
        Some(result) => result,
        None => unreachable!("the body runs once"),
    }
}

/// The part of [`run_pass`] that is compiled once: every layer has two bodies, and rayon's part is twenty times their size.
fn awake_on_pool(body: &mut (dyn FnMut() + Send)) {
    on_pool(|| {
        let _pass = KeepAwake::new(&AWAKE);
        body();
    });
}

/// The number of threads of all pools that wait for work without sleeping. If two pools work at a time, the second keeps fewer
/// threads awake.
static AWAKE: AtomicUsize = AtomicUsize::new(0);

/// The time for which a thread looks for work in one turn. It sleeps after a turn without work.
const TURN: Duration = Duration::from_micros(200);

/// Keeps the other threads of the pool awake between kernels while it exists. A thread of rayon that finds no work for about ten
/// microseconds goes to sleep. Waking it takes longer than many kernels of a small model.
struct KeepAwake {
    is_over: Arc<AtomicBool>,
}

impl KeepAwake {
    /// Must be called on a thread of a pool. `awake` counts the threads.
    fn new(awake: &'static AtomicUsize) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let owner = rayon::current_thread_index();
        for _ in awake.load(Ordering::Relaxed)..threads().saturating_sub(1) {
            awake.fetch_add(1, Ordering::Relaxed);
            let is_over = Arc::clone(&is_over);
            rayon::spawn(move || turn(owner, is_over, awake));
        }
        Self { is_over }
    }
}

impl Drop for KeepAwake {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Executes work of the pool, and looks for more. A thread that waits for a part of its own work may execute this turn, too, and
/// continues when the turn ends. So turns are short, and a thread that is idle starts the next one.
fn turn(owner: Option<usize>, is_over: Arc<AtomicBool>, awake: &'static AtomicUsize) {
    let start = Instant::now();
    let mut has_worked = false;
    let goes_on = || !is_over.load(Ordering::Relaxed) && rayon::current_thread_index() != owner;
    while goes_on() && start.elapsed() < TURN {
        match rayon::yield_now() {
            Some(rayon::Yield::Executed) => has_worked = true,
            // A pause of less than a microsecond, for the other thread of the core.
            _ => (0..16).for_each(|_| std::hint::spin_loop()),
        }
    }
    if has_worked && goes_on() {
        rayon::spawn(move || turn(owner, is_over, awake));
    } else {
        awake.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The number of rows of `width` that are worth a thread.
pub fn rows_per_task(width: usize) -> usize {
    (SMALL / width.max(1)).max(1)
}

/// Rectangles of up to `width` columns that are worth a thread, each with its first row and column.
pub(super) fn rectangles<E>(
    to: MatrixMut<'_, E>,
    width: usize,
) -> impl Iterator<Item = (usize, usize, MatrixMut<'_, E>)> {
    let width = to.cols().clamp(1, width);
    let height = rows_per_task(width);
    let rows = to.row_chunks(height).enumerate();
    rows.flat_map(move |(i, rows)| {
        let parts = rows.col_chunks(width).enumerate();
        parts.map(move |(j, part)| (i * height, j * width, part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_pool_of<R: Send>(threads: usize, body: impl FnOnce() -> R + Send) -> R {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.expect("a pool").install(body)
    }

    #[test]
    fn threads_are_awake_during_a_pass_and_not_after() {
        static AWAKE: AtomicUsize = AtomicUsize::new(0);
        for threads in [1, 2, 3, 8] {
            in_pool_of(threads, || {
                let pass = KeepAwake::new(&AWAKE);
                assert_eq!(AWAKE.load(Ordering::Relaxed), threads - 1);
                drop(pass);
            });
            // A turn ends when it finds that the pass is over, but it may not have started yet.
            let sleeps = (0..6_000).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                AWAKE.load(Ordering::Relaxed) == 0
            });
            assert!(sleeps, "one of {threads} threads waits after the pass");
        }
    }

    #[test]
    fn a_turn_ends_while_other_work_waits() {
        static AWAKE: AtomicUsize = AtomicUsize::new(1);
        /// Works until the pass is over, or for too long.
        fn work(since: Instant, is_over: Arc<AtomicBool>) {
            if since.elapsed() > Duration::from_secs(10) {
                is_over.store(true, Ordering::Relaxed);
            }
            if !is_over.load(Ordering::Relaxed) {
                rayon::spawn(move || work(since, is_over));
            }
        }
        in_pool_of(1, || {
            let is_over = Arc::new(AtomicBool::new(false));
            work(Instant::now(), Arc::clone(&is_over));
            turn(None, Arc::clone(&is_over), &AWAKE);
            let too_long = is_over.swap(true, Ordering::Relaxed);
            assert!(!too_long, "the turn waited for all of the work");
            assert_eq!(AWAKE.load(Ordering::Relaxed), 1, "there is another turn");
            while rayon::yield_now() == Some(rayon::Yield::Executed) {}
            assert_eq!(AWAKE.load(Ordering::Relaxed), 0, "there is no other pass");
        });
    }

    #[test]
    fn concurrent_passes_complete_all_of_their_work() {
        for threads in [1, 2, 3, 8] {
            let sum = AtomicUsize::new(0);
            in_pool_of(threads, || {
                for_each(0..4, |_| {
                    for _ in 0..100 {
                        run_pass(SMALL, || {
                            for_each(0..8, |i| {
                                for_each(0..8, |j| {
                                    sum.fetch_add(8 * i + j, Ordering::Relaxed);
                                });
                            });
                        });
                    }
                });
            });
            assert_eq!(sum.into_inner(), 400 * 63 * 32, "{threads} threads");
        }
    }
}
