//! Models with every kind of layer, of which each parameter is frozen alone, and trained alone.

use super::*;

/// Steps where the parameters of these patterns are frozen, or trained alone, are those of an optimizer of the same parameters with the
/// gradients of dfdx's tape, which computes all of them. Frozen parameters have no gradient and no state.
fn as_on_the_tape<M: Model>(pattern: &str, alone: bool) {
    let name = format!("{pattern}, alone: {alone}");
    let optimizer = Optimizer::<f64, _>::new(adamw());
    let (mut trainer, mut optimizer) = match alone {
        true => (
            M::trained_by(adamw()).freeze("*").unfreeze(pattern),
            optimizer.freeze("*").unfreeze(pattern),
        ),
        false => (
            M::trained_by(adamw()).freeze(pattern),
            optimizer.freeze(pattern),
        ),
    };
    let all = trainer.parameters();
    if all.iter().all(|of| of.frozen) {
        return;
    }
    let is_frozen = |name: &str| all.iter().any(|of| of.name == name && of.frozen);
    let mut model = M::unset();
    scatter(&mut model);
    let begin = parameters(&model);
    for (number, [loss, _]) in steps(&mut trainer, 0..2).into_iter().enumerate() {
        let gradients = model.alloc_grads();
        let (expected, mut gradients) = model.differentiate(number, gradients);
        assert_eq!(loss, expected, "{name}: the loss");
        optimizer.update(&mut model, &mut gradients).unwrap();
    }
    let after = parameters(trainer.model());
    assert_eq!(after, parameters(&model), "{name}");
    for (before, after) in begin.iter().zip(&after) {
        let same = before.values == after.values;
        assert_eq!(same, is_frozen(&before.name), "{name}: {}", before.name);
    }
    let mut lists = trainer.state().lists.keys();
    assert!(
        lists.all(|list| !is_frozen(list.rsplit_once('.').unwrap().0)),
        "{name}"
    );
    let trained = all.iter().filter(|of| !of.frozen);
    let bytes: usize = trained
        .map(|of| 8 * of.dims.iter().product::<usize>())
        .sum();
    assert!(
        trainer.gradient_bytes() <= bytes,
        "{name}: no other gradient"
    );
}

pub(super) fn each_parameter<M: Model>() {
    as_on_the_tape::<M>("*", true);
    let names = M::trained_by(adamw()).parameters();
    for of in &names {
        as_on_the_tape::<M>(&of.name, false);
        as_on_the_tape::<M>(&of.name, true);
    }
}

#[test]
fn a_language_model_with_a_tied_table() {
    each_parameter::<Gpt<f64, Cpu>>();
}

#[test]
fn gains_sinks_and_matrices_of_heads() {
    each_parameter::<Sums<f64, Cpu>>();
}

#[test]
fn rounds_and_kinds_of_parameters() {
    for pattern in [
        "blocks.*",
        "blocks.0.*",
        "blocks.3.*",
        "*.bias",
        "*norm*",
        "blocks.*.attention.*",
    ] {
        as_on_the_tape::<Gpt<f64, Cpu>>(pattern, false);
        as_on_the_tape::<Gpt<f64, Cpu>>(pattern, true);
    }
}

model! {
    /// Convolutions, norms and a scan.
    struct Steps<d = 6>;

    fn forward(x: [batch, seq, d]) -> [batch, seq, 3] {
        let x = rms_norm(x) + learned_position::<8, d>(x);
        let x = group_norm::<2>(gelu(conv1d::<seq, d, kernel = 3, padding = same>(x)));
        let x = conv1d::<seq, d, kernel = 3, padding = causal, groups = d>(x);
        let y = scan seq {
            state h: [batch, d] = 0.0;
            h = tanh(linear::<d>(x) + linear::<d, bias = false>(h));
            yield h;
        };
        linear::<3>(layer_norm(y))
    }

    fn loss(x: [batch, seq, d], target: [batch, seq, 3]) -> [] {
        mean::<[batch, seq, 3]>(pow(forward(x) - target, 2))
    }
}

model_of_test!(
    Steps,
    |number| (numbers("x", number), numbers("target", number)),
    (Dense<Rank3<2, 5, 6>>, Dense<Rank3<2, 5, 3>>)
);

#[test]
fn convolutions_norms_and_scans() {
    each_parameter::<Steps<f64, Cpu>>();
}

model! {
    /// Maps by group, gated layers, blocks, parameters by name, bodies that learn, and a loss of many classes.
    struct Mixed<d = 4>;

    block mix(x: [batch, seq, n]) -> [batch, seq, n] {
        param gain: [n] = ones;
        x + gain * linear::<n>(x)
    }

    fn forward(x: [batch, seq, d], group: ids[batch, seq]) -> [batch, seq, 9] {
        param scale: [d, d] = normal(1);
        let mut x = einsum::<[batch, seq, e]>(x as [batch, seq, d], scale as [d, e = d]);
        x = mix(x);
        repeat 2, share = true, name = shared {
            x = x + tanh(grouped_linear::<d, groups = 3>(x, group));
        }
        repeat 2 {
            x += attention::<2, mask = causal, qk_norm = rms>(x) {
                param slope: [heads] = normal(1);
                param near: [4] = normal(1);
                fn score(score, h, q_idx, kv_idx) { score + slope[h] * (kv_idx - q_idx) as f32 + near[clamp(q_idx - kv_idx, 0, 3)] }
            };
            x += feed_forward::<6, activation = swiglu>(rms_norm(x));
        }
        let q = linear::<d>(x);
        x = x + attend::<mask = causal>(q, linear::<d>(x), x);
        linear::<9>(x)
    }

    fn loss(x: [batch, seq, d], group: ids[batch, seq]) -> [] {
        cross_entropy(forward(x, group), group)
    }
}

model_of_test!(
    Mixed,
    |number| (numbers("x", number), ids(Default::default(), 3)),
    (Dense<Rank3<3, 6, 4>>, Ids<Rank2<3, 6>>)
);

#[test]
fn experts_bodies_blocks_and_parameters() {
    each_parameter::<Mixed<f64, Cpu>>();
}

model! {
    /// A loss whose forward pass computes gradients: more rows and classes than the width.
    struct Classes<d = 2>;

    fn forward(x: [batch, d]) -> [batch, 4096] {
        linear::<4096>(linear::<d>(x))
    }

    fn loss(x: [batch, d], target: ids[batch]) -> [] {
        cross_entropy(forward(x), target)
    }
}

model_of_test!(
    Classes,
    |number| (numbers("x", number), ids(Default::default(), 4096)),
    (Dense<Rank2<300, 2>>, Ids<Rank1<300>>)
);

#[test]
fn losses_that_compute_logits() {
    each_parameter::<Classes<f64, Cpu>>();
}
