//! Elementwise loops: one pass over memory for a whole expression.
//!
//! A [`Loop`] has `M` values of `N` operands. The derivative of an expression is such a loop, too: its operands are those that the derivative
//! reads and then the gradient of the value, its values are the gradients of the operands. The loops of [`known`] are compiled in this
//! crate, so that they are optimised in every build; others are emitted where a model is declared.

/// Declares loops and compiles them for every type of number.
///
/// ```text
/// known! {
///     /// The documentation.
///     Scale { by }, scale([x0]: 1 -> 1) { [x0 * p::splat::<E, V>(by)] }
/// }
/// ```
macro_rules! known {
    (@struct [$($doc:tt)*] $Name:ident) => {
        $($doc)*
        #[derive(Clone, Copy, Debug)]
        pub struct $Name;
    };
    (@struct [$($doc:tt)*] $Name:ident { $($number:ident),* }) => {
        $($doc)*
        #[derive(Clone, Copy, Debug)]
        pub struct $Name {
            $(
                /// The number.
                pub $number: f64,
            )*
        }
    };
    ($(
        $(#[$doc:meta])*
        $Name:ident $({ $($number:ident),* })?, $function:ident([$($x:ident),*]: $n:literal -> $m:literal) $body:block
    )*) => {
        $(
            known!(@struct [$(#[$doc])*] $Name $({ $($number),* })?);

            impl Loop<$n, $m> for $Name {
                #[inline(always)]
                fn values<E: p::Real, V: p::Vector<Element = E>>(&self, [$($x),*]: [V; $n]) -> [V; $m] {
                    $(let Self { $($number),* } = *self;)?
                    $body
                }

                fn part<E: p::Kernels>(&self, first: usize, x: &[Read<'_, E>; $n], to: &mut [Write<'_, E>; $m]) {
                    $function(self, first, x, to);
                }
            }
        )*

        compiled! {
            KnownLoops:
            $(
                fn $function<E>(of: &$Name, first: usize, x: &[Read<'_, E>; $n], to: &mut [Write<'_, E>; $m]) {
                    part(of, first, x, to);
                }
            )*
        }
    };
}

pub mod activation;
#[rustfmt::skip]
pub mod known;
mod pieces;
mod repeated;
mod sums;

/// The names that the text of a loop reads, as in emitted code.
mod p {
    pub(super) use crate::kernel::{Kernels, Real, activation as activations};
    pub(super) use crate::simd::{Vector, math, splat};
}

use smallvec::SmallVec;

use super::compiled::compiled;
use super::dropout::Dropout;
use super::parallel::{SMALL, for_each};
use super::{Kernels, Real};
use crate::simd::{Source, Target, Vector, WriteMode};
use sums::Sums;

/// Expressions of `N` numbers with `M` values, over vectors of any kind.
pub trait Loop<const N: usize, const M: usize>: Sync {
    /// The operands that are one number in each row, a bit for each: what depends on these only is computed once in a row.
    const NUMBERS: u32 = 0;

    /// The values. Mark it `#[inline(always)]`.
    fn values<E: Real, V: Vector<Element = E>>(&self, x: [V; N]) -> [V; M];

    /// Computes the elements from `first` on of a larger pass: [`part`]. The known loops call it compiled.
    fn part<E: Kernels>(&self, first: usize, x: &[Read<'_, E>; N], to: &mut [Write<'_, E>; M]) {
        part(self, first, x, to);
    }
}

/// An operand of a loop.
#[derive(Clone, Copy, Debug)]
pub struct Read<'a, E> {
    operand: Operand<'a, E>,
    dropout: Dropout,
}

/// Where an operand stands.
#[derive(Clone, Copy, Debug)]
enum Operand<'a, E> {
    Numbers(&'a [E]),
    Repeated(Repeated<'a, E>),
    InPlace,
    Rows,
}

/// The operand of a loop that stands where the first result is written. As the result of a loop behind an [operation on rows](super::rows),
/// it is written over these.
#[derive(Clone, Copy, Debug)]
pub struct InPlace;

/// The operand of a loop behind an [operation on rows](super::rows) that is these rows.
#[derive(Clone, Copy, Debug)]
pub struct Rows;

/// A result of a loop.
#[derive(Debug)]
pub struct Write<'a, E> {
    to: Place<'a, E>,
    mode: WriteMode,
    dropout: Dropout,
}

/// Where a result goes.
#[derive(Debug)]
enum Place<'a, E> {
    Numbers(&'a mut [E]),
    /// Over the rows before it.
    Rows,
    Sums(Sums<'a, E>),
}

pub use pieces::part;
pub use repeated::{Repeated, repeated};
pub use sums::{column_sums, row_sums};

/// An operand: a slice, one that is [`repeated`], [`InPlace`] or [`Rows`].
pub fn read<'a, E>(operand: impl Into<Read<'a, E>>) -> Read<'a, E> {
    operand.into()
}

impl<'a, E> From<&'a [E]> for Read<'a, E> {
    fn from(numbers: &'a [E]) -> Self {
        Operand::Numbers(numbers).into()
    }
}

impl<'a, E> From<Repeated<'a, E>> for Read<'a, E> {
    fn from(numbers: Repeated<'a, E>) -> Self {
        Operand::Repeated(numbers).into()
    }
}

impl<E> From<InPlace> for Read<'_, E> {
    fn from(InPlace: InPlace) -> Self {
        Operand::InPlace.into()
    }
}

impl<E> From<Rows> for Read<'_, E> {
    fn from(Rows: Rows) -> Self {
        Operand::Rows.into()
    }
}

impl<'a, E> From<Operand<'a, E>> for Read<'a, E> {
    fn from(operand: Operand<'a, E>) -> Self {
        Self {
            operand,
            dropout: Dropout::NONE,
        }
    }
}

impl<'a, E> From<&'a mut [E]> for Write<'a, E> {
    fn from(numbers: &'a mut [E]) -> Self {
        Self::with_mode(numbers, WriteMode::Overwrite)
    }
}

impl<E> From<InPlace> for Write<'_, E> {
    fn from(InPlace: InPlace) -> Self {
        Place::Rows.into()
    }
}

impl<'a, E> From<Place<'a, E>> for Write<'a, E> {
    fn from(to: Place<'a, E>) -> Self {
        Self {
            to,
            mode: WriteMode::Overwrite,
            dropout: Dropout::NONE,
        }
    }
}

impl Dropout {
    /// An operand of which these elements are dropped as they are read.
    pub fn of<'a, E>(self, operand: impl Into<Read<'a, E>>) -> Read<'a, E> {
        Read {
            dropout: self,
            ..operand.into()
        }
    }

    /// A result of which these elements are dropped as they are written.
    pub fn to<'a, E>(self, numbers: impl Into<Write<'a, E>>) -> Write<'a, E> {
        Write {
            dropout: self,
            ..numbers.into()
        }
    }
}

impl<'a, E> Read<'a, E> {
    /// So many elements from `first` on.
    #[inline(always)]
    fn some(self, first: usize, len: usize) -> Self {
        let operand = match self.operand {
            Operand::Numbers(numbers) => Operand::Numbers(&numbers[first..first + len]),
            Operand::Repeated(numbers) => Operand::Repeated(numbers.some(first, len)),
            other => other,
        };
        Self { operand, ..self }
    }

    /// Whether a loop reads it where it stands.
    fn is_plain(&self) -> bool {
        self.dropout.is_none() && !matches!(self.operand, Operand::Repeated(_))
    }

    /// Whether its numbers are copied before a loop reads them.
    fn is_copied(&self) -> bool {
        match &self.operand {
            Operand::Numbers(_) | Operand::Repeated(_) => !self.dropout.is_none(),
            Operand::InPlace | Operand::Rows => false,
        }
    }

    /// The same with these numbers for [`Rows`].
    fn with_rows(self, rows: Operand<'a, E>) -> Self {
        let operand = match self.operand {
            Operand::Rows => rows,
            other => other,
        };
        Self { operand, ..self }
    }

    /// The numbers where they stand.
    #[inline(always)]
    #[track_caller]
    fn source(&self) -> Source<'a, E> {
        match self.operand {
            Operand::Numbers(numbers) => Source::Elements { numbers, step: 0 },
            Operand::InPlace | Operand::Repeated(_) => Source::First,
            Operand::Rows => panic!("a loop that is not behind an operation on rows reads none"),
        }
    }
}

impl<'a, E> Write<'a, E> {
    /// Overwrites the numbers, or adds to them.
    pub fn with_mode(numbers: &'a mut [E], mode: WriteMode) -> Self {
        Self {
            mode,
            ..Place::Numbers(numbers).into()
        }
    }

    /// The numbers so far.
    pub(super) fn as_slice(&self) -> &[E] {
        match &self.to {
            Place::Numbers(numbers) => numbers,
            Place::Rows | Place::Sums(_) => &[],
        }
    }

    /// How many values of the loop it takes.
    fn len(&self) -> usize {
        match &self.to {
            Place::Numbers(numbers) => numbers.len(),
            Place::Rows => 0,
            Place::Sums(sums) => sums.terms(),
        }
    }

    fn is_plain(&self) -> bool {
        self.dropout.is_none() && !matches!(self.to, Place::Sums(_))
    }

    /// How many values are of a row, or of the rest of one.
    fn left(&self) -> usize {
        match &self.to {
            Place::Numbers(_) | Place::Rows => usize::MAX,
            Place::Sums(sums) => sums.left(),
        }
    }

    /// How many rows of this width, at most what is left of one, are written with the same step.
    fn rows(&self, width: usize) -> usize {
        match &self.to {
            Place::Numbers(_) | Place::Rows => usize::MAX,
            Place::Sums(sums) => sums.rows(width),
        }
    }

    /// Where the values of so many rows go, which are the next ones.
    fn next_rows(&mut self, [rows, width]: [usize; 2]) -> Target<'_, E> {
        match &mut self.to {
            Place::Numbers(numbers) => Target::Elements {
                numbers: split_off(numbers, rows * width),
                step: width,
                mode: self.mode,
            },
            Place::Rows => Target::Elements {
                numbers: &mut [],
                step: width,
                mode: self.mode,
            },
            Place::Sums(sums) => sums.next([rows, width]),
        }
    }

    /// Fails if there are numbers, and not so many.
    #[track_caller]
    pub(super) fn assert_len(&self, len: usize) {
        assert!(
            self.is_over_rows() || self.len() == len,
            "operands and results of one length"
        );
    }

    fn is_over_rows(&self) -> bool {
        matches!(self.to, Place::Rows)
    }

    /// The same, for as long as it is lent.
    pub(super) fn reborrow(&mut self) -> Write<'_, E> {
        let to = match &mut self.to {
            Place::Numbers(numbers) => Place::Numbers(numbers),
            Place::Rows => Place::Rows,
            Place::Sums(sums) => Place::Sums(sums.reborrow()),
        };
        Write { to, ..*self }
    }

    /// The next elements, so many or those that are left.
    ///
    /// # Panics
    /// If it is of sums.
    #[track_caller]
    pub(super) fn next(&mut self, len: usize) -> Write<'a, E> {
        let to = match std::mem::replace(&mut self.to, Place::Rows) {
            Place::Numbers(numbers) => {
                let (numbers, rest) = numbers.split_at_mut(len.min(numbers.len()));
                self.to = Place::Numbers(rest);
                Place::Numbers(numbers)
            }
            Place::Rows => Place::Rows,
            Place::Sums(_) => panic!("sums are not of a part"),
        };
        Write { to, ..*self }
    }
}

/// The values of a loop for all elements, shared between threads.
///
/// # Panics
/// If the lengths differ.
#[track_caller]
pub fn compute<E: Kernels, const N: usize, const M: usize>(
    of: &impl Loop<N, M>,
    x: [Read<'_, E>; N],
    mut to: [Write<'_, E>; M],
) {
    let len = to.first().map_or(0, Write::len);
    assert_lens(&x, len);
    if len <= SMALL {
        return of.part(0, &x, &mut to);
    }
    in_parts(&mut to, &|first, to| {
        // A part has as many results as the whole.
        if let Ok(to) = <&mut [Write<'_, E>; M]>::try_from(to) {
            some(of, first, &x, to);
        }
    });
}

/// The same without other threads. The results may be [sums](row_sums).
///
/// # Panics
/// If the lengths differ.
#[track_caller]
pub fn compute_here<E: Kernels, const N: usize, const M: usize>(
    of: &impl Loop<N, M>,
    x: [Read<'_, E>; N],
    mut to: [Write<'_, E>; M],
) {
    let len = to.first().map_or(0, Write::len);
    assert_lens(&x, len);
    to.iter().for_each(|to| to.assert_len(len));
    of.part(0, &x, &mut to);
}

/// Fails unless all operands have so many elements.
#[track_caller]
pub(super) fn assert_lens<E>(x: &[Read<'_, E>], len: usize) {
    let has_len = |x: &Read<'_, E>| match &x.operand {
        Operand::Numbers(numbers) => numbers.len() == len,
        Operand::Repeated(numbers) => numbers.len() == len,
        Operand::InPlace | Operand::Rows => true,
    };
    assert!(x.iter().all(has_len), "operands and results of one length");
}

/// The values of a loop for the elements from `first` on.
///
/// # Panics
/// If there are fewer operands.
#[track_caller]
pub(super) fn some<E: Kernels, const N: usize, const M: usize>(
    of: &impl Loop<N, M>,
    first: usize,
    x: &[Read<'_, E>; N],
    to: &mut [Write<'_, E>; M],
) {
    let len = to.first().map_or(0, |to| to.as_slice().len());
    of.part(first, &each(x, &|x| x.some(first, len)), to);
}

/// Each operand, changed. `change` is no type parameter, so that `map` of arrays is compiled once, and not for each loop.
fn each<'a, E: Copy, const N: usize>(
    x: &[Read<'a, E>; N],
    change: &dyn Fn(&Read<'a, E>) -> Read<'a, E>,
) -> [Read<'a, E>; N] {
    x.each_ref().map(change)
}

/// The same of a loop that reads `rows`, and is perhaps written over them.
///
/// # Panics
/// If there are fewer operands.
#[track_caller]
pub(super) fn some_behind<E: Kernels, const N: usize>(
    of: &impl Loop<N, 1>,
    first: usize,
    x: [Read<'_, E>; N],
    rows: &mut [E],
    to: Write<'_, E>,
) {
    let x = each(&x, &|x| x.some(first, rows.len()));
    if to.is_over_rows() {
        let x = each(&x, &|x| x.with_rows(Operand::InPlace));
        let rows = Place::Numbers(rows);
        of.part(first, &x, &mut [Write { to: rows, ..to }]);
    } else {
        let rows = Operand::Numbers(rows);
        of.part(first, &each(&x, &|x| x.with_rows(rows)), &mut [to]);
    }
}

/// The first elements, which are taken out of the slice to write.
#[inline(always)]
pub(super) fn split_off<'a, E>(numbers: &mut &'a mut [E], len: usize) -> &'a mut [E] {
    let (some, rest) = std::mem::take(numbers).split_at_mut(len);
    *numbers = rest;
    some
}

compiled! {
    Loops:

    /// Calls `body` for parts of the results, with the number of the first element of each. The threads share the parts.
    fn in_parts<E>(to: &mut [Write<'_, E>], body: &PartBody<'_, E>) {
        let len = to.first().map_or(0, |to| to.as_slice().len());
        let parts = (0..len).step_by(SMALL).map(|first| {
            let part = to.iter_mut().map(|to| to.next(SMALL));
            (first, part.collect::<SmallVec<[_; 4]>>())
        });
        for_each(parts, |(first, mut part)| body(first, &mut part));
    }
}

/// Computes a part of the results. It is no type parameter: what shares work between threads is compiled once.
type PartBody<'a, E> = dyn Fn(usize, &mut [Write<'_, E>]) + Sync + 'a;

#[cfg(test)]
mod tests;
