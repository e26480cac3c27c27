//! The memory of an operation, as a constant.

use dfdx::tensor::Tape;

use crate::{Backend, Element, Error, kernel::Dtype, memory::can_allocate, sizes::product};

/// The memory of a step of an operation.
///
/// ```
/// use attn::__private::runtime::fused::{Entry, Footprint, Peaks};
///
/// // y = f(x), in a loop of 3 rounds: x is kept, and so is the last y; its derivative wants a gradient for each of the two.
/// const ROUNDS: Footprint = Footprint::of(
///     &[Footprint::array(&[2, 5]), Footprint::array(&[2, 1])],
///     &[Entry::Repeat(3, &[Entry::Take(0)]), Entry::Take(1)],
///     &[
///         Entry::Take(1),
///         Entry::Repeat(3, &[Entry::Take(0), Entry::Free(1), Entry::Free(0), Entry::Take(1), Entry::Free(0)]),
///     ],
/// );
/// assert_eq!(ROUNDS, Footprint::same(Peaks { kept: 32, forward: 32, inference: 10, backward: 12 }));
/// assert_eq!(ROUNDS.bytes::<f32>(), 4 * (32 + 12));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// With the dtype of the model.
    model: Peaks,
    /// With [`Dtype::Bf16`], where some of what is kept is rounded.
    bf16: Peaks,
}

/// The memory of a step, as how many numbers it could hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peaks {
    /// Saved from the forward pass for the backward pass.
    pub kept: usize,
    /// The peak in the forward pass, including the saved ones.
    pub forward: usize,
    /// The peak of a forward pass without a backward pass. A round of a loop saves nothing then.
    pub inference: usize,
    /// The peak in the backward pass, without the saved ones.
    pub backward: usize,
}

/// A change of the memory in use, by a part. A part is the index of its [`Footprint`] in a list.
#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    /// The forward pass of a part, which leaves its saved bytes.
    Take(usize),
    /// The backward pass of a part.
    Use(usize),
    /// The saved bytes of a part are freed.
    Free(usize),
    /// With [`Dtype::Bf16`], the second part takes the place of the first one: both exist while it is made of that.
    Replace(usize, usize),
    /// A loop with this many rounds.
    Repeat(usize, &'a [Entry<'a>]),
}

impl Peaks {
    /// No memory.
    pub const NONE: Self = Self {
        kept: 0,
        forward: 0,
        inference: 0,
        backward: 0,
    };

    /// The memory of this many numbers, which are kept.
    const fn kept(numbers: usize) -> Self {
        Self {
            kept: numbers,
            forward: numbers,
            inference: numbers,
            backward: 0,
        }
    }

    const fn most(self) -> usize {
        let backward = self.kept.saturating_add(self.backward);
        if self.forward > backward {
            self.forward
        } else {
            backward
        }
    }
}

impl Footprint {
    /// No memory.
    pub const NONE: Self = Self::same(Peaks::NONE);

    /// The same memory with both dtypes.
    pub const fn same(peaks: Peaks) -> Self {
        Self {
            model: peaks,
            bf16: peaks,
        }
    }

    /// The product of axes; `usize::MAX` on overflow.
    pub const fn numbers(axes: &[usize]) -> usize {
        let numbers = product(axes);
        if numbers > usize::MAX as u64 {
            return usize::MAX;
        }
        numbers as usize
    }

    /// An array with these axes.
    pub const fn array(axes: &[usize]) -> Self {
        Self::same(Peaks::kept(Self::numbers(axes)))
    }

    /// [`RoundedRows`](crate::kernel::RoundedRows): with [`Dtype::Bf16`], two numbers take the memory of one. With the dtype of the model there are
    /// none.
    pub const fn rounded(rows: usize, width: usize) -> Self {
        Self {
            model: Peaks::NONE,
            bf16: Peaks::kept(Self::numbers(&[rows, width]).div_ceil(2)),
        }
    }

    /// Indices with these axes, in an operation on numbers of `E`.
    pub const fn ids<E>(axes: &[usize]) -> Self {
        let each = size_of::<usize>().div_ceil(size_of::<E>());
        Self::same(Peaks::kept(Self::numbers(axes).saturating_mul(each)))
    }

    /// An array that exists during a computation of the forward pass.
    pub const fn forward_only(axes: &[usize]) -> Self {
        Self::same(Peaks {
            kept: 0,
            ..Peaks::kept(Self::numbers(axes))
        })
    }

    /// An array that exists during a computation of the backward pass.
    pub const fn backward_only(axes: &[usize]) -> Self {
        Self::same(Peaks {
            backward: Self::numbers(axes),
            ..Peaks::NONE
        })
    }

    /// An operation, from the memory of its parts. The backward pass need not free all saved bytes.
    pub const fn of(parts: &[Self], forward: &[Entry<'_>], backward: &[Entry<'_>]) -> Self {
        Self {
            model: Dtype::Model.peaks(parts, forward, backward),
            bf16: Dtype::Bf16.peaks(parts, forward, backward),
        }
    }

    /// A computation of nothing but what is kept.
    pub const fn kept_alone(self) -> Self {
        Self {
            model: Peaks {
                forward: self.model.kept,
                inference: self.model.kept,
                ..self.model
            },
            bf16: Peaks {
                forward: self.bf16.kept,
                inference: self.bf16.kept,
                ..self.bf16
            },
        }
    }

    /// Adds the result of the operation, and the gradient of the result.
    pub const fn with_result(self, result: Self) -> Self {
        let forward = [Entry::Take(0), Entry::Take(1)];
        let backward = [Entry::Take(0), Entry::Use(1)];
        Self::of(&[result, self], &forward, &backward)
    }

    /// Adds an array that is kept from the forward pass for the backward pass.
    pub const fn with_kept(self, array: Self) -> Self {
        let forward = [Entry::Take(0), Entry::Take(1)];
        Self::of(&[array, self], &forward, &[Entry::Use(1)])
    }

    /// Adds the results of a chain of operations, so many numbers, and their gradients.
    pub const fn keeping(self, results: u64) -> Self {
        let both = results.saturating_mul(2);
        let both = if both > usize::MAX as u64 {
            usize::MAX
        } else {
            both as usize
        };
        Self {
            model: Peaks {
                kept: self.model.kept.saturating_add(both),
                ..self.model
            },
            bf16: Peaks {
                kept: self.bf16.kept.saturating_add(both),
                ..self.bf16
            },
        }
    }

    const fn peaks(self, dtype: Dtype) -> Peaks {
        match dtype {
            Dtype::Model => self.model,
            Dtype::Bf16 => self.bf16,
        }
    }

    /// The peak bytes of both passes; `usize::MAX` on overflow.
    pub const fn bytes<E>(self) -> usize {
        self.model.most().saturating_mul(size_of::<E>())
    }

    /// [`bytes`](Self::bytes) with [`Dtype::Bf16`].
    pub const fn bf16_bytes<E>(self) -> usize {
        self.bf16.most().saturating_mul(size_of::<E>())
    }

    /// Checks that there is enough memory: for both passes with a tape, or for the forward pass without one. Free memory of the pool is
    /// subtracted. The operating system is queried only for 1 GiB or more.
    ///
    /// # Errors
    /// [`Error::TooLarge`], with the bytes.
    pub fn check<E: Element, D: Backend<E>, T: Tape<E, D>>(
        self,
        layer: &'static str,
    ) -> Result<(), Error<D::Err>> {
        self.check_in::<E, D, T>(Dtype::Model, layer)
    }

    /// [`check`](Self::check) with a dtype of products.
    ///
    /// # Errors
    /// As `check`.
    pub fn check_in<E: Element, D: Backend<E>, T: Tape<E, D>>(
        self,
        dtype: Dtype,
        layer: &'static str,
    ) -> Result<(), Error<D::Err>> {
        let peaks = self.peaks(dtype);
        let numbers = match T::OWNS_TAPE {
            true => peaks.most(),
            false => peaks.inference,
        };
        let bytes = numbers.saturating_mul(size_of::<E>());
        let missing = bytes.saturating_sub(E::pool().idle_bytes());
        match missing < MIN_CHECKED || can_allocate(Some(missing)) {
            true => Ok(()),
            false => Err(Error::TooLarge {
                layer,
                sizes: vec![("size of activations in bytes", bytes)],
            }),
        }
    }
}

/// The minimum number of bytes for which the operating system is queried.
const MIN_CHECKED: usize = 1 << 30;

impl Dtype {
    const fn peaks(
        self,
        parts: &[Footprint],
        forward: &[Entry<'_>],
        backward: &[Entry<'_>],
    ) -> Peaks {
        let before = Level {
            dtype: self,
            now: 0,
            most: 0,
        };
        let after = before.pass(parts, forward, true);
        let kept = after.now;
        let most = Level {
            now: kept,
            most: kept,
            ..before
        };
        let most = most.pass(parts, backward, true).most;
        Peaks {
            kept,
            forward: after.most,
            inference: before.pass(parts, forward, false).most,
            backward: most - kept,
        }
    }
}

/// The current and the peak number of elements; `usize::MAX` on overflow.
#[derive(Clone, Copy)]
struct Level {
    dtype: Dtype,
    now: usize,
    most: usize,
}

impl Level {
    /// `keeps` says whether a round of a loop saves anything. If not, the level after a round is the level before it.
    const fn pass(mut self, parts: &[Footprint], entries: &[Entry<'_>], keeps: bool) -> Self {
        let mut at = 0;
        while at < entries.len() {
            match entries[at] {
                Entry::Take(part) => {
                    let part = parts[part].peaks(self.dtype);
                    self = self.reach(if keeps { part.forward } else { part.inference });
                    self.now = self.now.saturating_add(part.kept);
                }
                Entry::Use(part) => self = self.reach(parts[part].peaks(self.dtype).backward),
                Entry::Free(part) => {
                    let part = parts[part].peaks(self.dtype);
                    self.now = self.now.saturating_sub(part.kept);
                }
                Entry::Replace(..) if matches!(self.dtype, Dtype::Model) => {}
                Entry::Replace(old, new) => {
                    let entries = [Entry::Take(new), Entry::Free(old)];
                    self = self.pass(parts, &entries, keeps);
                }
                Entry::Repeat(rounds, body) => {
                    let before = self.now;
                    let mut round = 0;
                    while round < rounds {
                        self = self.pass(parts, body, keeps);
                        if !keeps {
                            self.now = before;
                        }
                        round += 1;
                        // Each round changes the level by as much, so it is highest in the first or in the last one.
                        if round == 1 && rounds > 2 {
                            self.now = after(rounds - 2, before, self.now);
                            round = rounds - 1;
                        }
                    }
                }
            }
            at += 1;
        }
        self
    }

    const fn reach(mut self, more: usize) -> Self {
        let most = self.now.saturating_add(more);
        if most > self.most {
            self.most = most;
        }
        self
    }
}

/// The level behind so many more rounds, if one changes it in this way.
const fn after(rounds: usize, from: usize, to: usize) -> usize {
    match to >= from {
        true => to.saturating_add((to - from).saturating_mul(rounds)),
        false => to.saturating_sub((from - to).saturating_mul(rounds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop of any number of rounds takes what its rounds take one after the other.
    #[test]
    fn rounds_may_be_counted_at_once() {
        let parts = [Footprint::array(&[3]), Footprint::forward_only(&[7])];
        let (forth, back) = (
            [Entry::Take(1), Entry::Take(0)],
            [Entry::Take(1), Entry::Free(0)],
        );
        for rounds in [0, 1, 2, 3, 4, 1_000_000] {
            let [forward, backward] = [&forth, &back].map(|body| [Entry::Repeat(rounds, body)]);
            let once = Footprint::of(&parts, &forward, &backward);
            if rounds < 10 {
                let forward = forth.repeat(rounds);
                let backward = back.repeat(rounds);
                let each = Footprint::of(&parts, &forward, &backward);
                assert_eq!(
                    (once.model.kept, once.model.forward),
                    (each.model.kept, each.model.forward)
                );
                assert_eq!(once.model.backward, each.model.backward);
            }
            assert_eq!(once.model.kept, 3 * rounds);
        }
    }

    #[test]
    fn overflow_saturates() {
        let half = usize::MAX / 2;
        let parts = [Footprint::array(&[half]), Footprint::array(&[half, 3, 0])];
        let twice = [Entry::Take(0), Entry::Take(1), Entry::Take(0)];
        assert_eq!(Footprint::of(&parts, &twice, &[]).bytes::<u8>(), 2 * half);
        assert_eq!(
            Footprint::of(&parts, &twice, &[]).bytes::<f32>(),
            usize::MAX
        );
        let thrice = [Entry::Repeat(3, &[Entry::Take(0)]), Entry::Free(0)];
        for [forward, backward] in [[&thrice[..], &[]], [&[], &thrice]] {
            let large = Footprint::of(&parts, forward, backward);
            assert_eq!(large.bytes::<u8>(), usize::MAX);
        }
        assert_eq!(
            Footprint::array(&[usize::MAX, 3]),
            Footprint::array(&[usize::MAX])
        );
    }

    #[test]
    fn the_peak_of_a_pass_may_exceed_the_saved_bytes() {
        let part = Footprint::same(Peaks {
            kept: 2,
            forward: 5,
            inference: 4,
            backward: 7,
        });
        let whole = Footprint::of(
            &[part, Footprint::forward_only(&[3, 2])],
            &[Entry::Take(1), Entry::Take(0), Entry::Take(0)],
            &[Entry::Use(0), Entry::Free(0), Entry::Use(0), Entry::Free(0)],
        );
        let expected = Footprint::same(Peaks {
            kept: 4,
            forward: 7,
            inference: 6,
            backward: 7,
        });
        assert_eq!(whole, expected);
    }
}
