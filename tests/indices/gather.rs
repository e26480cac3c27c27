//! Numbers at indices of an axis.

use super::claim::{agree, tolerance};
use super::*;
use attn::{Backend, Element, model};
use support::compare::assert_same;

support::gathers!(agree);

model! {
    struct Last<d = 3>;
    fn forward(x: [batch, seq, d], last: ids[batch]) -> [batch, d] { x[seq = last] }
}

/// The element `[i, j, k]` is `100 i + 10 j + k`.
fn numbered(batch: usize, seq: usize) -> Tensor<(usize, usize, Const<3>), f32, Cpu> {
    let at = |place: usize| (100 * (place / 3 / seq) + 10 * (place / 3 % seq) + place % 3) as f32;
    let numbers = (0..batch * seq * 3).map(at).collect();
    Cpu::default().tensor_from_vec(numbers, (batch, seq, Const))
}

#[test]
fn numbers_are_where_the_ids_say() {
    let model = Cpu::default().build_module::<Last, f32>();
    let last: Tensor<(usize,), usize, Cpu> = Cpu::default().tensor_from_vec(vec![2, 0, 4], (3,));
    let want = [20.0, 21.0, 22.0, 100.0, 101.0, 102.0, 240.0, 241.0, 242.0];
    let input = || (numbered(3, 5), last.clone());
    assert_eq!(model.forward(input()).as_vec(), want);
    assert_eq!(model.composed().forward(input()).as_vec(), want);
}

#[test]
fn an_id_beyond_the_axis_is_an_error_that_names_both() {
    let model = Cpu::default().build_module::<Last, f32>();
    let last: Tensor<(usize,), usize, Cpu> = Cpu::default().tensor_from_vec(vec![2, 5, 4], (3,));
    let input = || (numbered(3, 5), last.clone());
    let message = "x[seq = last]: the id at [1] is 5, but there are 5: 0 to 4";
    let error = model.try_forward(input()).unwrap_err();
    assert_eq!(error.to_string(), message);
    let error = model.composed().try_forward(input()).unwrap_err();
    assert_eq!(error.to_string(), message);
    // Another size of the batch.
    let error = model.try_forward((numbered(2, 5), last)).unwrap_err();
    let message = "Last: axis `batch` is 2 in `x`, but 3 in `last`";
    assert_eq!(error.to_string(), message);
}

#[test]
fn without_sequences_there_is_no_id() {
    let model = Cpu::default().build_module::<Last, f32>();
    let none: Tensor<(usize,), usize, Cpu> = Cpu::default().tensor_from_vec(vec![], (0,));
    let input = || (numbered(0, 5), none.clone());
    assert!(tensors::flat(&model.forward(input())).is_empty());
    assert!(tensors::flat(&model.composed().forward(input())).is_empty());
    // An axis without indices.
    let zero: Tensor<(usize,), usize, Cpu> = Cpu::default().tensor_from_vec(vec![0], (1,));
    let error = model
        .try_forward((tensor("x", (1, 0, Const)), zero))
        .unwrap_err();
    let message = "x[seq = last]: the id at [0] is 0, but there are 0: none";
    assert_eq!(error.to_string(), message);
}

#[test]
fn constants_of_an_axis_of_any_length_are_checked() {
    model! {
        struct Ends<d = 3>;
        fn forward(x: [seq, d]) -> [3, d] { x[[0, -1, 2]] }
    }
    let model = Cpu::default().build_module::<Ends, f32>();
    let x = |seq| numbered(1, seq).reshape_like(&(seq, Const::<3>));
    let want = [0.0, 1.0, 2.0, 40.0, 41.0, 42.0, 20.0, 21.0, 22.0];
    assert_eq!(model.forward(x(5)).as_vec(), want);
    assert_eq!(model.composed().forward(x(5)).as_vec(), want);
    let message = "Ends: `seq` has size 2, the model reads 3 of it";
    assert_eq!(model.try_forward(x(2)).unwrap_err().to_string(), message);
    let error = model.composed().try_forward(x(2)).unwrap_err();
    assert_eq!(error.to_string(), message);
}

/// Of constant axes, and of sizes that are no multiples of a vector.
#[test]
fn axes_may_be_constants_of_the_call() {
    let model = Cpu::default().build_module::<Last, f64>();
    let x: Tensor<Rank3<2, 7, 3>, f64, Cpu> = Cpu::default().sample_normal();
    let last: Tensor<Rank1<2>, usize, Cpu> = Cpu::default().tensor([6, 1]);
    let y: Tensor<Rank2<2, 3>, f64, Cpu> = model.forward((x.clone(), last));
    assert_eq!(y.array(), [x.array()[0][6], x.array()[1][1]]);
}

#[test]
fn a_session_looks_up_rows() {
    model! {
        struct Lm<vocab = 5, d = 4>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            param table: [vocab, d] = normal(1.0);
            let x = table[tokens];
            let x = x + attention::<heads = 2, mask = causal>(x);
            linear::<vocab>(x[d = [3, 0]])
        }
    }
    let mut model = Cpu::default().build_module::<Lm, f64>();
    scatter(&mut model);
    let tokens = [3, 1, 4, 1, 2];
    let whole: Tensor<Rank3<1, 5, 5>, f64, Cpu> = model.forward(Cpu::default().tensor([tokens]));
    let mut session = model.session(5).unwrap();
    for (position, token) in tokens.into_iter().enumerate() {
        let logits = session.prefill(&[token]).unwrap();
        for (a, b) in logits.iter().zip(whole.array()[0][position]) {
            assert!((a - b).abs() < tolerance::<f64>(), "{position}");
        }
    }
    assert!(session.prefill(&[5]).is_err());
}
