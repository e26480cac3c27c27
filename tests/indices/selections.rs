//! Reductions and softmaxes of some numbers along an axis.

use super::claim::{agree, tolerance};
use super::*;
use attn::{Backend, Element, model};
use support::cases::{lens_of, lens_up_to, marks};
use support::compare::assert_same;

support::selections!(agree);
support::selected_along!(agree);

model! {
    struct All<d = 2>;
    fn forward(x: [batch, seq, d], keep: bool[batch, seq])
        -> ([batch, d], [batch, d], [batch, d], [batch, d], [batch, d], [batch, d], [batch, seq, d])
    {
        (
            sum::<seq>(x, keep),
            mean::<seq>(x, keep),
            max::<seq>(x, keep),
            min::<seq>(x, keep),
            variance::<seq>(x, keep),
            logsumexp::<seq>(x, keep),
            softmax::<seq>(x, keep),
        )
    }
}

/// Two sequences, of which the second one has no number that counts. NaN stands behind the mask.
fn input() -> (
    Tensor<Rank3<2, 3, 2>, f64, Cpu>,
    Tensor<Rank2<2, 3>, bool, Cpu>,
) {
    let nan = f64::NAN;
    let x = [[[1.0, 4.0], [nan, nan], [3.0, -2.0]], [[nan; 2]; 3]];
    (
        Cpu::default().tensor(x),
        Cpu::default().tensor([[true, false, true], [false; 3]]),
    )
}

#[test]
fn numbers_that_do_not_count_are_not_read() {
    let model = Cpu::default().build_module::<All, f64>();
    let logs = [
        (1f64.exp() + 3f64.exp()).ln(),
        (4f64.exp() + (-2f64).exp()).ln(),
    ];
    let share = |a: f64, b: f64| 1.0 / (1.0 + (b - a).exp());
    let softmax = [
        share(1.0, 3.0),
        share(4.0, -2.0),
        0.0,
        0.0,
        share(3.0, 1.0),
        share(-2.0, 4.0),
    ];
    let infinity = f64::NEG_INFINITY;
    let want: [Vec<f64>; 7] = [
        vec![4.0, 2.0, 0.0, 0.0],
        vec![2.0, 1.0, 0.0, 0.0],
        vec![3.0, 4.0, 0.0, 0.0],
        vec![1.0, -2.0, 0.0, 0.0],
        vec![1.0, 9.0, 0.0, 0.0],
        vec![logs[0], logs[1], infinity, infinity],
        [&softmax[..], &[0.0; 6]].concat(),
    ];
    let check = |found: [Vec<f64>; 7]| {
        for (found, want) in found.iter().zip(&want) {
            let is_close = |(a, b): (&f64, &f64)| a == b || (a - b).abs() < 1e-14;
            assert!(
                found.iter().zip(want).all(is_close),
                "{found:?}, not {want:?}"
            );
        }
    };
    let (a, b, c, d, e, f, g) = model.forward(input());
    check([
        a.as_vec(),
        b.as_vec(),
        c.as_vec(),
        d.as_vec(),
        e.as_vec(),
        f.as_vec(),
        g.as_vec(),
    ]);
    let (a, b, c, d, e, f, g) = model.composed().forward(input());
    check([
        a.as_vec(),
        b.as_vec(),
        c.as_vec(),
        d.as_vec(),
        e.as_vec(),
        f.as_vec(),
        g.as_vec(),
    ]);
}

/// The gradients of numbers that do not count, also where NaN comes back.
#[test]
fn numbers_that_do_not_count_have_the_gradient_0() {
    macro_rules! check {
        ($($reduced:tt)*) => {{
            model! {
                struct Some<d = 2>;
                fn forward(x: [batch, seq, d], keep: bool[batch, seq]) -> [batch, d] { $($reduced)* }
            }
            let model = Cpu::default().build_module::<Some, f64>();
            let (x, keep) = input();
            let gradients = model.forward((x.clone().leaky_traced(), keep)).sum().backward();
            let d_x = gradients.get(&x).array();
            assert_eq!((d_x[0][1], d_x[1]), ([0.0; 2], [[0.0; 2]; 3]), "{}", stringify!($($reduced)*));
            assert!(d_x[0][0][0].is_finite() && d_x[0][2][1].is_finite());
        }};
    }
    check!(sum::<seq>(x, keep));
    check!(mean::<seq>(x, keep));
    check!(max::<seq>(x, keep));
    check!(min::<seq>(x, keep));
    check!(variance::<seq>(x, keep));
    check!(logsumexp::<seq>(x, keep));
    check!(sum::<seq>(softmax::<seq>(x, keep), keep));
    check!(sum::<seq>(softmax::<seq>(x, keep) * x, keep));
}

#[test]
fn lengths_beyond_the_axis_are_an_error() {
    model! {
        struct Means<d = 2>;
        fn forward(x: [batch, seq, d], lens: lens[batch]) -> [batch, d] { mean::<seq>(x, lens) }
    }
    let model = Cpu::default().build_module::<Means, f32>();
    let x: Tensor<Rank3<2, 3, 2>, f32, Cpu> = Cpu::default().zeros();
    let lens: Tensor<Rank1<2>, usize, Cpu> = Cpu::default().tensor([3, 4]);
    let message = "mean: the valid length at [1] is 4, but there are 3 keys";
    let error = model.try_forward((x.clone(), lens.clone())).unwrap_err();
    assert_eq!(error.to_string(), message);
    let error = model.composed().try_forward((x, lens)).unwrap_err();
    assert_eq!(error.to_string(), message);
}

/// These read the lengths as numbers.
#[test]
fn lengths_beyond_the_axis_are_an_error_along_an_axis() {
    model! {
        struct Sums<d = 2>;
        fn forward(x: [batch, seq, d], lens: lens[batch]) -> [batch, seq, d] { cumsum::<seq>(x, lens) }
    }
    let model = Cpu::default().build_module::<Sums, f32>();
    let x: Tensor<Rank3<2, 3, 2>, f32, Cpu> = Cpu::default().zeros();
    let lens: Tensor<Rank1<2>, usize, Cpu> = Cpu::default().tensor([3, 4]);
    let message = "cumsum: the valid length at [1] is 4, but there are 3 keys";
    let error = model.try_forward((x.clone(), lens.clone())).unwrap_err();
    assert_eq!(error.to_string(), message);
    let error = model.composed().try_forward((x, lens)).unwrap_err();
    assert_eq!(error.to_string(), message);
}

/// An axis of size 0 has no number that counts.
#[test]
fn empty_axes_count_as_nothing() {
    let model = Cpu::default().build_module::<All, f32>();
    for (batch, seq) in [(2, 0), (0, 2)] {
        let input = || {
            (
                tensor::<_, f32>("x", (batch, seq, Const::<2>)),
                marks((batch, seq)),
            )
        };
        let (a, b, c, d, e, f, _) = model.forward(input());
        for y in [a, b, c, d, e] {
            assert!(tensors::flat(&y).iter().all(|y| *y == 0.0));
        }
        assert!(tensors::flat(&f).iter().all(|y| *y == f64::NEG_INFINITY));
        let (a, b, c, d, e, f, _) = model.composed().forward(input());
        for y in [a, b, c, d, e] {
            assert!(tensors::flat(&y).iter().all(|y| *y == 0.0));
        }
        assert!(tensors::flat(&f).iter().all(|y| *y == f64::NEG_INFINITY));
    }
}
