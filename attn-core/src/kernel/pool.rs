//! Reused buffers: a training step in the steady state requests no memory from the system.

use std::collections::VecDeque;
use std::fmt::{Debug, Formatter};
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, Once, PoisonError};

use crate::memory::{self, AllocationGuard};
use crate::simd::{PairSums, Real};

/// The bytes of a cache line and of the widest vector. Buffers are aligned to it.
const ALIGNMENT: usize = 64;

/// A slice of numbers whose memory returns to the pool on drop.
pub struct Buffer<E: Pooled> {
    memory: Vec<E>,
    start: usize,
    len: usize,
    /// Counts the memory, if it is that of activations.
    guard: Option<AllocationGuard>,
}

impl<E: Pooled> Buffer<E> {
    /// A buffer of arbitrary numbers, for kernels that write before they read.
    pub fn uninit(len: usize) -> Self {
        Self::within(size_class(len), len)
    }

    /// The same without memory to spare, for numbers that are always as many: only a buffer of this length takes the memory again.
    pub fn exact(len: usize) -> Self {
        Self::within(len, len)
    }

    fn within(space: usize, len: usize) -> Self {
        // The space for the alignment is added after rounding: a power of two is a size class, and often a length.
        let memory = E::pool().take(space + ALIGNMENT / size_of::<E>());
        let start = match memory.as_ptr().align_offset(ALIGNMENT) {
            offset if offset <= ALIGNMENT / size_of::<E>() => offset,
            _ => 0,
        };
        Self {
            memory,
            start,
            len,
            guard: None,
        }
    }

    /// The number of elements that a buffer of `len` takes from the pool; `None` if it exceeds any memory.
    pub fn allocation_len(len: usize) -> Option<usize> {
        let countable = len <= isize::MAX as usize / size_of::<E>();
        countable.then(|| size_class(len) + ALIGNMENT / size_of::<E>())
    }

    /// An uninitialised buffer that counts as [activations](crate::memory).
    pub fn counted(len: usize) -> Self {
        let mut buffer = Self::uninit(len);
        buffer.guard = Some(AllocationGuard::of::<E>(len));
        buffer
    }

    /// A buffer of zeros.
    pub fn zeros(len: usize) -> Self {
        let mut buffer = Self::uninit(len);
        buffer.fill(E::ZERO);
        buffer
    }
}

impl<E: Pooled> Deref for Buffer<E> {
    type Target = [E];
    #[inline]
    fn deref(&self) -> &[E] {
        &self.memory[self.start..][..self.len]
    }
}

impl<E: Pooled> DerefMut for Buffer<E> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [E] {
        &mut self.memory[self.start..][..self.len]
    }
}

impl<E: Pooled> Drop for Buffer<E> {
    fn drop(&mut self) {
        // That of a released buffer is gone.
        if !self.memory.is_empty() {
            E::pool().give_back(std::mem::take(&mut self.memory));
        }
    }
}

impl<E: Pooled> Debug for Buffer<E> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} numbers)", self.len)
    }
}

impl<E: Pooled> Buffer<E> {
    /// Gives the memory back to the system instead of the pool, for numbers that there will be no others of.
    pub fn release(mut self) {
        let memory = std::mem::take(&mut self.memory);
        E::pool().lock().in_use -= memory.len();
    }
}

/// A number that there is a pool of buffers for.
pub trait Pooled: PairSums {
    /// The pool of the process.
    #[doc(hidden)]
    fn pool() -> &'static Pool<Self>;
}

macro_rules! pooled {
    ($($element:ty),*) => {
        $(
            impl Pooled for $element {
                fn pool() -> &'static Pool<Self> {
                    static POOL: Pool<$element> = Pool::new();
                    &POOL
                }
            }
        )*
    };
}

pooled!(f32, f64);

/// Free memory, least recently used first.
#[doc(hidden)]
#[derive(Debug)]
pub struct Pool<E>(Mutex<Free<E>>);

#[derive(Debug)]
struct Free<E> {
    blocks: VecDeque<Block<E>>,
    /// Numbers in `blocks`.
    idle: usize,
    /// Numbers in use, now and at the peak.
    in_use: usize,
    most_in_use: usize,
}

#[derive(Debug)]
struct Block<E> {
    memory: Vec<E>,
    /// The thread that used it last: a part of it may be in that thread's cache.
    thread: Option<usize>,
}

impl<E> Free<E> {
    /// The most recently used block of this length is probably still in a cache: in that of this thread, if there is one of its own.
    fn find(&self, len: usize, thread: Option<usize>) -> Option<usize> {
        let mut blocks = self.blocks.iter();
        let own = blocks.rposition(|block| block.memory.len() == len && block.thread == thread);
        own.or_else(|| {
            let mut blocks = self.blocks.iter();
            blocks.rposition(|block| block.memory.len() == len)
        })
    }

    /// Releases the least recently used blocks beyond twice the peak use. So a step whose parts need different lengths finds all
    /// of them again, and the pool is bounded. The limit of the program may be lower.
    fn trim(&mut self) {
        let most =
            (2 * self.most_in_use - self.in_use).min(memory::max_idle_bytes() / size_of::<E>());
        while self.idle > most {
            let oldest = self.blocks.pop_front();
            self.idle -= oldest.map_or(0, |block| block.memory.len());
        }
    }
}

impl<E: Real> Pool<E> {
    const fn new() -> Self {
        Self(Mutex::new(Free {
            blocks: VecDeque::new(),
            idle: 0,
            in_use: 0,
            most_in_use: 0,
        }))
    }

    /// The bytes of free memory.
    pub fn idle_bytes(&self) -> usize {
        self.lock().idle * size_of::<E>()
    }

    fn take(&self, len: usize) -> Vec<E> {
        let mut free = self.lock();
        free.in_use += len;
        free.most_in_use = free.most_in_use.max(free.in_use);
        let found = free.find(len, rayon::current_thread_index());
        let block = found.and_then(|at| free.blocks.remove(at));
        if block.is_some() {
            free.idle -= len;
        }
        free.trim();
        drop(free);
        block.map(|block| block.memory).unwrap_or_else(|| {
            FIRST.call_once(keep_freed_memory);
            vec![E::ZERO; len]
        })
    }

    fn give_back(&self, memory: Vec<E>) {
        let mut free = self.lock();
        free.in_use -= memory.len();
        free.idle += memory.len();
        let thread = rayon::current_thread_index();
        free.blocks.push_back(Block { memory, thread });
        free.trim();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Free<E>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static FIRST: Once = Once::new();

/// Makes the system's allocator keep the memory that a training step frees for the next one.
///
/// Results and gradients are dfdx's, and not from a pool. glibc maps new pages for them and unmaps the pages when they are freed,
/// unless a larger block was freed before: then it keeps twice as much. New pages cost a third of the time of a small layer. The
/// block here is the largest one that glibc adapts to. No page of it is touched.
fn keep_freed_memory() {
    const LARGEST: usize = 32 << 20;
    drop(std::hint::black_box(vec![0_u8; LARGEST - (64 << 10)]));
}

/// Lengths are rounded up to eighths of a power of two, so that nearly equal ones share memory.
fn size_class(len: usize) -> usize {
    let step = (len.next_power_of_two() / 8).max(64);
    len.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_memory_is_not_in_the_pool() {
        // No other test uses this length.
        const LEN: usize = 98_765;
        let is_there = || {
            let free = f64::pool().lock();
            free.find(LEN + ALIGNMENT / size_of::<f64>(), None)
                .is_some()
        };
        drop(Buffer::<f64>::exact(LEN));
        assert!(is_there());
        Buffer::<f64>::exact(LEN).release();
        assert!(!is_there());
    }

    #[test]
    fn memory_is_reused() {
        // No other test uses this length.
        const LEN: usize = 123_457;
        let first = Buffer::<f64>::uninit(LEN);
        let address = first.as_ptr();
        drop(first);
        let second = Buffer::<f64>::zeros(LEN);
        assert_eq!(second.as_ptr(), address);
        assert_eq!(second.len(), LEN);
        assert!(second.iter().all(|&x| x == 0.0));
        // A buffer in use is not given out again.
        assert_ne!(Buffer::<f64>::uninit(LEN).as_ptr(), address);
    }

    #[test]
    fn buffers_are_aligned_to_cache_lines() {
        for len in [0, 1, 7, 64, 1000] {
            assert_eq!(Buffer::<f32>::uninit(len).as_ptr() as usize % ALIGNMENT, 0);
            assert_eq!(Buffer::<f64>::uninit(len).as_ptr() as usize % ALIGNMENT, 0);
        }
    }

    #[test]
    fn idle_memory_is_at_most_twice_the_memory_in_use() {
        let pool = Pool::<f32>::new();
        let mut most = 0;
        for len in [1000, 3000, 500, 4000, 2000, 8000, 100, 6000] {
            let block = pool.take(len);
            most = most.max(block.len());
            let free = pool.lock();
            assert!(free.in_use + free.idle <= 2 * most, "{free:?}");
            drop(free);
            pool.give_back(block);
            let free = pool.lock();
            let lens = free.blocks.iter().map(|block| block.memory.len());
            assert_eq!(free.idle, lens.sum::<usize>());
            assert!(free.in_use == 0 && free.idle <= 2 * most, "{free:?}");
        }
    }

    #[test]
    fn a_step_reuses_the_memory_of_the_previous_step() {
        let pool = Pool::<f32>::new();
        let step = || {
            let saved = [pool.take(1000), pool.take(2000)];
            let mut addresses: Vec<_> = saved.iter().map(Vec::as_ptr).collect();
            // One after the other, so that together they are more than the peak use.
            for len in [500, 700, 900] {
                let scratch = pool.take(len);
                addresses.push(scratch.as_ptr());
                pool.give_back(scratch);
            }
            for block in saved {
                pool.give_back(block);
            }
            addresses
        };
        let first = step();
        assert_eq!(step(), first);
    }

    #[test]
    fn size_classes_waste_at_most_an_eighth() {
        for len in (1..100_000).step_by(97) {
            let class = size_class(len);
            assert!(
                class >= len && class <= len + (len.next_power_of_two() / 8).max(64),
                "{len}"
            );
        }
    }
}
