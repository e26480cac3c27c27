//! Reused buffers: a training step in the steady state requests no memory from the system.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::{Debug, Formatter};
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::LocalKey;

use smallvec::SmallVec;

use crate::memory::{self, AllocationGuard};
use crate::simd::{PairSums, Real};

use super::parallel::SMALL;

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
        let memory = take::<E>(space + ALIGNMENT / size_of::<E>());
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
            give_back(std::mem::take(&mut self.memory), self.guard.is_none());
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

    /// The blocks of this thread.
    #[doc(hidden)]
    fn at_hand() -> &'static LocalKey<RefCell<AtHand<Self>>>;
}

macro_rules! pooled {
    ($($element:ty),*) => {
        $(
            impl Pooled for $element {
                fn pool() -> &'static Pool<Self> {
                    static POOL: Pool<$element> = Pool::new();
                    &POOL
                }

                fn at_hand() -> &'static LocalKey<RefCell<AtHand<Self>>> {
                    thread_local! {
                        static AT_HAND: RefCell<AtHand<$element>> =
                            RefCell::new(AtHand(SmallVec::new()));
                    }
                    &AT_HAND
                }
            }
        )*
    };
}

pooled!(f32, f64);

/// Memory of this length: of this thread, if it has a block at hand, or of the pool.
fn take<E: Pooled>(len: usize) -> Vec<E> {
    let at_hand = || {
        let found = E::at_hand().try_with(|blocks| blocks.borrow_mut().take(len));
        found.ok().flatten()
    };
    let found = if len <= SMALL { at_hand() } else { None };
    found.unwrap_or_else(|| E::pool().take(len))
}

/// Returns memory: to the pool, unless it is scratch memory that this thread keeps at hand. Only threads of rayon do so, which run kernels, and none
/// if the free memory of the program has a limit: the pool alone knows how much there is.
fn give_back<E: Pooled>(memory: Vec<E>, is_scratch: bool) {
    let is_limited = memory::max_idle_bytes() < usize::MAX;
    let mut rest = Some(memory);
    if rayon::current_thread_index().is_some() {
        // Fails where the thread ends.
        let _ = E::at_hand().try_with(|blocks| {
            let mut blocks = blocks.borrow_mut();
            if is_limited {
                blocks.clear();
            } else if is_scratch {
                rest = rest.take().and_then(|memory| blocks.keep(memory));
            }
        });
    }
    if let Some(memory) = rest {
        E::pool().give_back(memory);
    }
}

/// Small free blocks of a thread, least recently used first. The kernels of a tile take and return many, and would wait for other threads at the
/// lock of the pool. For the pool, these blocks are in use.
#[doc(hidden)]
#[derive(Debug)]
pub struct AtHand<E: Pooled>(SmallVec<[Vec<E>; AT_HAND]>);

/// The most blocks that a thread keeps at hand.
const AT_HAND: usize = 32;

impl<E: Pooled> AtHand<E> {
    fn take(&mut self, len: usize) -> Option<Vec<E>> {
        let found = self.0.iter().rposition(|block| block.len() == len)?;
        Some(self.0.remove(found))
    }

    /// Keeps a block. Returns it if it is not small, or the oldest one if there are too many.
    fn keep(&mut self, block: Vec<E>) -> Option<Vec<E>> {
        if block.len() > SMALL {
            return Some(block);
        }
        let oldest = (self.0.len() == AT_HAND).then(|| self.0.remove(0));
        self.0.push(block);
        oldest
    }

    /// Returns all blocks to the pool.
    fn clear(&mut self) {
        for block in self.0.drain(..) {
            E::pool().give_back(block);
        }
    }
}

impl<E: Pooled> Drop for AtHand<E> {
    /// The thread ends.
    fn drop(&mut self) {
        self.clear();
    }
}

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
        drop(Buffer::<f64>::exact(LEN));
        assert!(is_in_pool(LEN));
        Buffer::<f64>::exact(LEN).release();
        assert!(!is_in_pool(LEN));
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

    /// Runs on a thread of rayon.
    fn in_pool<R: Send>(body: impl FnOnce() -> R + Send) -> R {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
        pool.expect("a pool").install(body)
    }

    /// Whether the pool of the process has a block for a buffer of this exact length.
    fn is_in_pool(len: usize) -> bool {
        let free = f64::pool().lock();
        free.find(len + ALIGNMENT / size_of::<f64>(), None)
            .is_some()
    }

    #[test]
    fn small_scratch_stays_at_hand_until_its_thread_ends() {
        // No other test uses this length.
        const SCRATCH: usize = 1_237;
        in_pool(|| {
            let at_hand = || f64::at_hand().with_borrow(|blocks| blocks.0.len());
            let first = Buffer::<f64>::exact(SCRATCH);
            let address = first.as_ptr();
            drop(first);
            assert!(!is_in_pool(SCRATCH));
            assert_eq!(Buffer::<f64>::exact(SCRATCH).as_ptr(), address);
            assert_eq!(at_hand(), 1);
            drop(Buffer::<f64>::counted(SCRATCH));
            assert_eq!(at_hand(), 1, "another thread may need an activation");
            drop(Buffer::<f64>::exact(SMALL + 1));
            assert_eq!(at_hand(), 1, "a large buffer is the pool's");
        });
        // The thread ends some time after its pool is dropped.
        let returned = (0..6_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            is_in_pool(SCRATCH)
        });
        assert!(returned);
    }

    #[test]
    fn a_thread_keeps_its_latest_blocks() {
        let mut at_hand = AtHand::<f64>(SmallVec::new());
        for len in 1..=AT_HAND {
            assert!(at_hand.keep(vec![0.0; len]).is_none());
        }
        assert_eq!(at_hand.take(1).map(|block| block.len()), Some(1));
        assert!(at_hand.take(1).is_none());
        assert!(at_hand.keep(vec![0.0; 100]).is_none());
        let oldest = at_hand.keep(vec![0.0; 101]);
        assert_eq!(oldest.map(|block| block.len()), Some(2));
        let large = at_hand.keep(vec![0.0; SMALL + 1]);
        assert_eq!(large.map(|block| block.len()), Some(SMALL + 1));
        // They are not of the pool, to which the others would return.
        at_hand.0.clear();
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
