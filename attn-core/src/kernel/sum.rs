//! Elementwise sums of slices, shared between threads. Dropout of the terms and of the sum is applied in the same pass.
//!
//! A residual connection is `x + dropout(y)`, and the input of a network is often `dropout(x + y)`: one pass over memory each.

use super::Real;
use super::compiled::compiled;
use super::dropout::{Part, WithDropout};
use super::elementwise;
use super::parallel::{SMALL, for_each};
use crate::simd::{call::Axpy, run};

compiled! {
    Sums:

    /// `x = x + y`
    ///
    /// # Panics
    /// If the lengths differ.
    #[track_caller]
    pub fn add_to<E>(x: WithDropout<&mut [E]>, y: WithDropout<&[E]>) {
        assert_eq!(x.numbers.len(), y.numbers.len(), "as many numbers as are added");
        for_each(parts(x, y, SMALL), |(first, x, y)| add_part(first, x, y));
    }

    /// `z = x + y`
    ///
    /// # Panics
    /// If the lengths differ.
    #[track_caller]
    pub fn add<E>(x: WithDropout<&[E]>, y: WithDropout<&[E]>, z: WithDropout<&mut [E]>) {
        if x.read.is_none() && y.read.is_none() && z.written.is_none() {
            return elementwise::add(x.numbers, y.numbers, z.numbers);
        }
        assert_eq!(x.numbers.len(), y.numbers.len(), "as many numbers as are added");
        assert_eq!(x.numbers.len(), z.numbers.len(), "as many sums");
        let of_x = x.numbers.chunks(SMALL);
        for_each(of_x.zip(parts(z, y, SMALL)), |(of_x, (first, z, y))| {
            run(Part {
                first,
                x: (Some(of_x), x.read),
                y: Some((y.numbers, y.read)),
                to: (z.numbers, z.written),
            });
        });
    }
}

/// The arguments of [`add_part`], for parts of this many elements.
pub(super) fn parts<'a, E: Real>(
    x: WithDropout<&'a mut [E]>,
    y: WithDropout<&'a [E]>,
    elements: usize,
) -> impl Iterator<Item = (usize, WithDropout<&'a mut [E]>, WithDropout<&'a [E]>)> {
    let parts = x.numbers.chunks_mut(elements);
    let parts = parts.zip(y.numbers.chunks(elements)).enumerate();
    parts.map(move |(index, (of_x, of_y))| {
        let x = x.read.of(x.written.to(of_x));
        (index * elements, x, y.read.of(of_y))
    })
}

/// [`add_to`], from element `first` on.
pub(super) fn add_part<E: Real>(first: usize, x: WithDropout<&mut [E]>, y: WithDropout<&[E]>) {
    if x.read.is_none() && y.read.is_none() && x.written.is_none() {
        return run(Axpy(E::ONE, y.numbers, x.numbers));
    }
    run(Part {
        first,
        x: (None, x.read),
        y: Some((y.numbers, y.read)),
        to: (x.numbers, x.written),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Pooled, dropout::Dropout, testing::*};
    use crate::random::Philox4x32;

    /// Every combination of dropout on the terms and on the sum.
    fn dropouts() -> impl Iterator<Item = [Dropout; 3]> {
        let of = |place: u64| {
            let some = Dropout::new(0.1 + 0.3 * place as f64, Some(5 + place));
            [Dropout::NONE, some]
        };
        let two = of(0).into_iter().flat_map(move |x| of(1).map(|y| [x, y]));
        two.flat_map(move |[x, y]| of(2).map(|sum| [x, y, sum]))
    }

    /// Element `i` of an array, by the definition. The probabilities are those of [`dropouts`].
    fn one<E: Real>(place: u64, dropout: Dropout, i: usize, x: E) -> E {
        if dropout.is_none() {
            return x;
        }
        let p = 0.1 + 0.3 * place as f64;
        let word = Philox4x32::new(5 + place).block([(i / 4) as u32, 0, 0, 0])[i % 4];
        if f64::from(word) < p * 2f64.powi(32) {
            return E::ZERO;
        }
        x * E::of_f64(1.0 / (1.0 - p))
    }

    fn naive<E: Real>([of_x, of_y, of_sum]: [Dropout; 3], x: &[E], y: &[E]) -> Vec<E> {
        let sum = |i| one(0, of_x, i, x[i]) + one(1, of_y, i, y[i]);
        (0..x.len()).map(|i| one(2, of_sum, i, sum(i))).collect()
    }

    fn in_place<E: Pooled>([of_x, of_y, of_sum]: [Dropout; 3], x: &[E], y: &[E]) -> Vec<E> {
        let mut sum = x.to_vec();
        add_to(of_sum.to(of_x.of(&mut sum[..])), of_y.of(y));
        sum
    }

    fn apart<E: Pooled>([of_x, of_y, of_sum]: [Dropout; 3], x: &[E], y: &[E]) -> Vec<E> {
        let mut sum = vec![E::NAN; x.len()];
        add(of_x.of(x), of_y.of(y), of_sum.to(&mut sum[..]));
        sum
    }

    #[test]
    fn every_element_falls_as_its_own_pass_would_let_it() {
        fn of<E: Pooled + PartialEq + std::fmt::Debug>(what: &str) {
            for len in LENGTHS.into_iter().chain([SMALL - 1, 2 * SMALL + 5]) {
                let x = noise::<E>(len, 1);
                let y = noise::<E>(len, 2);
                for dropouts in dropouts() {
                    let want = naive(dropouts, &x, &y);
                    let what = format!("{dropouts:?} of {len} {what}");
                    assert_eq!(in_place(dropouts, &x, &y), want, "{what}");
                    assert_eq!(apart(dropouts, &x, &y), want, "{what}");
                }
            }
        }
        on_every_isa(|isa| {
            of::<f32>(&format!("f32 on {isa}"));
            of::<f64>(&format!("f64 on {isa}"));
        });
    }

    /// A part may begin at any element: the rows of a norm do.
    #[test]
    fn an_element_falls_by_its_place_in_the_whole() {
        let x = noise::<f32>(500, 1);
        let y = noise::<f32>(500, 2);
        on_every_isa(|isa| {
            for dropouts in dropouts() {
                let [of_x, of_y, of_sum] = dropouts;
                for elements in [1, 3, 4, 63, 65, 130] {
                    let mut sum = x.clone();
                    let whole = of_sum.to(of_x.of(&mut sum[..]));
                    for (first, x, y) in parts(whole, of_y.of(&y[..]), elements) {
                        add_part(first, x, y);
                    }
                    let what = format!("{dropouts:?} of {elements} on {isa}");
                    assert_eq!(sum, naive(dropouts, &x, &y), "{what}");
                }
            }
        });
    }

    #[test]
    fn what_falls_is_0_whatever_it_was() {
        const LEN: usize = 333;
        let all = Dropout::new(1.0, Some(1));
        let x = noise::<f64>(LEN, 1);
        for poison in [f64::NAN, f64::INFINITY] {
            let poison = [poison; LEN];
            let terms = [Dropout::NONE, all, Dropout::NONE];
            assert_eq!(in_place(terms, &x, &poison), x);
            assert_eq!(apart(terms, &x, &poison), x);
            let terms = [all, Dropout::NONE, Dropout::NONE];
            assert_eq!(in_place(terms, &poison, &x), x);
            assert_eq!(apart(terms, &poison, &x), x);
            let terms = [Dropout::NONE, Dropout::NONE, all];
            assert_eq!(in_place(terms, &poison, &x), [0.0; LEN]);
            assert_eq!(apart(terms, &poison, &x), [0.0; LEN]);
        }
    }

    #[test]
    fn threads_change_no_bit() {
        let x = noise::<f32>(5 * SMALL + 3, 1);
        let y = noise::<f32>(5 * SMALL + 3, 2);
        let all = dropouts().last().expect("all three");
        same_for_all_threads(|| (in_place(all, &x, &y), apart(all, &x, &y)));
    }
}
