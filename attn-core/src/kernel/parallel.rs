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

/// How many rows of `width` make a piece of work that is worth a thread.
pub fn rows_per_task(width: usize) -> usize {
    (SMALL / width.max(1)).max(1)
}
