//! Work for several threads. Where a result depends on the partition, the partition does not depend on the number of threads.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

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
    let items = items.into_iter().map(|item| Mutex::new(Some(item)));
    let items: SmallVec<[Mutex<Option<T>>; FEW]> = items.collect();
    let run = |index: usize| {
        let item = locked(&items[index]).take();
        item.into_iter().for_each(&body);
    };
    match threads().min(items.len()) {
        0 | 1 => (0..items.len()).for_each(run),
        helpers => share(items.len(), helpers, &run),
    }
}

/// Runs `body` for every index below `count` on so many threads. Each thread has a range of indices, and takes those of the others at the end of its own. With two
/// threads, a thread mostly has the same range in each kernel of a pass, and its cache still has what it wrote in the kernel before.
fn share(count: usize, helpers: usize, body: &(dyn Fn(usize) + Sync)) {
    let bound = |helper: usize| helper * count / helpers;
    let ranges = (0..helpers).map(|helper| Mutex::new(bound(helper)..bound(helper + 1)));
    let ranges: SmallVec<[Mutex<Range<usize>>; FEW]> = ranges.collect();
    let finished = AtomicUsize::new(0);
    let is_finished = || finished.load(Ordering::Acquire) == helpers;
    let work = |helper: usize| {
        let own = || locked(&ranges[helper]).next();
        std::iter::from_fn(own).for_each(body);
        let others = ranges.iter().cycle().skip(helper + 1).take(helpers - 1);
        for range in others {
            std::iter::from_fn(|| locked(range).next_back()).for_each(body);
        }
        finished.fetch_add(1, Ordering::Release);
    };
    on_threads(helpers, &work, &is_finished);
}

/// Calls `work` with every number below `helpers`: with 0 on this thread, which then waits for the others. It stays awake for up to a [`TURN`], since waking a thread
/// of rayon takes as long as many kernels.
fn on_threads(
    helpers: usize,
    work: &(dyn Fn(usize) + Sync),
    is_finished: &(dyn Fn() -> bool + Sync),
) {
    if helpers > 1 {
        let last = helpers - 1;
        rayon::join(|| on_threads(last, work, is_finished), || work(last));
        return;
    }
    work(0);
    let start = Instant::now();
    while !is_finished() && start.elapsed() < TURN {
        look_for_work();
    }
}

/// Executes a job of the pool if there is one, and returns whether there was. Otherwise pauses for less than a microsecond, for the other thread of the core.
fn look_for_work() -> bool {
    let has_worked = rayon::yield_now() == Some(rayon::Yield::Executed);
    if !has_worked {
        (0..16).for_each(|_| std::hint::spin_loop());
    }
    has_worked
}

/// No thread panics while it holds one of these.
fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
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
        has_worked |= look_for_work();
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

/// A slice as `count` parts of the same length, which may be 0.
pub(super) fn equal_chunks<E>(x: &mut [E], count: usize) -> impl Iterator<Item = &mut [E]> {
    let len = x.len();
    let mut rest = x;
    (0..count).map(move |_| {
        let (part, others) = std::mem::take(&mut rest).split_at_mut(len / count);
        rest = others;
        part
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
    fn every_item_is_taken_once() {
        for threads in [1, 2, 3, 8] {
            for count in [0, 1, 2, 3, 7, 100] {
                let times: Vec<_> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                in_pool_of(threads, || {
                    for_each(&times, |times| {
                        times.fetch_add(1, Ordering::Relaxed);
                    });
                });
                let once = times.iter().all(|times| times.load(Ordering::Relaxed) == 1);
                assert!(once, "{count} items on {threads} threads: {times:?}");
            }
        }
    }

    /// The first thread has the first two items, and waits in one of them for all the others.
    #[test]
    fn a_thread_takes_items_of_one_that_is_late() {
        let others = AtomicUsize::new(0);
        let start = Instant::now();
        in_pool_of(2, || {
            for_each(0..4, |item| match item {
                0 => {
                    while others.load(Ordering::Relaxed) < 3 && start.elapsed().as_secs() < 60 {
                        std::thread::yield_now();
                    }
                    assert_eq!(
                        others.load(Ordering::Relaxed),
                        3,
                        "items wait for the first"
                    );
                }
                _ => {
                    others.fetch_add(1, Ordering::Relaxed);
                }
            });
        });
    }

    #[test]
    fn a_panic_of_an_item_reaches_the_caller() {
        for threads in [1, 2, 8] {
            for panics in [0, 5, 9] {
                let result = std::panic::catch_unwind(|| {
                    in_pool_of(threads, || {
                        for_each(0..10, |item| assert!(item != panics, "item {item}"));
                    });
                });
                assert!(result.is_err(), "item {panics} on {threads} threads");
            }
        }
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
