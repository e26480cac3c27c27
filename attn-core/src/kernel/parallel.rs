//! Work for several threads. Where a result depends on how it is cut, that never depends on how many there are.

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

/// Runs all of `body` on a thread of the current rayon pool, if it is worth it: there, dividing work among the threads wakes
/// nobody who is not needed. From outside, every kernel would wait for one thread to wake another.
///
/// `numbers` is how many numbers the body computes at least.
pub fn inside<R: Send>(numbers: usize, body: impl FnOnce() -> R + Send) -> R {
    if numbers < SMALL {
        body()
    } else {
        rayon::scope(|_| body())
    }
}

/// How many rows of `width` make a piece of work that is worth a thread.
pub fn rows_per_task(width: usize) -> usize {
    (SMALL / width.max(1)).max(1)
}
