//! A loop over some elements: at once, or in pieces of rows that all operands and results read and write with one step.

use std::array::from_fn;

use super::repeated::Runs;
use super::{Loop, Operand, Read, Write};
use crate::kernel::dropout::Dropout;
use crate::kernel::{Buffer, Pooled, Real};
use crate::simd::{self, Kernel, Source, Target, Vector, Zipped, run};

/// Elements of a few slices that the nearest cache holds.
pub(super) const NEAR: usize = 1024;

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
    write_part(&|zipped| run(Values { of, zipped }), first, x, to);
}

/// Writes the values of a loop for all elements of some rows. A trait object and no type parameter, so that the code that cuts a pass into
/// rows is compiled once, and not for each loop.
type WriteValues<'of, E, const N: usize, const M: usize> = dyn Fn(Zipped<'_, E, N, M>) + 'of;

/// [`part`] of the loop whose values `write` writes.
#[track_caller]
fn write_part<E: Pooled, const N: usize, const M: usize>(
    write: &WriteValues<'_, E, N, M>,
    first: usize,
    x: &[Read<'_, E>; N],
    to: &mut [Write<'_, E>; M],
) {
    let is_plain = x.iter().all(Read::is_plain) && to.iter().all(Write::is_plain);
    match is_plain {
        true => one_row(write, from_fn(|index| x[index].source()), to),
        false => pieces(write, first, x, to),
    }
}

/// The same in pieces of rows, whose operands are read where they stand, or copied to the nearest cache without what is dropped.
#[track_caller]
fn pieces<E: Pooled, const N: usize, const M: usize>(
    write: &WriteValues<'_, E, N, M>,
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
        write(Zipped::new(piece, read, &mut written));
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

/// The same of all elements at once.
#[track_caller]
fn one_row<E: Real, const N: usize, const M: usize>(
    write: &WriteValues<'_, E, N, M>,
    x: [Source<'_, E>; N],
    to: &mut [Write<'_, E>; M],
) {
    let len = to.first().map_or(0, Write::len);
    assert_results(to, len);
    let mut to = to.each_mut().map(|to| to.next_rows([1, len]));
    write(Zipped::new([1, len], x, &mut to));
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
        self.zipped.write::<V, _>(&Body(self.of));
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
