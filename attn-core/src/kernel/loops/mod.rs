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
use crate::simd::{self, Kernel, Source, Target, Vector, WriteMode, Zipped, run};
use repeated::Runs;
use sums::Sums;

/// Elements of a few slices that the nearest cache holds.
const NEAR: usize = 1024;

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
    of.part(first, &x.each_ref().map(|x| x.some(first, len)), to);
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
        let rows = Place::Numbers(rows);
        of.part(first, &x, &mut [Write { to: rows, ..to }]);
    } else {
        let rows = Operand::Numbers(rows);
        of.part(first, &x.map(|x| x.with_rows(rows)), &mut [to]);
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
    x: &[Read<'_, E>; N],
    to: &mut [Write<'_, E>; M],
) {
    let is_plain = x.iter().all(Read::is_plain) && to.iter().all(Write::is_plain);
    match is_plain {
        true => values(of, from_fn(|index| x[index].source()), to),
        false => pieces(of, first, x, to),
    }
}

/// The same in pieces of rows, whose operands are read where they stand, or copied to the nearest cache without what is dropped.
#[inline(always)]
#[track_caller]
fn pieces<E: Pooled, const N: usize, const M: usize>(
    of: &(impl Loop<N, M> + ?Sized),
    first: usize,
    x: &[Read<'_, E>; N],
    to: &mut [Write<'_, E>; M],
) {
    let copied = x.iter().filter(|x| x.is_copied()).count();
    let mut near = (copied > 0).then(|| Buffer::uninit(copied * NEAR));
    let mut operands = from_fn::<_, N, _>(|index| Cursor::of(&x[index]));
    let dropouts = from_fn::<_, M, _>(|index| to[index].dropout);
    let mut start = 0;
    while let Some(piece) = next_piece(&operands, to, copied > 0) {
        let len = piece[0] * piece[1];
        let mut written = to.each_mut().map(|to| to.next_rows(piece));
        let mut read = [Source::First; N];
        let near: &mut [E] = near.as_mut().map_or(&mut [], |near| near);
        let mut copies = near.chunks_mut(NEAR);
        for (source, operand) in read.iter_mut().zip(&mut operands) {
            *source = match operand {
                Cursor::Numbers(numbers) => Source::Elements {
                    numbers: next(numbers, len),
                    step: piece[1],
                },
                Cursor::Runs(runs) => runs.next(piece),
                Cursor::InPlace(dropout) => {
                    if let Some(Target::Elements { numbers, .. }) = written.first_mut() {
                        dropout.drop_from(first + start, numbers);
                    }
                    Source::First
                }
                Cursor::Copied(x) => {
                    let numbers = &mut copies.next().unwrap_or_default()[..len];
                    match x.some(start, len).operand {
                        Operand::Numbers(from) => numbers.copy_from_slice(from),
                        Operand::Repeated(from) => from.copy_to(numbers),
                        Operand::InPlace | Operand::Rows => {}
                    }
                    x.dropout.drop_from(first + start, numbers);
                    Source::Elements {
                        numbers,
                        step: piece[1],
                    }
                }
            };
        }
        run(Values {
            of,
            zipped: Zipped::new(piece, read, &mut written),
        });
        for (to, dropout) in written.into_iter().zip(dropouts) {
            if let Target::Elements { numbers, .. } = to {
                dropout.drop_from(first + start, numbers);
            }
        }
        start += len;
    }
}

/// The number of the next rows and their width, if any elements are left.
#[track_caller]
fn next_piece<E: Copy>(
    operands: &[Cursor<'_, '_, E>],
    to: &[Write<'_, E>],
    is_near: bool,
) -> Option<[usize; 2]> {
    let len = to.first().map_or(0, Write::len);
    assert_results(to, len);
    let most = if is_near { NEAR.min(len) } else { len };
    let widths = operands.iter().map(Cursor::left);
    let widths = widths.chain(to.iter().map(Write::left));
    let width = widths.fold(most, usize::min);
    if width == 0 {
        return None;
    }
    let rows = operands.iter().map(|operand| operand.rows(width));
    let rows = rows.chain(to.iter().map(|to| to.rows(width)));
    Some([rows.fold(most / width, usize::min), width])
}

/// Fails unless all results have so many elements.
#[track_caller]
fn assert_results<E>(to: &[Write<'_, E>], len: usize) {
    assert!(
        to.iter().all(|to| to.len() == len),
        "slices of one length are read and written"
    );
}

/// Where a loop is in an operand.
enum Cursor<'x, 'a, E> {
    Numbers(&'a [E]),
    Runs(Runs<'x, 'a, E>),
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

    /// How many of its elements are a row, or the rest of one.
    fn left(&self) -> usize {
        match self {
            Cursor::Runs(runs) => runs.left(),
            _ => usize::MAX,
        }
    }

    /// How many rows of this width, at most what is left of one, are read with the same step.
    fn rows(&self, width: usize) -> usize {
        match self {
            Cursor::Runs(runs) => runs.rows(width),
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
    to: &mut [Write<'_, E>; M],
) {
    let len = to.first().map_or(0, Write::len);
    assert_results(to, len);
    let mut to = to.each_mut().map(|to| to.next_rows([1, len]));
    run(Values {
        of,
        zipped: Zipped::new([1, len], x, &mut to),
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
        self.zipped.write::<V>(&Body(self.of));
    }
}

/// A loop.
struct Body<'a, L: ?Sized>(&'a L);

impl<E: Real, const N: usize, const M: usize, L: Loop<N, M> + ?Sized> simd::Values<E, N, M>
    for Body<'_, L>
{
    const NUMBERS: u32 = L::NUMBERS;

    #[inline(always)]
    fn values<V: Vector<Element = E>>(&self, x: [V; N]) -> [V; M] {
        self.0.values(x)
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
