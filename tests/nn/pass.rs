//! Forward passes of models, whose values have no tape.

use super::*;
use attn::{
    __private::{ForwardOptions, Pass},
    Error,
    nn::{
        Embedding, FeedForward, GatedFeedForward, LayerNorm, LearnedPosition, Linear, RmsNorm,
        Tanh, UnbiasedLinear,
    },
};
use support::{gradients::assert_gradients_of_parameters, tensors::flat};

const VOCAB: usize = 7;
const M: usize = 4;

/// A layer of each kind.
type Layers = (
    Embedding<VOCAB, M>,
    LearnedPosition<6, M>,
    LayerNorm<M>,
    FeedForward<M, 9>,
    (RmsNorm<M>, GatedFeedForward<M, 5>),
    (Linear<M, 3>, UnbiasedLinear<7, M>),
);

type Model = <Layers as BuildOnDevice<Cpu, f64>>::Built;
type Logits<T> = Tensor<(usize, Const<VOCAB>), f64, Cpu, T>;

fn model() -> Model {
    let mut model = Cpu::default().build_module::<Layers, f64>();
    support::tensors::fill(&mut model, |name, values| scattered(name, values.len()));
    model
}

fn ids() -> Tensor<(usize, usize), usize, Cpu> {
    Cpu::default().tensor_from_vec(vec![1, 2, 3, 0, 6, 6, 1, 0, 5, 4], (2, 5))
}

/// Every operation, one after another.
fn forward<T: Tape<f64, Cpu>>(
    model: &Model,
    composed: bool,
    ids: Tensor<(usize, usize), usize, Cpu, T>,
) -> Result<Logits<T>, Error<CpuError>> {
    let (table, position, norm, feed_forward, (rms, gated), (linear, unbiased)) = model;
    let mut pass = Pass::new(ForwardOptions {
        composed,
        ..ForwardOptions::FORWARD
    });
    let ids = pass.input(ids);
    let (batch, len) = *ids.shape();
    let x = pass.embedding(&ids, table)?;
    let learned = pass.learned_position((Const::<1>, len), position)?;
    let learned = pass.expand(&learned, (batch, len, Const::<M>))?;
    let waves = pass.sinusoidal_position((batch, len), x.device())?;
    let positions = pass.sub(&waves, &learned)?;
    let x = pass.add(&x, &positions)?;
    let normal = pass.layer_norm(&x, norm)?;
    let y = pass.feed_forward(&normal, feed_forward)?;
    let x = pass.add(&x, &y)?;
    let x = pass.rms_norm(&x, rms)?;
    let y = pass.gated_feed_forward(&x, gated)?;
    let three = pass.linear(&y, linear)?;
    let shares = pass.softmax(&three)?;
    let seven: Tensor<(usize, usize, Const<7>), _, _> = pass.concat(&shares, &x)?;
    let y = pass.linear(&seven, unbiased)?;
    let y = pass.activate::<Tanh, _, _, _>(&y)?;
    let y = pass.dropout(&y, 0.9)?;
    let lens = Cpu::default().tensor_from_vec((0..batch).map(|b| len - b).collect(), (batch,));
    let padded = pass.mean_pool_padded(&y, &lens)?;
    let whole = pass.mean_pool(&x)?;
    let x = pass.mul(&padded, &whole)?;
    let shares = pass.softmax_along(&y, Axis::<1>)?;
    let reduced = [
        pass.sum(&y, Axis::<1>)?,
        pass.mean(&y, Axis::<1>)?,
        pass.max(&y, Axis::<1>)?,
        pass.min(&y, Axis::<1>)?,
        pass.variance(&shares, Axis::<1>)?,
        pass.logsumexp(&y, Axis::<1>)?,
    ];
    let [mut all, others @ ..] = reduced;
    for other in &others {
        all = pass.add(&all, other)?;
    }
    let all = pass.scale(&all, 0.1)?;
    let x = pass.add(&x, &all)?;
    let x = pass.scale(&x, 3.0)?;
    let x = pass.shift(&x, 0.25)?;
    let x = pass.mul(&x, &x)?;
    let logits = pass.tied_linear(&x, table)?;
    Ok(pass.output(logits))
}

fn traced(model: &Model, composed: bool) -> Traced<(usize, Const<VOCAB>), f64> {
    forward(model, composed, ids().leaky_traced()).unwrap()
}

#[test]
fn forms_agree_in_all_gradients() {
    let model = model();
    let [found, expected] =
        [false, true].map(|composed| backpropagate(traced(&model, composed)).parameters(&model));
    // The numbers were divided by deviations of a tenth, twice.
    assert_same("all", &found, &expected, 100.0 * tolerance::<f64>());
}

#[test]
fn gradients_are_the_derivatives() {
    let run = |model: &Model| backpropagate(traced(model, false)).parameters(model);
    assert_gradients_of_parameters(&model, &run(&model()), &|moved| run(&moved).loss());
}

#[test]
fn operations_are_one_on_the_tape_each() {
    // The waves have no gradient, and no dropout is applied.
    assert_eq!(operations(traced(&model(), false)), 36);
}

#[test]
fn results_without_a_tape_are_the_same() {
    let model = model();
    for composed in [false, true] {
        let y = forward(&model, composed, ids()).unwrap();
        assert_eq!(flat(&y), flat(&traced(&model, composed)));
    }
}

#[test]
fn forms_have_the_same_errors() {
    let model = model();
    for composed in [false, true] {
        let unknown = Cpu::default().tensor_from_vec(vec![0, VOCAB], (1, 2));
        let error = forward(&model, composed, unknown).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { index: VOCAB, .. }));
        let mut pass = Pass::<NoneTape>::new(ForwardOptions {
            composed,
            ..ForwardOptions::FORWARD
        });
        let error = pass.learned_position((2, 7), &model.1).unwrap_err();
        assert!(matches!(
            error,
            Error::TooLong {
                length: 7,
                max: 6,
                ..
            }
        ));
    }
}

#[test]
fn dropout_acts_while_training_with_a_tape() {
    let x: Tensor<Rank1<50>, f64, _> = Cpu::default().ones();
    fn dropped<T: Tape<f64, Cpu>>(train: bool, x: Tensor<Rank1<50>, f64, Cpu, T>) -> bool {
        let mut pass = Pass::new(ForwardOptions {
            train,
            ..ForwardOptions::FORWARD
        });
        let x = pass.input(x);
        let y = pass.dropout(&x, 0.5).unwrap();
        flat(&pass.output(y)).contains(&0.0)
    }
    assert!(dropped(true, x.leaky_trace()));
    assert!(!dropped(true, x.clone()));
    assert!(!dropped(false, x.leaky_trace()));
}

#[test]
fn inputs_share_a_tape_and_the_first_output_has_it() {
    let [x, y]: [Tensor<Rank1<3>, f64, _>; 2] =
        ["x", "y"].map(|name| tensor(name, Default::default()));
    let mut pass = Pass::new(ForwardOptions::FORWARD);
    let a = pass.input(x.leaky_trace());
    let b = pass.input(y.leaky_trace());
    let product = pass.mul(&a, &b).unwrap();
    let first = pass.output(product.clone());
    assert_eq!(operations(pass.output(product)), 0);
    let gradients = first.sum().backward();
    assert_eq!(flat(&gradients.get(&x)), flat(&y));
    assert_eq!(flat(&gradients.get(&y)), flat(&x));
}
