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

                fn part<E: p::Kernels>(&self, first: usize, x: [Read<'_, E>; $n], to: [Write<'_, E>; $m]) {
                    $function(self, first, x, to);
                }
            }
        )*

        compiled! {
            KnownLoops:
            $(
                fn $function<E>(of: &$Name, first: usize, x: [Read<'_, E>; $n], to: [Write<'_, E>; $m]) {
                    part(of, first, x, to);
                }
            )*
        }
    };
}

pub mod activation;
#[rustfmt::skip]
pub mod known;
mod repeated;
mod sums;

/// The names that the text of a loop reads, as in emitted code.
mod p {
    pub(super) use crate::kernel::{Kernels, Real, activation as activations};
    pub(super) use crate::simd::{Vector, math, splat};
}

use std::array::from_fn;

use smallvec::SmallVec;

use super::compiled::compiled;
use super::dropout::Dropout;
use super::parallel::{SMALL, for_each};
use super::{Buffer, Kernels, Pooled, Real};
use crate::simd::{Constant, Kernel, Source, Vector, WriteMode, Zipped, run};
use repeated::{Run, Runs};
use sums::Sums;

/// Elements of a few slices that the nearest cache holds.
const NEAR: usize = 1024;

/// Expressions of `N` numbers with `M` values, over vectors of any kind.
pub trait Loop<const N: usize, const M: usize>: Sync {
    /// The values. Mark it `#[inline(always)]`.
    fn values<E: Real, V: Vector<Element = E>>(&self, x: [V; N]) -> [V; M];

    /// Computes the elements from `first` on of a larger pass: [`part`]. The known loops call it compiled.
    fn part<E: Kernels>(&self, first: usize, x: [Read<'_, E>; N], to: [Write<'_, E>; M]) {
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
    to: Target<'a, E>,
    mode: WriteMode,
    dropout: Dropout,
}

/// Where a result goes.
#[derive(Debug)]
enum Target<'a, E> {
    Numbers(&'a mut [E]),
    /// Over the rows before it.
    Rows,
    Sums(Sums<'a, E>),
}

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
        Target::Rows.into()
    }
}

impl<'a, E> From<Target<'a, E>> for Write<'a, E> {
    fn from(to: Target<'a, E>) -> Self {
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
            Operand::Repeated(numbers) => !self.dropout.is_none() || !numbers.is_long(),
            Operand::Numbers(_) => !self.dropout.is_none(),
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
            Operand::Numbers(numbers) => Source::Slice(numbers),
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
            ..Target::Numbers(numbers).into()
        }
    }

    /// The numbers so far.
    pub(super) fn as_slice(&self) -> &[E] {
        match &self.to {
            Target::Numbers(numbers) => numbers,
            Target::Rows | Target::Sums(_) => &[],
        }
    }

    /// How many values of the loop it takes.
    fn len(&self) -> usize {
        match &self.to {
            Target::Numbers(numbers) => numbers.len(),
            Target::Rows => 0,
            Target::Sums(sums) => sums.terms(),
        }
    }

    fn is_sums(&self) -> bool {
        matches!(self.to, Target::Sums(_))
    }

    fn is_plain(&self) -> bool {
        self.dropout.is_none() && !self.is_sums()
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
        matches!(self.to, Target::Rows)
    }

    /// The same, for as long as it is lent.
    pub(super) fn reborrow(&mut self) -> Write<'_, E> {
        let to = match &mut self.to {
            Target::Numbers(numbers) => Target::Numbers(numbers),
            Target::Rows => Target::Rows,
            Target::Sums(sums) => Target::Sums(sums.reborrow()),
        };
        Write { to, ..*self }
    }

    /// The next elements, so many or those that are left.
    ///
    /// # Panics
    /// If it is of sums.
    #[track_caller]
    pub(super) fn next(&mut self, len: usize) -> Write<'a, E> {
        let to = match std::mem::replace(&mut self.to, Target::Rows) {
            Target::Numbers(numbers) => {
                let (numbers, rest) = numbers.split_at_mut(len.min(numbers.len()));
                self.to = Target::Numbers(rest);
                Target::Numbers(numbers)
            }
            Target::Rows => Target::Rows,
            Target::Sums(_) => panic!("sums are not of a part"),
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
        return some(of, 0, x, to);
    }
    in_parts(&mut to, &|first, to| {
        // A part has as many results as the whole.
        if let Ok(to) = <&mut [Write<'_, E>; M]>::try_from(to) {
            some(of, first, x, to.each_mut().map(Write::reborrow));
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
    to: [Write<'_, E>; M],
) {
    let len = to.first().map_or(0, Write::len);
    assert_lens(&x, len);
    to.iter().for_each(|to| to.assert_len(len));
    of.part(0, x, to);
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
    x: [Read<'_, E>; N],
    to: [Write<'_, E>; M],
) {
    let len = to.first().map_or(0, |to| to.as_slice().len());
    of.part(first, x.map(|x| x.some(first, len)), to);
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
    let x = x.map(|x| x.some(first, rows.len()));
    if to.is_over_rows() {
        let x = x.map(|x| x.with_rows(Operand::InPlace));
        let rows = Target::Numbers(rows);
        of.part(first, x, [Write { to: rows, ..to }]);
    } else {
        let rows = Operand::Numbers(rows);
        of.part(first, x.map(|x| x.with_rows(rows)), [to]);
    }
}

/// The elements from `first` on of a larger pass, which say which of them are dropped.
///
/// # Panics
/// If the lengths differ.
#[inline(always)]
#[track_caller]
pub fn part<E: Pooled, const N: usize, const M: usize>(
    of: &(impl Loop<N, M> + ?Sized),
    first: usize,
    x: [Read<'_, E>; N],
    to: [Write<'_, E>; M],
) {
    let is_plain = x.iter().all(Read::is_plain) && to.iter().all(Write::is_plain);
    match is_plain {
        true => values(of, x.map(|x| x.source()), to),
        false => pieces(of, first, x, to),
    }
}

/// The same in pieces, whose operands are read where they stand, or copied to the nearest cache: repeated, or without what is dropped.
/// Terms of sums stand there, too.
#[inline(always)]
#[track_caller]
fn pieces<E: Pooled, const N: usize, const M: usize>(
    of: &(impl Loop<N, M> + ?Sized),
    first: usize,
    x: [Read<'_, E>; N],
    mut to: [Write<'_, E>; M],
) {
    let len = to.first().map_or(0, Write::len);
    let copied = x.iter().filter(|x| x.is_copied()).count();
    let summed = to.iter().filter(|to| to.is_sums()).count();
    let mut near = Buffer::uninit((copied + summed) * NEAR);
    let (copies, terms) = near.split_at_mut(copied * NEAR);
    let mut constants = [[E::ZERO; size_of::<Constant<u8>>()]; N];
    let mut operands = x.each_ref().map(Cursor::of);
    let mut start = 0;
    while start < len {
        let mut piece = NEAR.min(len - start);
        for operand in &operands {
            piece = piece.min(operand.left());
        }
        let mut results = from_fn::<_, M, _>(|_| (<&mut [E]>::default(), WriteMode::Overwrite));
        let mut terms_left = terms.chunks_mut(NEAR);
        for (result, to) in results.iter_mut().zip(&mut to) {
            *result = match &mut to.to {
                Target::Numbers(numbers) => (split_off(numbers, piece), to.mode),
                Target::Rows | Target::Sums(_) => {
                    let near = terms_left.next().unwrap_or_default();
                    (&mut near[..piece], WriteMode::Overwrite)
                }
            };
        }
        let mut sources = [Source::First; N];
        let mut copies_left = copies.chunks_mut(NEAR);
        let places = operands.iter_mut().zip(&mut constants);
        for (source, (operand, constant)) in sources.iter_mut().zip(places) {
            *source = match operand {
                Cursor::Numbers(numbers) => Source::Slice(next(numbers, piece)),
                Cursor::Runs(runs) => match runs.next(piece) {
                    Run::Numbers(numbers) => Source::Slice(numbers),
                    Run::Constant(number) => {
                        constant.fill(number);
                        Source::Constant(constant)
                    }
                },
                Cursor::InPlace(dropout) => {
                    let numbers = results.first_mut().map(|(numbers, _)| &mut **numbers);
                    dropout.drop_from(first + start, numbers.unwrap_or_default());
                    Source::First
                }
                Cursor::Copied(x) => {
                    let near = &mut copies_left.next().unwrap_or_default()[..piece];
                    match x.some(start, piece).operand {
                        Operand::Numbers(numbers) => near.copy_from_slice(numbers),
                        Operand::Repeated(numbers) => numbers.copy_to(near),
                        Operand::InPlace | Operand::Rows => {}
                    }
                    x.dropout.drop_from(first + start, near);
                    Source::Slice(near)
                }
            };
        }
        let written = results
            .each_mut()
            .map(|(numbers, mode)| (&mut **numbers, *mode));
        run(Values {
            of,
            zipped: Zipped::new(sources, written),
        });
        for (to, (numbers, _)) in to.iter_mut().zip(&mut results) {
            match &mut to.to {
                Target::Sums(sums) => sums.add(numbers),
                Target::Numbers(_) | Target::Rows => to.dropout.drop_from(first + start, numbers),
            }
        }
        start += piece;
    }
}

/// Where a loop is in an operand.
enum Cursor<'x, 'a, E> {
    Numbers(&'a [E]),
    Runs(Runs<'a, E>),
    InPlace(Dropout),
    /// To the nearest cache.
    Copied(&'x Read<'a, E>),
}

impl<'x, 'a, E: Copy> Cursor<'x, 'a, E> {
    fn of(x: &'x Read<'a, E>) -> Self {
        match &x.operand {
            _ if x.is_copied() => Cursor::Copied(x),
            Operand::Numbers(numbers) => Cursor::Numbers(numbers),
            Operand::Repeated(numbers) => Cursor::Runs(numbers.runs()),
            Operand::InPlace | Operand::Rows => Cursor::InPlace(x.dropout),
        }
    }

    /// How many of its elements may be read at once.
    #[inline(always)]
    fn left(&self) -> usize {
        match self {
            Cursor::Runs(runs) => runs.left(),
            _ => usize::MAX,
        }
    }
}

/// The first elements, which are taken out of the slice.
#[inline(always)]
fn next<'a, E>(numbers: &mut &'a [E], len: usize) -> &'a [E] {
    let (some, rest) = numbers.split_at(len);
    *numbers = rest;
    some
}

/// The same to write.
#[inline(always)]
pub(super) fn split_off<'a, E>(numbers: &mut &'a mut [E], len: usize) -> &'a mut [E] {
    let (some, rest) = std::mem::take(numbers).split_at_mut(len);
    *numbers = rest;
    some
}

#[inline(always)]
fn values<E: Real, const N: usize, const M: usize>(
    of: &(impl Loop<N, M> + ?Sized),
    x: [Source<'_, E>; N],
    to: [Write<'_, E>; M],
) {
    let to = to.map(|to| match to.to {
        Target::Numbers(numbers) => (numbers, to.mode),
        Target::Rows | Target::Sums(_) => (<&mut [E]>::default(), to.mode),
    });
    run(Values {
        of,
        zipped: Zipped::new(x, to),
    });
}

struct Values<'a, L: ?Sized, E, const N: usize, const M: usize> {
    of: &'a L,
    zipped: Zipped<'a, E, N, M>,
}

impl<E: Real, const N: usize, const M: usize, L: Loop<N, M> + ?Sized> Kernel
    for Values<'_, L, E, N, M>
{
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Self { of, mut zipped } = self;
        while zipped.left() >= V::LANES {
            let x = zipped.load::<V>(V::LANES);
            zipped.store(of.values(x), V::LANES);
        }
        let left = zipped.left();
        if left > 0 {
            let x = zipped.load::<V>(left);
            zipped.store(of.values(x), left);
        }
    }
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
