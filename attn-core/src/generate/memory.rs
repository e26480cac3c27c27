//! The memory of a KV cache.

/// The bytes of the KV cache of a session: [`Sessions::cache_memory`](super::Sessions::cache_memory).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheMemory {
    /// The bytes at the capacity of the session, if it shares nothing.
    pub capacity: usize,
    /// The bytes that this session alone has now.
    pub own: usize,
    /// The bytes that it has now together with forks, or that several of its sequences have, which count for each of them.
    pub shared: usize,
}

impl CacheMemory {
    pub(super) fn of_capacity(capacity: usize) -> Self {
        Self {
            capacity,
            ..Self::default()
        }
    }

    /// Memory that is there from the start.
    pub(super) fn of(taken: usize, is_shared: bool) -> Self {
        Self::of_capacity(taken).with(taken, is_shared)
    }

    pub(super) fn with(self, taken: usize, is_shared: bool) -> Self {
        match is_shared {
            true => Self {
                shared: self.shared + taken,
                ..self
            },
            false => Self {
                own: self.own + taken,
                ..self
            },
        }
    }

    /// The bytes that tokens to come may need.
    pub(super) fn rest(self) -> usize {
        self.capacity.saturating_sub(self.own + self.shared)
    }
}

impl std::iter::Sum for CacheMemory {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, next| Self {
            capacity: sum.capacity + next.capacity,
            own: sum.own + next.own,
            shared: sum.shared + next.shared,
        })
    }
}
