//! Rotations of vectors by their positions, outside of attention.

use super::Rope;
use super::head_transform::rotate;
use crate::kernel::compiled::compiled;
use crate::kernel::lanes::for_lanes;
use crate::kernel::{Buffer, Pooled, parallel};
use crate::simd::slice::{load_any, store_any};
use crate::simd::{Kernel, Matrix, MatrixMut, Vector, WriteMode, run};

compiled! {
    Rotations:

    /// Rotates every vector, or with `backward` rotates it back: the derivative. All vectors of a row have one position. Row `r` has the
    /// angles `rope.rows[r]`, or those of its place `r % len` in its sequence.
    ///
    /// `x`, `to`: `[rows, vectors * width]`.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn rotate_rows<E>(
        rope: &Rope<'_, E>,
        len: usize,
        width: usize,
        backward: bool,
        x: Matrix<'_, E>,
        to: MatrixMut<'_, E>,
        into: WriteMode,
    ) {
        assert_eq!((x.rows(), x.cols()), (to.rows(), to.cols()), "vectors of another shape");
        if x.rows() * x.cols() == 0 {
            return;
        }
        assert!(x.cols().is_multiple_of(width), "rows of {} numbers are not vectors of {width}", x.cols());
        let chunk = parallel::rows_per_task(x.cols());
        let tasks = to.row_chunks(chunk).enumerate();
        parallel::for_each(tasks, |(task, to)| {
            let first = task * chunk;
            run(Rotation { rope, len, width, backward, x, first, to, into });
        });
    }
}

/// [`rotate_rows`] of a range of rows: `to` has row `first` and the following ones.
struct Rotation<'a, E> {
    rope: &'a Rope<'a, E>,
    len: usize,
    width: usize,
    backward: bool,
    x: Matrix<'a, E>,
    first: usize,
    to: MatrixMut<'a, E>,
    into: WriteMode,
}

impl<E: Pooled> Kernel for Rotation<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Rotation {
            rope,
            len,
            width,
            backward,
            x,
            first,
            mut to,
            into,
        } = self;
        let direction = if backward { -E::ONE } else { E::ONE };
        let mut rotated = match into {
            WriteMode::Overwrite => None,
            WriteMode::Add => Some(Buffer::uninit(width)),
        };
        for row in 0..to.rows() {
            let place = match rope.rows {
                Some(_) => first + row,
                None => (first + row) % len,
            };
            let x = x.row(first + row).chunks_exact(width);
            for (x, to) in x.zip(to.row_mut(row).chunks_exact_mut(width)) {
                let Some(rotated) = &mut rotated else {
                    to.copy_from_slice(x);
                    rotate::<V>(rope, place, direction, to);
                    continue;
                };
                rotated.copy_from_slice(x);
                rotate::<V>(rope, place, direction, rotated);
                for_lanes!(V, width, [rotated], [to], {
                    store_any(load_any::<V>(to) + load_any(rotated), to)
                });
            }
        }
    }
}
