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
    /// `None` is the first result, in place.
    numbers: Option<&'a [E]>,
    dropout: Dropout,
}

/// The operand of a loop that stands where the first result is written.
#[derive(Clone, Copy, Debug)]
pub struct InPlace;

/// A result of a loop.
#[derive(Debug)]
pub struct Write<'a, E> {
    numbers: &'a mut [E],
    mode: WriteMode,
    dropout: Dropout,
}

/// An operand: a slice, or [`InPlace`], and which of its elements are dropped as they are read.
pub fn read<'a, E>(operand: impl Into<Read<'a, E>>) -> Read<'a, E> {
    operand.into()
}

impl<'a, E> From<&'a [E]> for Read<'a, E> {
    fn from(numbers: &'a [E]) -> Self {
        Self {
            numbers: Some(numbers),
            dropout: Dropout::NONE,
        }
    }
}

impl<E> From<InPlace> for Read<'_, E> {
    fn from(InPlace: InPlace) -> Self {
        Self {
            numbers: None,
            dropout: Dropout::NONE,
        }
    }
}

impl<'a, E> From<&'a mut [E]> for Write<'a, E> {
    fn from(numbers: &'a mut [E]) -> Self {
        Self::with_mode(numbers, WriteMode::Overwrite)
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
    pub fn to<E>(self, numbers: &mut [E]) -> Write<'_, E> {
        Write {
            dropout: self,
            ..numbers.into()
        }
    }
}

impl<E> Read<'_, E> {
    /// So many elements from `first` on.
    #[inline(always)]
    fn some(self, first: usize, len: usize) -> Self {
        let numbers = self.numbers.map(|numbers| &numbers[first..first + len]);
        Self { numbers, ..self }
    }
}

impl<'a, E> Write<'a, E> {
    /// Overwrites the numbers, or adds to them.
    pub fn with_mode(numbers: &'a mut [E], mode: WriteMode) -> Self {
        Self {
            numbers,
            mode,
            dropout: Dropout::NONE,
        }
    }

    /// The numbers so far.
    pub(super) fn as_slice(&self) -> &[E] {
        self.numbers
    }

    /// The same, for as long as it is lent.
    pub(super) fn reborrow(&mut self) -> Write<'_, E> {
        Write {
            numbers: self.numbers,
            ..*self
        }
    }

    /// The next elements, so many or those that are left.
    pub(super) fn next(&mut self, len: usize) -> Write<'a, E> {
        let numbers = std::mem::take(&mut self.numbers);
        let (numbers, rest) = numbers.split_at_mut(len.min(numbers.len()));
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
    assert_lens(&x, to.first().map_or(0, |to| to.numbers.len()));
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
    let mut lens = x.iter().filter_map(|x| x.numbers).map(<[E]>::len);
    assert!(
        lens.all(|other| other == len),
        "operands and results of one length"
    );
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
    let len = to.first().map_or(0, |to| to.numbers.len());
    of.part(first, x.map(|x| x.some(first, len)), to);
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
    let drops = x.iter().any(|x| !x.dropout.is_none());
    if !drops && to.iter().all(|to| to.dropout.is_none()) {
        return values(of, x.map(|x| x.numbers), to);
    }
    let len = to.first().map_or(0, |to| to.numbers.len());
    let mut near = [[E::ZERO; NEAR]; N];
    for start in (0..len).step_by(NEAR) {
        let mut to: [_; M] = from_fn(|i| to[i].next(NEAR));
        let len = NEAR.min(len - start);
        let mut near = near.each_mut().map(|near| &mut near[..len]);
        for (x, near) in x.iter().zip(&mut near) {
            let near = match x.some(start, len).numbers {
                Some(_) if x.dropout.is_none() => continue,
                Some(numbers) => {
                    near.copy_from_slice(numbers);
                    &mut **near
                }
                None => &mut *to[0].numbers,
            };
            x.dropout.drop_from(first + start, near);
        }
        let x = from_fn(|i| match x[i].some(start, len).numbers {
            Some(_) if !x[i].dropout.is_none() => Some(&*near[i]),
            numbers => numbers,
        });
        values(of, x, to.each_mut().map(Write::reborrow));
        for to in to {
            to.dropout.drop_from(first + start, to.numbers);
        }
    }
}

#[inline(always)]
fn values<E: Real, const N: usize, const M: usize>(
    of: &(impl Loop<N, M> + ?Sized),
    x: [Option<&[E]>; N],
    to: [Write<'_, E>; M],
) {
    let to = to.map(|to| (to.numbers, to.mode));
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
        while zipped.next_len::<V>() > 0 {
            let x = zipped.load::<V>();
            zipped.store(of.values(x));
        }
    }
}

compiled! {
    Loops:

    /// Calls `body` for parts of the results, with the number of the first element of each. The threads share the parts.
    fn in_parts<E>(to: &mut [Write<'_, E>], body: &PartBody<'_, E>) {
        let len = to.first().map_or(0, |to| to.numbers.len());
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
