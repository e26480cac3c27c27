//! Models with buffers: both forms, gradients, memory, sessions, blocks.

use super::*;

model! {
    struct Mixed<d = 6, heads = 3>;

    /// Each call has a table of its own.
    block tilted(x: [.., n], slope = 0.5) -> [.., n] {
        buffer ramp: [n] = |i| slope * (i + 1) / n;
        linear::<n>(x) * ramp + ramp
    }

    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        buffer window: [d] = |i| 1 - pow((i - (d - 1) / 2) / d, 2);
        let mut x = tilted::<slope = 2>(x * window) + tilted(x);
        repeat 2 {
            buffer mixing: [d, heads] = |row, column| if row % heads == column { 0.5 } else { 0.25 };
            buffer back: [heads, d] = 0.125;
            let y = gelu(einsum::<[batch, seq, heads]>(layer_norm(x), mixing));
            x += linear::<d>(einsum::<[batch, seq, d]>(y, back)) * mean::<d>(window);
        }
        exp(-window) / window * x
    }
}

fn outcomes<E: Element>(x: &Tensor<(usize, usize, Const<6>), E, Cpu>) -> [Outcome; 2]
where
    Cpu: Backend<E>,
{
    let mut model = Cpu::default().build_module::<Mixed, E>();
    scatter(&mut model);
    let fused = backpropagate(model.forward(x.clone().leaky_traced()));
    let composed = backpropagate(model.composed().forward(x.clone().leaky_traced()));
    [fused, composed].map(|ran| ran.input("x", x).parameters(&model))
}

#[test]
fn both_forms_agree() {
    let _alone = alone();
    for (batch, seq) in [(1, 1), (2, 7)] {
        let [fused, composed] = outcomes(&tensor::<_, f32>("x", (batch, seq, Const::<6>)));
        // Sums of up to 60 terms on about six levels, rounded in another order.
        assert_same("f32", &fused, &composed, 100.0 * f64::from(f32::EPSILON));
        let [fused, composed] = outcomes(&tensor::<_, f64>("x", (batch, seq, Const::<6>)));
        assert_same("f64", &fused, &composed, 100.0 * f64::EPSILON);
    }
}

#[test]
fn gradients_are_those_of_differences() {
    let _alone = alone();
    let x = tensor::<_, f64>("x", (2, 3, Const::<6>));
    let [outcome, _] = outcomes(&x);
    let mut model = Cpu::default().build_module::<Mixed, f64>();
    scatter(&mut model);
    let loss = |model: &Mixed<f64, Cpu>, x: Tensor<_, f64, Cpu>| {
        backpropagate(model.forward(x.leaky_traced()))
            .parameters(&())
            .loss()
    };
    support::gradients::assert_gradients_of_parameters(&|| model.clone(), &outcome, &|moved| {
        loss(&moved, x.clone())
    });
    support::gradients::assert_gradient_of_input("x", &x, &outcome, &|moved| loss(&model, moved));
}

#[test]
fn the_table_of_a_call_is_that_of_its_keys() {
    let _alone = alone();
    let mut model = Cpu::default().build_module::<Mixed, f64>();
    scatter(&mut model);
    let values = model.values(tensor::<_, f64>("x", (1, 1, Const::<6>)));
    let ramps: Vec<_> = values
        .iter()
        .filter(|value| value.name().ends_with("ramp"))
        .map(|value| value.numbers().to_vec())
        .collect();
    let ramp = |slope: f64| -> Vec<f64> { (1..7).map(|i| slope * f64::from(i) / 6.0).collect() };
    assert_eq!(ramps, [ramp(2.0), ramp(0.5)]);
}

#[test]
fn a_buffer_is_no_parameter() {
    let _alone = alone();
    let model = Cpu::default().build_module::<Mixed, f32>();
    let linear = 6 * 6 + 6;
    assert_eq!(Mixed::PARAMS, 2 * linear + 2 * (linear + 2 * 6));
    assert_eq!(model.num_trainable_params(), Mixed::PARAMS);
    let names = tensors::parameters(&model).into_iter();
    let names: Vec<_> = names.map(|parameter| parameter.name).collect();
    assert_eq!(names.len(), 4 + 2 * 4, "{names:?}");
}

#[test]
fn memory_is_what_is_promised() {
    let _alone = alone();
    let mut model = Cpu::default().build_module::<Mixed, f32>();
    for (batch, seq) in [(1, 1), (3, 20)] {
        let x = tensor::<_, f32>("x", (batch, seq, Const::<6>));
        let before = memory::allocated();
        memory::reset_peak();
        let loss = model.forward_mut(x.leaky_traced()).square().mean();
        loss.backward();
        assert_eq!(memory::peak() - before, Mixed::activation_bytes(batch, seq));
    }
}

model! {
    struct Tokens<vocab = 11, d = 8, heads = 2>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        buffer window: [d] = |i| sin((i + 0.5) / d);
        let mut x = window * embedding::<vocab, d>(tokens);
        repeat 2 {
            buffer gain: [d] = |i| 1 / (i + 1);
            x += gain * attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(x)
    }
}

#[test]
fn a_session_goes_on_with_buffers() {
    let _alone = alone();
    let mut model = Cpu::default().build_module::<Tokens, f64>();
    scatter(&mut model);
    let all = flat(&model.forward(ids((1, 8), 11)));
    let tokens = flat_ids(&ids((1, 8), 11));
    let mut session = model.session(8).unwrap();
    for (token, expected) in tokens.into_iter().zip(all.chunks(11)) {
        let logits = session.prefill(&[token]).unwrap();
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-12;
        assert!(logits.iter().zip(expected).all(near));
    }
}

fn flat_ids(ids: &Tensor<(usize, usize), usize, Cpu>) -> Vec<usize> {
    ids.as_vec()
}
