//! Work for several threads. How it is cut never depends on how many there are, so neither do the results.

use rayon::prelude::*;

/// Elements that are not worth another thread: a few microseconds of work, about what waking one costs.
pub const SMALL: usize = 16 * 1024;

/// `body(item)` for every item, in any order and by any thread of the current rayon pool.
pub fn for_each<T: Send>(items: Vec<T>, body: impl Fn(T) + Send + Sync) {
    match items.len() {
        0 | 1 => items.into_iter().for_each(body),
        _ => items.into_par_iter().with_max_len(1).for_each(body),
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
