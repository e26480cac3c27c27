//! Rows of a table.

use super::*;
use attn::{
    Error,
    nn::Embedding,
    ops::{self, composed},
};
use support::tensors::flat;

const M: usize = 5;

/// Ids that repeat and are not sorted.
fn ids<S: Shape>(shape: S, below: usize) -> Tensor<S, usize, Cpu> {
    let ids = (0..shape.num_elements()).map(|i| (i * i * 7 + 3) % below);
    Cpu::default().tensor_from_vec(ids.collect(), shape)
}

fn agrees<E: Element, const V: usize>()
where
    Cpu: Backend<E>,
{
    let weight: Tensor<Rank2<V, M>, E, _> = tensor("weight", Default::default());
    for (b, s) in SIZES {
        let ids = ids((b, s), V);
        assert_agree!(
            format!("{b} x {s} of {V}"),
            [weight],
            ops::embedding(ids.clone().leaky_traced(), &weight),
            composed::embedding(ids.clone().leaky_traced(), &weight).unwrap()
        );
    }
}

#[test]
fn embedding_equals_that_of_dfdx() {
    agrees::<f32, 1>();
    agrees::<f64, 11>();
    // A large table, of which the ids read few rows.
    agrees::<f32, 700>();
}

#[test]
fn ids_have_zero_to_three_axes() {
    let weight: Tensor<Rank2<11, M>, f64, _> = tensor("weight", Default::default());
    let rows = flat(&weight);
    let expected = |ids: &[usize]| -> Vec<f64> {
        ids.iter()
            .flat_map(|id| &rows[id * M..][..M])
            .copied()
            .collect()
    };
    let scalar: Tensor<Rank0, usize, _> = Cpu::default().tensor(4);
    let y: Tensor<Rank1<M>, f64, _> = ops::embedding(scalar, &weight);
    assert_eq!(flat(&y), expected(&[4]));
    let three = ids((2, 3, Const::<4>), 11);
    let numbers = three.as_vec();
    let y: Tensor<(usize, usize, Const<4>, Const<M>), f64, _> = ops::embedding(three, &weight);
    assert_eq!(flat(&y), expected(&numbers));
    // A view.
    let permuted: Tensor<Rank2<4, 3>, usize, _> = ids(Default::default(), 11);
    let permuted: Tensor<Rank2<3, 4>, usize, _> = permuted.permute();
    let numbers = permuted.as_vec();
    assert_eq!(flat(&ops::embedding(permuted, &weight)), expected(&numbers));
}

#[test]
fn a_table_may_be_a_view() {
    fn check<const V: usize>() {
        let columns: Tensor<Rank2<M, V>, f64, _> = tensor("columns", Default::default());
        let table: Tensor<Rank2<V, M>, f64, _> = columns.clone().permute();
        let rows = flat(&table);
        let ids = ids((3,), V);
        let y = ops::embedding(ids.clone().leaky_traced(), &table);
        let expected = ids.as_vec().into_iter().flat_map(|id| &rows[id * M..][..M]);
        assert_eq!(flat(&y), expected.copied().collect::<Vec<_>>());
        let gradient = flat(&y.sum().backward().get(&table));
        let count = |id| ids.as_vec().iter().filter(|&&i| i == id).count() as f64;
        assert_eq!(
            gradient,
            (0..V * M).map(|i| count(i / M)).collect::<Vec<_>>()
        );
    }
    check::<7>();
    check::<100>();
}

#[test]
fn an_output_may_share_the_table() {
    let weight: Tensor<Rank2<11, M>, f64, _> = tensor("weight", Default::default());
    let ids = ids((4,), 11);
    let tied = |dfdx: bool| {
        let ids = ids.clone().leaky_traced();
        if dfdx {
            let x = composed::embedding(ids, &weight).unwrap();
            composed::linear(x.tanh(), &weight, None).unwrap()
        } else {
            ops::linear(ops::embedding(ids, &weight).tanh(), &weight, None)
        }
    };
    assert_agree!("tied", [weight], tied(false), tied(true));
}

#[test]
fn an_unknown_id_is_an_error_with_its_place() {
    let embedding = Cpu::default().build_module::<Embedding<11, M>, f32>();
    let ids: Tensor<Rank2<2, 3>, usize, _> = Cpu::default().tensor([[0, 1, 10], [2, 11, 12]]);
    let error = embedding.try_forward(ids.clone()).map(drop).unwrap_err();
    assert!(
        matches!(&error, Error::OutOfRange { index: 11, count: 11, place, .. } if place == &[1, 1])
    );
    assert_eq!(
        error.to_string(),
        "embedding: the id at [1, 1] is 11, but there are 11: 0 to 10"
    );
    let error = ops::try_embedding(ids, &embedding.weight)
        .map(drop)
        .unwrap_err();
    assert!(matches!(error, Error::OutOfRange { .. }));
}

#[test]
#[should_panic(expected = "the id at [2] is 11, but there are 11")]
fn in_a_tuple_of_layers_it_is_a_panic_with_the_message() {
    let model = Cpu::default().build_module::<(Embedding<11, M>, Tanh), f32>();
    let ids: Tensor<Rank1<3>, usize, _> = Cpu::default().tensor([0, 1, 11]);
    model.forward(ids);
}

#[test]
fn empty_ids_are_accepted_and_the_tape_has_one_operation() {
    let weight: Tensor<Rank2<500, M>, f64, _> = tensor("weight", Default::default());
    let y = ops::embedding(ids((2, 0), 1).leaky_traced(), &weight);
    assert_eq!(y.shape().concrete(), [2, 0, M]);
    let gradients = backward_of_nothing(y);
    assert_eq!(flat(&gradients.get(&weight)), [0.0; 500 * M]);
    for count in [3, 100] {
        let y = ops::embedding(ids((count,), 500).leaky_traced(), &weight);
        assert_eq!(operations(y), 1);
    }
}
