//! Ids that the model computes, and sums by ids.

use super::claim::{agree, tolerance};
use super::*;
use attn::{Backend, Element, model};
use support::compare::assert_same;

support::computed_ids!(agree);

#[test]
fn the_first_of_equal_numbers_is_the_largest() {
    model! {
        struct Ranked<d = 4>;
        fn forward(x: [seq, d]) -> ([seq, d], [seq, 3], [seq, 3, d]) {
            let (values, ids) = top_k::<k = 3>(x);
            (one_hot::<d>(argmax::<d>(x)), values, one_hot::<d>(ids))
        }
    }
    let model = Cpu::default().build_module::<Ranked, f32>();
    let x: Tensor<Rank2<2, 4>, f32, Cpu> =
        Cpu::default().tensor([[1.0, 3.0, 3.0, 2.0], [f32::NAN, 5.0, f32::INFINITY, 5.0]]);
    let check = |largest: Vec<f32>, values: Vec<f32>, ids: Vec<f32>| {
        assert_eq!(largest, [0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
        assert_eq!(values[..3], [3.0, 3.0, 2.0]);
        assert!(values[3].is_nan());
        assert_eq!(values[4..], [f32::INFINITY, 5.0]);
        let order: Vec<usize> = ids
            .chunks(4)
            .map(|row| row.iter().position(|x| *x == 1.0).unwrap())
            .collect();
        assert_eq!(order, [1, 2, 3, 0, 2, 1]);
    };
    let (a, b, c) = model.forward(x.clone());
    check(a.as_vec(), b.as_vec(), c.as_vec());
    let (a, b, c) = model.composed().forward(x);
    check(a.as_vec(), b.as_vec(), c.as_vec());
}

#[test]
fn too_short_an_axis_is_an_error() {
    model! {
        struct Best<d = 2>;
        fn forward(x: [seq, d]) -> [d] { x[argmax::<seq>(x[d = 0])] }
    }
    model! {
        struct Two<d = 2>;
        fn forward(x: [seq, d]) -> [2, d] {
            let (values, _ids) = top_k::<seq, k = 2>(x);
            values
        }
    }
    let none: Tensor<(usize, Const<2>), f32, Cpu> = Cpu::default().zeros_like(&(0, Const));
    let message = "Best: `seq` has size 0, the model reads 1 of it";
    let best = Cpu::default().build_module::<Best, f32>();
    assert_eq!(
        best.try_forward(none.clone()).unwrap_err().to_string(),
        message
    );
    assert_eq!(
        best.composed().try_forward(none).unwrap_err().to_string(),
        message
    );
    let one: Tensor<(usize, Const<2>), f32, Cpu> = Cpu::default().zeros_like(&(1, Const));
    let message = "Two: `seq` has size 1, the model reads 2 of it";
    let two = Cpu::default().build_module::<Two, f32>();
    assert_eq!(
        two.try_forward(one.clone()).unwrap_err().to_string(),
        message
    );
    assert_eq!(
        two.composed().try_forward(one).unwrap_err().to_string(),
        message
    );
}

/// The largest id that may be computed is known before anything is.
#[test]
fn computed_ids_beyond_a_table_are_an_error() {
    model! {
        struct Positions<d = 2, max_len = 3>;
        fn forward(x: [seq, d]) -> [seq, d] {
            param table: [max_len, d] = normal(1.0);
            x + table[arange::<seq>()]
        }
    }
    let model = Cpu::default().build_module::<Positions, f32>();
    let x =
        |seq| -> Tensor<(usize, Const<2>), f32, Cpu> { Cpu::default().zeros_like(&(seq, Const)) };
    let y = model.forward(x(3));
    assert_eq!(y.as_vec(), model.table.weight.as_vec());
    let message = "table[arange(..)]: the largest id is 3, but there are 3: 0 to 2";
    assert_eq!(model.try_forward(x(4)).unwrap_err().to_string(), message);
    let error = model.composed().try_forward(x(4)).unwrap_err();
    assert_eq!(error.to_string(), message);
}

#[test]
fn sums_are_of_the_numbers_with_an_id() {
    model! {
        struct Counts<vocab = 4>;
        fn forward(x: [batch, seq], tokens: ids[seq, batch]) -> ([vocab], [batch, vocab]) {
            (scatter_add::<vocab>(x, tokens), scatter_add::<[batch, vocab]>(x, tokens))
        }
    }
    let model = Cpu::default().build_module::<Counts, f32>();
    for (batch, seq) in [(2, 3), (1, 1), (0, 3), (3, 0)] {
        let numbers: Vec<f32> = (0..batch * seq).map(|place| (place + 1) as f32).collect();
        let x: Tensor<(usize, usize), f32, Cpu> =
            Cpu::default().tensor_from_vec(numbers.clone(), (batch, seq));
        let tokens = ids((seq, batch), 4);
        let of: Vec<usize> = if batch * seq == 0 {
            Vec::new()
        } else {
            tokens.as_vec()
        };
        let mut all = vec![0.0; 4];
        let mut each = vec![0.0; batch * 4];
        for b in 0..batch {
            for s in 0..seq {
                all[of[s * batch + b]] += numbers[b * seq + s];
                each[b * 4 + of[s * batch + b]] += numbers[b * seq + s];
            }
        }
        let all: Vec<f64> = all.into_iter().map(f64::from).collect();
        let each: Vec<f64> = each.into_iter().map(f64::from).collect();
        let (a, b) = model.forward((x.clone(), tokens.clone()));
        assert_eq!(
            (tensors::flat(&a), tensors::flat(&b)),
            (all.clone(), each.clone())
        );
        let (a, b) = model.composed().forward((x, tokens));
        assert_eq!((tensors::flat(&a), tensors::flat(&b)), (all, each));
    }
}

#[test]
fn an_id_beyond_the_sums_is_an_error() {
    model! {
        struct Sums<d = 2, n = 3>;
        fn forward(x: [seq, d], to: ids[seq]) -> [n, d] { scatter_add::<[n, d]>(x, to) }
    }
    let model = Cpu::default().build_module::<Sums, f32>();
    let x: Tensor<Rank2<2, 2>, f32, Cpu> = Cpu::default().zeros();
    let to: Tensor<Rank1<2>, usize, Cpu> = Cpu::default().tensor([1, 3]);
    let message = "scatter_add: the id at [1] is 3, but there are 3: 0 to 2";
    let error = model.try_forward((x.clone(), to.clone())).unwrap_err();
    assert_eq!(error.to_string(), message);
    let error = model.composed().try_forward((x, to)).unwrap_err();
    assert_eq!(error.to_string(), message);
}

#[test]
fn a_session_chooses_experts() {
    model! {
        struct Experts<vocab = 5, d = 4, experts = 3>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let x = embedding::<vocab, d>(tokens);
            let x = x + attention::<heads = 2, mask = causal>(x);
            param table: [experts, d] = normal(1.0);
            let (values, chosen) = top_k::<k = 2>(linear::<experts>(x));
            let x = x + sum::<2>(table[chosen] * softmax(values));
            linear::<vocab>(cumsum(detach(l2_norm(x)))) + one_hot::<vocab>(tokens)
        }
    }
    let mut model = Cpu::default().build_module::<Experts, f64>();
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
}
