//! Results by name.

use super::*;
use attn::{memory, model};

model! {
    /// A tag for each token, and a class for the text.
    struct Named<vocab = 11, d = 8, tags = 5, classes = 3>;

    fn forward(tokens: ids[batch, seq]) -> { tags: [batch, seq, tags], class: [batch, classes] } {
        let { hidden: x, pooled } = read::<12>(embedding::<vocab, d>(tokens));
        { class: linear::<classes>(pooled), tags: linear::<tags>(x) }
    }

    fn classify(tokens: ids[batch, n]) -> { probabilities: [batch, classes] } {
        let { class, .. } = forward(tokens);
        { probabilities: softmax(class) }
    }

    block read(x: [batch, seq, d], wide) -> { pooled: [batch, d], hidden: [batch, seq, d] } {
        let hidden = layer_norm(x + linear::<d>(gelu(linear::<wide>(x))));
        { hidden, pooled: mean::<seq>(hidden) }
    }
}

model! {
    /// The same by order.
    struct Ordered<vocab = 11, d = 8, tags = 5, classes = 3>;

    fn forward(tokens: ids[batch, seq]) -> ([batch, seq, tags], [batch, classes]) {
        let (pooled, x) = read::<12>(embedding::<vocab, d>(tokens));
        let class = linear::<classes>(pooled);
        (linear::<tags>(x), class)
    }

    block read(x: [batch, seq, d], wide) -> ([batch, d], [batch, seq, d]) {
        let hidden = layer_norm(x + linear::<d>(gelu(linear::<wide>(x))));
        (mean::<seq>(hidden), hidden)
    }
}

fn models() -> (Named<f64, Cpu>, Ordered<f64, Cpu>) {
    let dev = Cpu::default();
    let mut named = dev.build_module::<Named, f64>();
    let mut ordered = dev.build_module::<Ordered, f64>();
    scatter(&mut named);
    scatter(&mut ordered);
    (named, ordered)
}

/// The type of the results can be written, whatever the tape is.
type Results<T> = NamedOutput<
    Tensor<(usize, usize, Const<5>), f64, Cpu, T>,
    Tensor<(usize, Const<3>), f64, Cpu, T>,
>;

fn loss(results: Results<OwnedTape<f64, Cpu>>) -> Tensor<Rank0, f64, Cpu, OwnedTape<f64, Cpu>> {
    let NamedOutput { tags, class } = results;
    tags.square().sum() + class.sum() * 0.3
}

#[test]
fn results_have_their_names() {
    let _alone = alone();
    let (named, ordered) = models();
    for (batch, seq) in [(1, 1), (2, 7)] {
        let tokens = ids((batch, seq), 11);
        let results = named.forward(tokens.clone());
        let (tags, class) = ordered.forward(tokens.clone());
        assert_eq!(results.tags.as_vec(), tags.as_vec());
        assert_eq!(results.class.as_vec(), class.as_vec());
        let done = loss(named.forward(tokens.clone().leaky_traced())).backward();
        let (tags, class) = ordered.forward(tokens.leaky_traced());
        let expected = loss(NamedOutput { tags, class }).backward();
        assert_eq!(gradients(&named, &done), gradients(&ordered, &expected));
    }
}

#[test]
fn both_forms_have_them() {
    let _alone = alone();
    let (named, _) = models();
    let tokens = ids((2, 7), 11);
    let fused = named.forward(tokens.clone().leaky_traced());
    let composed = named.composed().forward(tokens.clone().leaky_traced());
    // Sums of up to some hundred terms, rounded in another order.
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 200.0 * f64::EPSILON * b.abs().max(1.0);
    let values = |y: &Results<OwnedTape<f64, Cpu>>| {
        let tags = tensors::flat(&y.tags.with_empty_tape());
        let class = tensors::flat(&y.class.with_empty_tape());
        [tags, class].concat()
    };
    assert!(values(&fused).iter().zip(&values(&composed)).all(near));
    let [fused, composed] = [fused, composed].map(|y| gradients(&named, &loss(y).backward()));
    let mut pairs = fused.iter().flatten().zip(composed.iter().flatten());
    assert!(pairs.all(near));
}

#[test]
fn a_single_result_may_have_a_name() {
    let _alone = alone();
    let (mut named, ordered) = models();
    let tokens = ids((2, 7), 11);
    let NamedClassifyOutput { probabilities } = named.classify(tokens.clone());
    let (_, class) = ordered.forward(tokens.clone());
    let expected = class.softmax::<Axis<1>>().as_vec();
    let found = probabilities.as_vec();
    // The softmax of dfdx sums in another order.
    let mut pairs = found.iter().zip(&expected);
    assert!(pairs.all(|(a, b)| (a - b).abs() < 4.0 * f64::EPSILON));
    let traced = named.classify_mut(tokens.leaky_traced()).probabilities;
    // Probabilities have the sum 1.
    let done = gradients(&named, &traced.sum().backward());
    assert!(done.iter().flatten().all(|g| g.abs() < 1e-14));
}

#[test]
fn names_cost_nothing() {
    let _alone = alone();
    assert_eq!(
        Named::activation_bytes(2, 7),
        Ordered::activation_bytes(2, 7)
    );
    assert_eq!(Named::flops(2, 7), Ordered::flops(2, 7));
    let mut named = Cpu::default().build_module::<Named, f32>();
    memory::reset_peak();
    let before = memory::allocated();
    let results = named.forward_mut(ids((2, 7), 11).leaky_traced());
    let loss = results.tags.square().sum() + results.class.square().sum();
    loss.backward();
    assert_eq!(memory::peak() - before, Named::activation_bytes(2, 7));
}

model! {
    /// Names that are words of Rust, or that differ in their case alone.
    struct Words<d = 4>;

    fn forward(x: [batch, d]) -> { r#type: [batch, d], y: [batch, d], Y: [d] } {
        { y: 2 * x, Y: mean::<batch>(x), r#type: relu(x) }
    }
}

#[test]
fn any_name_is_one() {
    let _alone = alone();
    let dev = Cpu::default();
    let words = dev.build_module::<Words, f64>();
    let x = tensor::<_, f64>("x", (3, Const::<4>));
    let results = words.forward(x.clone());
    assert_eq!(results.r#type.as_vec(), x.clone().relu().as_vec());
    assert_eq!(results.y.as_vec(), (x.clone() * 2.0).as_vec());
    assert_eq!(results.Y.shape().concrete(), [4]);
}

model! {
    /// A model that goes on token by token, and one of two last lines.
    struct Next<vocab = 9, d = 4, wide = true>;

    fn forward(tokens: ids[batch, seq]) -> { logits: [batch, seq, vocab] } {
        let x = embedding::<vocab, d>(tokens);
        let x = x + attention::<2, mask = causal>(x);
        if wide { { logits: linear::<vocab>(x) } } else { { logits: linear::<tied = embedding>(x) } }
    }
}

#[test]
fn a_session_has_the_only_result() {
    let _alone = alone();
    let mut model = Cpu::default().build_module::<Next, f64>();
    scatter(&mut model);
    let tokens: Tensor<Rank2<1, 3>, usize, _> = Cpu::default().tensor([[3, 1, 4]]);
    let logits = model.forward(tokens).logits.as_vec();
    let mut session = model.session(3).unwrap();
    let found = session.prefill(&[3, 1, 4]).unwrap();
    let mut pairs = found.iter().zip(&logits[18..]);
    // The same sums, rounded in another order.
    assert!(pairs.all(|(a, b)| (a - b).abs() < 1e-14));
}
