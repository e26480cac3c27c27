//! Inputs by name, and inputs that a call may leave out.

use super::*;
use attn::{Error, memory, model};

const FAR: f64 = -2.5;

model! {
    /// Two inputs of one shape: their order matters.
    struct Ratio<d = 4>;

    fn forward(of: [batch, d], to: [batch, d]) -> [batch, d] { linear::<d>(of) - 2 * to }

    fn both(of: [batch, d], E: [batch, d], r#type: ids[batch]) -> { of: [batch, d], d_to: [batch, d] } {
        let emb = embedding::<9, d>(r#type);
        { of: forward(of, E) + emb, d_to: E }
    }
}

fn ratio() -> Ratio<f64, Cpu> {
    let mut ratio = Cpu::default().build_module::<Ratio, f64>();
    scatter(&mut ratio);
    ratio
}

#[test]
fn inputs_by_name_are_those_of_the_tuple() {
    let _alone = alone();
    let ratio = ratio();
    let [of, to] = ["of", "to"].map(|name| tensor::<_, f64>(name, (3, Const::<4>)));
    let y = ratio.forward((of.clone().leaky_traced(), to.clone()));
    let inputs = || RatioInputs {
        to: to.clone(),
        of: of.clone().leaky_traced(),
    };
    let named = ratio.forward(inputs());
    let composed = ratio.composed().forward(inputs());
    assert_eq!(
        tensors::flat(&y.with_empty_tape()),
        tensors::flat(&named.with_empty_tape())
    );
    let [y, named, composed] = [y, named, composed].map(|y| y.square().sum().backward());
    assert_eq!(gradients(&ratio, &y), gradients(&ratio, &named));
    assert_eq!(y.get(&of).as_vec(), named.get(&of).as_vec());
    assert_eq!(y.get(&to).as_vec(), named.get(&to).as_vec());
    let pairs = [y.get(&to).as_vec(), composed.get(&to).as_vec()];
    // A few numbers, added in another order.
    let mut pairs = pairs[0].iter().zip(&pairs[1]);
    assert!(pairs.all(|(a, b)| (a - b).abs() < 1e-14));
    // Every method takes them.
    let inputs = || RatioInputs {
        of: of.clone(),
        to: to.clone(),
    };
    assert_eq!(
        ratio.try_forward(inputs()).unwrap().shape().concrete(),
        [3, 4]
    );
    assert!(ratio.values(inputs()).get("linear").is_some());
    assert!(ratio.attention_maps(inputs()).is_empty());
    assert_eq!(Module::forward(&ratio, inputs()).shape().concrete(), [3, 4]);
}

#[test]
fn inputs_of_a_function_by_name() {
    let _alone = alone();
    let ratio = ratio();
    let [of, to] = ["of", "to"].map(|name| tensor::<_, f64>(name, (3, Const::<4>)));
    let RatioBothOutput { of: y, d_to } = ratio.both(RatioBothInputs {
        of: of.clone(),
        E: to.clone(),
        r#type: ids((3,), 9),
    });
    assert_eq!(d_to.as_vec(), to.as_vec());
    let (expected, _) = {
        let output = ratio.both((of, to, ids((3,), 9)));
        (output.of, output.d_to)
    };
    assert_eq!(y.as_vec(), expected.as_vec());
}

model! {
    /// An input of each kind may be left out.
    struct Defaults<vocab = 9, kinds = 3, d = 8, scale = 0.5>;

    fn forward(
        tokens: ids[batch, seq],
        bias: [seq, d] = { scale * 3.0 },
        factor: [] = FAR,
        kind: ids[batch, seq] = 1,
        positions: ids[batch, seq] = 0..,
        lens: lens[batch] = seq,
        keep: bool[batch, seq] = true,
    ) -> [batch, d] {
        let x = embedding::<vocab, d>(tokens) + embedding::<kinds, d, name = of_kind>(kind);
        let x = x + learned_position::<20, d>(tokens, position_ids = positions) + bias * factor;
        let x = x + attention::<2, mask = padding, name = one>(x, padding = lens);
        mean_pool(x + attention::<2, mask = padding, name = two>(x, padding = keep), keep)
    }

    /// The floats have a gradient where they are there.
    fn shifted(x: [batch, d], by: [d] = 0) -> [batch, d] { x * x + by }
}

fn defaults() -> Defaults<f64, Cpu> {
    let mut defaults = Cpu::default().build_module::<Defaults, f64>();
    scatter(&mut defaults);
    defaults
}

#[test]
fn defaults_stand_for_inputs_that_are_left_out() {
    let _alone = alone();
    let model = defaults();
    let dev = Cpu::default();
    for (batch, seq) in [(1, 1), (2, 7)] {
        let tokens = ids((batch, seq), 9);
        let bias: Tensor<(usize, Const<8>), f64, Cpu> = dev.ones_like(&(seq, Const)) * 1.5;
        let factor: Tensor<Rank0, f64, Cpu> = dev.tensor(FAR);
        let kind = dev.tensor_from_vec(vec![1; batch * seq], (batch, seq));
        let counted = (0..batch).flat_map(|_| 0..seq).collect();
        let positions = dev.tensor_from_vec(counted, (batch, seq));
        let lens = dev.tensor_from_vec(vec![seq; batch], (batch,));
        let keep: Tensor<(usize, usize), bool, Cpu> = dev.ones_like(&(batch, seq));
        let given = (
            tokens.clone(),
            Some(bias),
            Some(factor),
            Some(kind),
            Some(positions),
            Some(lens),
            Some(keep),
        );
        let absent = || {
            (
                tokens.clone().leaky_traced(),
                None,
                None,
                None,
                None,
                None,
                None,
            )
        };
        let expected = model.forward(given);
        let found = model.forward(absent());
        assert_eq!(tensors::flat(&found.with_empty_tape()), expected.as_vec());
        let by_name = model.forward(DefaultsInputs {
            tokens: tokens.clone(),
            bias: None,
            factor: None,
            kind: None,
            positions: None,
            lens: None,
            keep: None,
        });
        assert_eq!(by_name.as_vec(), expected.as_vec());
        let composed = model.composed().forward(absent());
        let mut pairs = tensors::flat(&composed.with_empty_tape())
            .into_iter()
            .zip(expected.as_vec());
        // Sums of some dozens of terms of order 1, in another order.
        assert!(pairs.all(|(a, b)| (a - b).abs() < 1e-13));
        let [found, composed] = [found, composed].map(|y| gradients(&model, &y.sum().backward()));
        let mut pairs = found.iter().flatten().zip(composed.iter().flatten());
        assert!(pairs.all(|(a, b)| (a - b).abs() < 1e-12));
    }
}

/// The lengths and the marks of one sequence differ from the others.
#[test]
fn some_inputs_may_be_left_out() {
    let _alone = alone();
    let model = defaults();
    let dev = Cpu::default();
    let tokens = ids((2, 7), 9);
    let all = model
        .forward((tokens.clone(), None, None, None, None, None, None))
        .as_vec();
    let lens = dev.tensor_from_vec(vec![7, 3], (2,));
    let some = model
        .forward((tokens, None, None, None, None, Some(lens), None))
        .as_vec();
    assert_eq!(all[..8], some[..8]);
    assert_ne!(all[8..], some[8..]);
}

#[test]
fn a_given_input_has_a_gradient() {
    let _alone = alone();
    let model = defaults();
    let x = tensor::<_, f64>("x", (3, Const::<8>));
    let by = tensor::<_, f64>("by", (Const::<8>,));
    let with = model.shifted((x.clone().leaky_traced(), Some(by.clone())));
    let done = with.sum().backward();
    assert_eq!(done.get(&by).as_vec(), [3.0; 8]);
    let without = model.shifted((x.clone().leaky_traced(), None));
    let done = without.sum().backward();
    assert_eq!(done.get(&x).as_vec(), (x.clone() * 2.0).as_vec());
    assert_eq!(
        model.shifted((x.clone(), None)).as_vec(),
        x.square().as_vec()
    );
}

#[test]
fn the_memory_is_the_same() {
    let _alone = alone();
    let mut model = Cpu::default().build_module::<Defaults, f32>();
    memory::reset_peak();
    let before = memory::allocated();
    let inputs = (
        ids((2, 7), 9).leaky_traced(),
        None,
        None,
        None,
        None,
        None,
        None,
    );
    model.forward_mut(inputs).sum().backward();
    assert_eq!(memory::peak() - before, Defaults::activation_bytes(2, 7));
}

#[test]
fn mistakes_are_those_of_the_tuple() {
    let _alone = alone();
    let model = defaults();
    // Position 20 is none of the 20.
    let error = model.try_forward((ids((1, 21), 9), None, None, None, None, None, None));
    assert!(
        matches!(error, Err(Error::TooLong { .. } | Error::OutOfRange { .. })),
        "{error:?}"
    );
    let ratio = ratio();
    let error = ratio.try_forward(RatioInputs {
        of: tensor::<_, f64>("of", (3, Const::<4>)),
        to: tensor::<_, f64>("to", (2, Const::<4>)),
    });
    let text = error.unwrap_err().to_string();
    assert!(
        text.contains("`of`") && text.contains("`to`") && text.contains("batch"),
        "{text}"
    );
}

model! {
    /// A layer of dfdx between them.
    struct Foreign<d = 4>;

    fn forward(x: [batch, d], by: [d] = 2.0) -> { y: [batch, d] } {
        { y: by * module::<Linear<d, d>, out = [batch, d], name = inner>(x) }
    }
}

#[test]
fn a_model_with_a_module() {
    let _alone = alone();
    let mut model = Cpu::default().build_module::<Foreign, f64>();
    let x = tensor::<_, f64>("x", (3, Const::<4>));
    let ForeignOutput { y } = model.forward(ForeignInputs {
        x: x.clone(),
        by: None,
    });
    assert_eq!(y.as_vec(), (model.inner.forward(x.clone()) * 2.0).as_vec());
    let by = tensor::<_, f64>("by", (Const::<4>,));
    let traced = ForeignInputs {
        x: x.leaky_traced(),
        by: Some(by.clone()),
    };
    let done = model.forward_mut(traced).y.sum().backward();
    assert!(done.get(&by).array().iter().all(|g| *g != 0.0));
}
