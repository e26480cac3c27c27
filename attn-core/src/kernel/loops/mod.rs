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
use super::{Kernels, Real};
use crate::simd::{Kernel, Vector, WriteMode, Zipped, run};
use repeated::Repeated;

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
    /// `None` is over the rows before it.
    numbers: Option<&'a mut [E]>,
    mode: WriteMode,
    dropout: Dropout,
}

pub use repeated::repeated;

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
        Self {
            numbers: None,
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
            Operand::Repeated(numbers) => Operand::Repeated(numbers.from(first)),
            other => other,
        };
        Self { operand, ..self }
    }

    /// Whether a loop reads it where it stands.
    fn is_plain(&self) -> bool {
        self.dropout.is_none() && !matches!(self.operand, Operand::Repeated(_))
    }

    /// The same with these numbers for [`Rows`].
    fn with_rows(self, rows: Operand<'a, E>) -> Self {
        let operand = match self.operand {
            Operand::Rows => rows,
            other => other,
        };
        Self { operand, ..self }
    }

    /// The numbers where they stand, or `None` in place of the first result.
    #[inline(always)]
    #[track_caller]
    fn numbers(&self) -> Option<&'a [E]> {
        match self.operand {
            Operand::Numbers(numbers) => Some(numbers),
            Operand::InPlace | Operand::Repeated(_) => None,
            Operand::Rows => panic!("a loop that is not behind an operation on rows reads none"),
        }
    }
}

impl<'a, E> Write<'a, E> {
    /// Overwrites the numbers, or adds to them.
    pub fn with_mode(numbers: &'a mut [E], mode: WriteMode) -> Self {
        Self {
            numbers: Some(numbers),
            mode,
            dropout: Dropout::NONE,
        }
    }

    /// The numbers so far.
    pub(super) fn as_slice(&self) -> &[E] {
        self.numbers.as_deref().unwrap_or_default()
    }

    fn as_mut_slice(&mut self) -> &mut [E] {
        self.numbers.as_deref_mut().unwrap_or_default()
    }

    /// Fails if there are numbers, and not so many.
    #[track_caller]
    pub(super) fn assert_len(&self, len: usize) {
        let numbers = self.numbers.as_deref();
        assert!(
            numbers.is_none_or(|numbers| numbers.len() == len),
            "operands and results of one length"
        );
    }

    /// The same, for as long as it is lent.
    pub(super) fn reborrow(&mut self) -> Write<'_, E> {
        Write {
            numbers: self.numbers.as_deref_mut(),
            ..*self
        }
    }

    /// The next elements, so many or those that are left.
    pub(super) fn next(&mut self, len: usize) -> Write<'a, E> {
        let numbers = self.numbers.take();
        let (numbers, rest) = numbers
            .map(|numbers| numbers.split_at_mut(len.min(numbers.len())))
            .unzip();
        self.numbers = rest;
        Write { numbers, ..*self }
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
    assert_lens(&x, to.first().map_or(0, |to| to.as_slice().len()));
    in_parts(&mut to, &|first, to| {
        // A part has as many results as the whole.
        if let Ok(to) = <&mut [Write<'_, E>; M]>::try_from(to) {
            some(of, first, x, to.each_mut().map(Write::reborrow));
        }
    });
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
    if to.numbers.is_some() {
        let rows = Operand::Numbers(rows);
        of.part(first, x.map(|x| x.with_rows(rows)), [to]);
    } else {
        let numbers = Some(rows);
        let x = x.map(|x| x.with_rows(Operand::InPlace));
        of.part(first, x, [Write { numbers, ..to }]);
    }
}

/// The elements from `first` on of a larger pass, which say which of them are dropped.
///
/// # Panics
/// If the lengths differ.
#[inline(always)]
#[track_caller]
pub fn part<E: Real, const N: usize, const M: usize>(
    of: &(impl Loop<N, M> + ?Sized),
    first: usize,
    x: [Read<'_, E>; N],
    mut to: [Write<'_, E>; M],
) {
    let is_plain = x.iter().all(Read::is_plain);
    if is_plain && to.iter().all(|to| to.dropout.is_none()) {
        return values(of, x.map(|x| x.numbers()), to);
    }
    let len = to.first().map_or(0, |to| to.as_slice().len());
    let mut near = [[E::ZERO; NEAR]; N];
    for start in (0..len).step_by(NEAR) {
        let mut to: [_; M] = from_fn(|i| to[i].next(NEAR));
        let len = NEAR.min(len - start);
        let mut near = near.each_mut().map(|near| &mut near[..len]);
        for (x, near) in x.iter().zip(&mut near) {
            if x.is_plain() {
                continue;
            }
            let near = match x.some(start, len).operand {
                Operand::Numbers(numbers) => {
                    near.copy_from_slice(numbers);
                    &mut **near
                }
                Operand::Repeated(numbers) => {
                    numbers.copy_to(near);
                    &mut **near
                }
                Operand::InPlace | Operand::Rows => to[0].as_mut_slice(),
            };
            x.dropout.drop_from(first + start, near);
        }
        let x = from_fn(|i| match x[i].some(start, len).operand {
            Operand::Numbers(numbers) if x[i].is_plain() => Some(numbers),
            Operand::Numbers(_) | Operand::Repeated(_) => Some(&*near[i]),
            Operand::InPlace | Operand::Rows => None,
        });
        values(of, x, to.each_mut().map(Write::reborrow));
        for mut to in to {
            let dropout = to.dropout;
            dropout.drop_from(first + start, to.as_mut_slice());
        }
    }
}

#[inline(always)]
fn values<E: Real, const N: usize, const M: usize>(
    of: &(impl Loop<N, M> + ?Sized),
    x: [Option<&[E]>; N],
    to: [Write<'_, E>; M],
) {
    let to = to.map(|to| (to.numbers.unwrap_or_default(), to.mode));
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
