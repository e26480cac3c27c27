//! Every layer can be given a name, which its parameters have wherever they are listed, saved or chosen.

use attn::{checkpoint::Archive, checkpoint::save, dfdx::prelude::*, model, train::SgdConfig};
use std::collections::BTreeSet;
use support::tensors::parameters;

model! {
    struct Named<vocab = 5, d = 4>;

    block half(x: [.., d]) -> [.., d] {
        0.5 * linear::<d, name = inside>(x)
    }

    fn forward(ids: ids[batch, seq]) -> [batch, seq, vocab] {
        param scale: [d] = ones;
        let mut x = embedding::<vocab, d, name = table>(ids) + learned_position::<8, d, name = places>(ids);
        repeat 2, name = rounds {
            x += attention::<2, mask = causal, name = look>(layer_norm::<name = before>(x));
            x += feed_forward::<6, name = think>(rms_norm::<name = between>(x));
            repeat 2, name = deeper {
                x += half::<name = again>(x);
            }
        }
        let q = linear::<d, name = to_q>(x);
        let picked = attend::<score = additive(hidden = d), mask = causal, name = pick>(q, x, x);
        let mixed = grouped_linear::<d, groups = vocab, name = expert>(picked, ids);
        linear::<vocab, name = head>(mixed * scale)
    }

    fn loss(ids: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(ids), targets)
    }
}

#[test]
fn every_layer_has_the_name_that_it_is_given() {
    let model = Cpu::seed_from_u64(1).build_module::<Named, f64>();
    let listed = parameters(&model).into_iter().map(|named| named.name);
    let listed: Vec<String> = listed.collect();
    let mut heads = BTreeSet::new();
    for name in &listed {
        let layer = |name: &str| -> String {
            let parts = name
                .split('.')
                .filter(|part| part.parse::<usize>().is_err());
            parts.collect::<Vec<_>>().join(".")
        };
        heads.insert(layer(name));
    }
    let given = [
        "scale",
        "table",
        "places",
        "rounds.look",
        "rounds.before",
        "rounds.think",
        "rounds.between",
        "rounds.deeper.again.inside",
        "to_q",
        "pick",
        "expert",
        "head",
    ];
    for name in given {
        assert!(
            heads
                .iter()
                .any(|found| found.starts_with(&format!("{name}."))),
            "{name}: {heads:?}"
        );
    }
    let is_given = |found: &String| {
        given
            .iter()
            .any(|name| found.starts_with(&format!("{name}.")))
    };
    assert!(heads.iter().all(is_given), "{heads:?}");

    // Files and trainers have the same.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    save(&model, &path).unwrap();
    let saved = Archive::open(&path).unwrap();
    let saved: BTreeSet<String> = saved.tensors().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(saved, listed.iter().cloned().collect());
    let trainer = model.trainer(SgdConfig::default());
    let of_trainer: Vec<String> = trainer.parameters().into_iter().map(|of| of.name).collect();
    assert_eq!(of_trainer, listed);
}

model! {
    struct NamedToo<d = 4, channels = 2, height = 3, width = 3>;

    fn forward(x: [batch, seq, d], image: [batch, channels, height, width]) -> ([batch, seq, d], [batch, channels, height, width]) {
        let x = group_norm::<2, name = groups>(conv1d::<seq, d, 3, padding = same, name = along>(x));
        let x = conv_transpose1d::<seq, d, kernel = 1, name = back>(x);
        let y = scan seq {
            state h: [batch, d] = 0.0;
            h = tanh(linear::<d, name = of_input>(x) + linear::<d, bias = false, name = of_state>(h));
            yield h;
        };
        let image = conv2d::<[height, width], channels, kernel = 3, padding = same, channels = channels, name = pixels>(image);
        (y, image)
    }

    fn loss(x: [batch, seq, d], image: [batch, channels, height, width]) -> [] {
        let (y, image) = forward(x, image);
        mean::<[batch, seq, d]>(y) + mean::<[batch, channels, height, width]>(image)
    }
}

#[test]
fn convolutions_norms_by_group_and_steps_have_the_names_that_they_are_given() {
    let model = Cpu::seed_from_u64(1).build_module::<NamedToo, f64>();
    let listed = parameters(&model).into_iter().map(|named| named.name);
    let listed: BTreeSet<String> = listed.collect();
    let of = |name: &str, parts: &[&str]| {
        parts
            .iter()
            .map(|part| format!("{name}.{part}"))
            .collect::<Vec<_>>()
    };
    let both = ["weight", "bias"];
    let expected: Vec<_> = ["groups", "along", "back", "of_input", "pixels"]
        .iter()
        .flat_map(|name| of(name, &both))
        .collect();
    let expected: BTreeSet<_> = expected
        .into_iter()
        .chain(of("of_state", &["weight"]))
        .collect();
    assert_eq!(listed, expected);
    let trainer = model.trainer(SgdConfig::default());
    let of_trainer = trainer.parameters().into_iter().map(|of| of.name);
    assert_eq!(of_trainer.collect::<BTreeSet<_>>(), expected);
}

#[test]
fn a_group_is_chosen_by_given_names() {
    let dev = Cpu::seed_from_u64(1);
    let model = dev.build_module::<Named, f64>();
    let before = parameters(&model);
    let mut trainer = model
        .trainer(SgdConfig::default())
        .group("rounds.*", |config| config.lr = 0.0);
    let ids: Tensor<Rank2<2, 3>, usize, _> = dev.tensor([[1, 2, 3], [4, 0, 1]]);
    trainer.step((ids.clone(), ids)).unwrap();
    for (before, after) in before.iter().zip(parameters(trainer.model())) {
        let is_same = before.values == after.values;
        assert_eq!(
            is_same,
            before.name.starts_with("rounds."),
            "{}",
            after.name
        );
    }
}
