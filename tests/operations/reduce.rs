//! Reductions of axes, and the softmax along an axis.

use super::agree::{agree, tolerance};
use super::*;
use attn::{Backend, Element, model};
use support::compare::assert_same;

support::reductions!(agree);

/// The numbers of a tensor of three axes.
type Numbers = Vec<Vec<Vec<f64>>>;

/// `f` of all numbers.
fn all(x: &Numbers, f: impl Fn(&[f64]) -> f64) -> f64 {
    f(&x.concat().concat())
}

/// `f` along the sequences.
fn along_seq(x: &Numbers, f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let columns = |x: &Vec<Vec<f64>>| {
        let column = |i: usize| x.iter().map(|row| row[i]).collect::<Vec<_>>();
        (0..3).map(|i| f(&column(i))).collect::<Vec<_>>()
    };
    x.iter().flat_map(columns).collect()
}

/// `f` along sequences and vectors.
fn along_both(x: &Numbers, f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    x.iter().map(|x| f(&x.concat())).collect()
}

fn sum(x: &[f64]) -> f64 {
    x.iter().sum()
}

fn mean(x: &[f64]) -> f64 {
    sum(x) / x.len() as f64
}

fn variance(x: &[f64]) -> f64 {
    let squares: Vec<f64> = x.iter().map(|number| (number - mean(x)).powi(2)).collect();
    mean(&squares)
}

fn largest(x: &[f64]) -> f64 {
    x.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

fn smallest(x: &[f64]) -> f64 {
    x.iter().copied().fold(f64::INFINITY, f64::min)
}

fn logsumexp(x: &[f64]) -> f64 {
    x.iter().map(|x| x.exp()).sum::<f64>().ln()
}

/// Checks a model whose three results are a reduction along an axis, along two, and along all.
macro_rules! assert_reduces {
    ($($name:ident by $by_loops:ident;)*) => {$(
        #[test]
        fn $by_loops() {
            model! {
                struct Reduced<d = 3>;
                fn forward(x: [batch, seq, d]) -> ([batch, d], [batch], [batch, seq, d]) {
                    ($name::<seq>(x), $name::<[seq, d]>(x), x + $name::<[batch, seq, d]>(x))
                }
            }
            let model = Cpu::default().build_module::<Reduced, f64>();
            let x: Tensor<(usize, usize, Const<3>), f64, Cpu> = tensor("x", (2, 5, Const));
            let numbers: Numbers = tensors::flat(&x).chunks(15).map(|x| x.chunks(3).map(<[_]>::to_vec).collect()).collect();
            let check = |by_seq: Vec<f64>, by_both: Vec<f64>, by_all: Vec<f64>| {
                let found = [by_seq, by_both, by_all].concat();
                let by_loops = super::$by_loops;
                let want = [
                    along_seq(&numbers, by_loops),
                    along_both(&numbers, by_loops),
                    numbers.concat().concat().iter().map(|x| x + all(&numbers, by_loops)).collect(),
                ];
                // Sums of up to 30 numbers of about 1.
                support::close::assert_close(stringify!($name), &found, &want.concat(), support::close::Tolerance::Absolute(1e-14));
            };
            let (by_seq, by_both, by_all) = model.forward(x.clone());
            check(tensors::flat(&by_seq), tensors::flat(&by_both), tensors::flat(&by_all));
            let (by_seq, by_both, by_all) = model.composed().forward(x);
            check(tensors::flat(&by_seq), tensors::flat(&by_both), tensors::flat(&by_all));
        }
    )*};
}

mod values {
    use super::*;

    assert_reduces! {
        sum by sum;
        mean by mean;
        max by largest;
        min by smallest;
        variance by variance;
        logsumexp by logsumexp;
    }
}
