//! Vocabularies and numbers of rows of several blocks, where the forward pass computes the gradients of a mean, and the derivative of other
//! losses computes the logits again.

use super::*;
use attn::ops::{CrossEntropyOptions, cross_entropy, cross_entropy_per_target};
use rayon::ThreadPoolBuilder;
use support::compare::flat;

/// Odd, and of five blocks.
const VOCAB: usize = 4103;

model! {
    struct Large<d = 5>;

    fn forward(x: [rows, d]) -> [rows, VOCAB] { linear::<VOCAB>(x) }

    fn loss(x: [rows, d], targets: ids[rows]) -> [] {
        cross_entropy::<ignore_index = 3, label_smoothing = 0.1>(forward(x), targets)
    }

    fn losses(x: [rows, d], targets: ids[rows]) -> [rows] {
        cross_entropy::<ignore_index = 3, reduction = none>(forward(x), targets)
    }
}

type X<E> = Tensor<(usize, Const<5>), E, Cpu>;
type Targets = Tensor<(usize,), usize, Cpu>;

fn inputs<E: Element>(rows: usize) -> (Large<E, Cpu>, X<E>, Targets)
where
    Cpu: Backend<E>,
{
    let mut model = Cpu::default().build_module::<Large, E>();
    scatter(&mut model);
    let target = |row| if row % 7 == 1 { 3 } else { row * 797 % VOCAB };
    let targets = (0..rows).map(target).collect();
    let targets = Cpu::default().tensor_from_vec(targets, (rows,));
    (model, tensor("x", (rows, Const)), targets)
}

/// The mean with some upstream gradient, and the loss of each target with others.
fn fused<E: Element>(rows: usize) -> [Outcome; 2]
where
    Cpu: Backend<E>,
{
    let (model, x, targets) = inputs::<E>(rows);
    let mean = backpropagate(model.loss((x.leaky_trace(), targets.clone())));
    let each = backpropagate(model.losses((x.leaky_trace(), targets)));
    [mean, each].map(|ran: Backpropagated<E>| ran.input("x", &x).parameters(&model))
}

/// The same of all logits.
fn unfused<E: Element>(rows: usize) -> [Outcome; 2]
where
    Cpu: Backend<E>,
{
    let (model, x, targets) = inputs::<E>(rows);
    let options = |label_smoothing| CrossEntropyOptions {
        ignore_index: Some(3),
        label_smoothing,
    };
    let logits = || model.forward(x.leaky_trace());
    let mean = backpropagate(cross_entropy(logits(), &targets, options(0.1)));
    let each = backpropagate(cross_entropy_per_target(logits(), &targets, options(0.0)));
    [mean, each].map(|ran: Backpropagated<E>| ran.input("x", &x).parameters(&model))
}

/// A block of rows, several of them, and a number of rows that no block divides.
const ROWS: [usize; 4] = [1, 256, 300, 777];

#[test]
fn blocks_compute_what_all_logits_do() {
    for rows in ROWS {
        let [found, want] = [fused::<f64>(rows), unfused::<f64>(rows)];
        for (found, want) in found.iter().zip(&want) {
            // Sums of up to 4103 terms in another order.
            assert_same(format!("{rows} rows"), found, want, 1e-12);
        }
        let [found, want] = [fused::<f32>(rows), unfused::<f32>(rows)];
        for (found, want) in found.iter().zip(&want) {
            assert_same(format!("{rows} rows in f32"), found, want, 1e-4);
        }
    }
}

#[test]
fn gradients_are_those_of_differences() {
    let rows = 300;
    let (model, x, targets) = inputs::<f64>(rows);
    let [mean, each] = fused::<f64>(rows);
    let loss_of = |model: &Large<f64, Cpu>, x: &X<f64>| {
        let loss = model.loss((x.leaky_trace(), targets.clone()));
        backpropagate(loss).outcome().loss()
    };
    let losses_of = |model: &Large<f64, Cpu>, x: &X<f64>| {
        let losses = model.losses((x.leaky_trace(), targets.clone()));
        backpropagate(losses).outcome().loss()
    };
    let make = || model.clone();
    support::gradients::assert_gradients_of_parameters(&make, &mean, &|moved| loss_of(&moved, &x));
    support::gradients::assert_gradient_of_input("x", &x, &mean, &|x| loss_of(&model, &x));
    support::gradients::assert_gradients_of_parameters(&make, &each, &|moved| {
        losses_of(&moved, &x)
    });
    support::gradients::assert_gradient_of_input("x", &x, &each, &|x| losses_of(&model, &x));
}

#[test]
fn both_forms_agree() {
    let (model, x, targets) = inputs::<f64>(300);
    let input = (x.clone(), targets.clone());
    let [fused, composed] = [
        model.loss(input.clone()).array(),
        model.loss_composed(input.clone()).array(),
    ];
    assert!((fused - composed).abs() < 1e-12, "{fused}, {composed}");
    // Without a tape, as with one.
    assert_eq!(model.loss((x.leaky_trace(), targets)).array(), fused);
}

#[test]
fn without_a_target_there_is_no_gradient() {
    for rows in [0, 300] {
        let (model, x, _) = inputs::<f64>(rows);
        let targets = Cpu::default().tensor_from_vec(vec![3; rows], (rows,));
        let loss = model.loss((x.leaky_trace(), targets.clone()));
        assert!(loss.array().is_nan());
        // The gradient of the loss itself is NaN.
        let gradients = loss.exp().backward();
        let weight = gradients.get(&model.linear.weight);
        let all = [flat(&weight), flat(&gradients.get(&x))];
        assert!(all.iter().flatten().all(|d| *d == 0.0));
        assert_eq!(flat(&model.losses((x, targets))), vec![0.0; rows]);
    }
}

#[test]
fn results_have_the_same_bits_for_any_number_of_threads() {
    let run = |threads: usize| {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap().install(|| format!("{:?}", fused::<f32>(300)))
    };
    let one = run(1);
    assert!([2, 3].iter().all(|threads| run(*threads) == one));
}

#[test]
fn the_flops_are_those_of_the_declaration() {
    assert_eq!(Large::flops(300), 2 * 300 * 5 * VOCAB as u64);
}
