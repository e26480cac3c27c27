//! Values one after the other along an axis, and axes in another order.

use super::agree::{agree, tolerance};
use super::*;
use attn::{Backend, Element, model};
use support::compare::assert_same;

support::shapes!(agree);

#[test]
fn numbers_are_where_the_names_say() {
    model! {
        struct Model<rows = 2, cols = 3>;
        fn forward(x: [rows, cols, any]) -> ([any, rows, cols], [rows, 5, any]) {
            (permute::<[any, rows, cols]>(x), concat::<cols>(x[cols = 1..], x))
        }
    }
    let x = |i: usize, j: usize, k: usize| (100 * i + 10 * j + k) as f32;
    let numbers = (0..2 * 3 * 4).map(|place| x(place / 12, place / 4 % 3, place % 4));
    let input = Cpu::default().tensor_from_vec(numbers.collect(), (Const::<2>, Const::<3>, 4));
    let model = Cpu::default().build_module::<Model, f32>();
    let check = |permuted: Vec<f32>, joined: Vec<f32>| {
        for k in 0..4 {
            for i in 0..2 {
                for j in 0..3 {
                    assert_eq!(permuted[(k * 2 + i) * 3 + j], x(i, j, k));
                }
                for j in 0..5 {
                    let from = if j < 2 { j + 1 } else { j - 2 };
                    assert_eq!(joined[(i * 5 + j) * 4 + k], x(i, from, k));
                }
            }
        }
    };
    let (permuted, joined) = model.forward(input.clone());
    check(permuted.as_vec(), joined.as_vec());
    let (permuted, joined) = model.composed().forward(input);
    check(permuted.as_vec(), joined.as_vec());
}

#[test]
fn a_session_goes_on_with_parts_of_vectors() {
    model! {
        struct Gated<vocab = 5, d = 4, hidden = { 2 * d }>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let x = embedding::<vocab, d>(tokens);
            let x = x + attention::<heads = 2, mask = causal>(x);
            let (a, b) = split::<hidden>(linear::<hidden>(x));
            linear::<vocab>(concat::<d>(a * sigmoid(b), x[d = 1..3]))
        }
    }
    let mut model = Cpu::default().build_module::<Gated, f64>();
    scatter(&mut model);
    let tokens = [3, 1, 4, 1, 2];
    let ids = Cpu::default().tensor([tokens]);
    let whole: Tensor<Rank3<1, 5, 5>, f64, Cpu> = model.forward(ids);
    let mut session = model.session(5).unwrap();
    for (position, token) in tokens.into_iter().enumerate() {
        let logits = session.prefill(&[token]).unwrap();
        let expected = whole.array()[0][position];
        for (a, b) in logits.iter().zip(expected) {
            assert!((a - b).abs() < tolerance::<f64>(), "{position}");
        }
    }
}
