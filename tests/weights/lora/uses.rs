//! Adapters where a network does more than one pass: dropout, sessions, layers that run several times.

use super::*;
use attn::{checkpoint::layout::save_mapped_in_shards, generate::Sampling};
use support::cases::{scatter, tensor};
use support::compare::{assert_close, backpropagate};
use support::tensors::{fill, flat};

model! {
    /// `y = W x + b + B A dropout(x)`.
    struct Dropping<lora(rank = 3, dropout = 0.25, on = ["linear"])>;
    fn forward(x: [batch, 4]) -> [batch, 4] { linear::<4>(x) }
}

/// `A` keeps three numbers, and `B` puts them back: the rest of the layer is 0.
#[test]
fn dropout_is_in_front_of_the_adapter_alone() {
    let mut model = Cpu::default().build_module::<Dropping, f32>();
    let identity = |model: &mut Dropping, base: f64| {
        fill(model, |name, values| {
            let (width, value) = match name {
                "linear.lora_A.weight" => (4, 1.0),
                "linear.lora_B.weight" => (3, 1.0),
                "linear.weight" => (4, base),
                _ => (1, 0.0),
            };
            let number = |place: usize| f64::from(place % width == place / width) * value;
            (0..values.len()).map(number).collect()
        });
    };
    let x: Tensor<(usize, Const<4>), f32, Cpu> = Cpu::default().ones_like(&(400, Const));
    identity(&mut model, 0.0);
    let dropped = model.forward_mut(x.leaky_trace()).as_vec();
    let kept = 1.0 / 0.75;
    for row in dropped.chunks(4) {
        assert!(
            row[..3].iter().all(|y| *y == 0.0 || *y == kept as f32),
            "{row:?}"
        );
        assert_eq!(row[3], 0.0);
    }
    let share = dropped.iter().filter(|y| **y > 0.0).count() as f64 / 1200.0;
    // Four standard deviations of 1200 draws.
    assert!((share - 0.75).abs() < 0.05, "{share}");
    assert!(
        model
            .forward(x.clone())
            .as_vec()
            .chunks(4)
            .all(|row| row == [1.0, 1.0, 1.0, 0.0])
    );
    // The layer itself reads all of `x`.
    identity(&mut model, 10.0);
    let whole = model.forward_mut(x.leaky_trace()).as_vec();
    assert!(whole.iter().all(|y| *y >= 10.0));
}

/// Both forms draw the same, so the gradients are those through the same dropouts.
#[test]
fn gradients_go_through_the_same_dropout() {
    let run = |composed: bool| {
        let mut model = Cpu::seed_from_u64(5).build_module::<Dropping, f64>();
        scatter(&mut model);
        let x: Tensor<(usize, Const<4>), f64, Cpu> = tensor("x", (7, Const));
        let y = match composed {
            true => model.composed().forward_mut(x.leaky_trace()),
            false => model.forward_mut(x.leaky_trace()),
        };
        backpropagate(y).input("x", &x).parameters(&model)
    };
    let (fused, composed) = (run(false), run(true));
    for (name, values) in fused.all() {
        assert_close(name, values, composed.get(name), 1e-12);
    }
}

macro_rules! decoder {
    ($Name:ident $(, $lora:tt)?) => {
        model! {
            struct $Name<vocab = 11, d = 8 $(, lora $lora)?>;
            fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
                let mut x = embedding::<vocab, d>(tokens);
                repeat 2 {
                    x += attention::<4, kv_heads = 2, mask = causal, position = rope>(layer_norm(x));
                    x += feed_forward::<12, activation = swiglu>(layer_norm(x));
                }
                linear::<vocab, name = head>(layer_norm(x))
            }
        }
    };
}

decoder!(Decoder, (rank = 2, alpha = 4, on = ["*"]));
decoder!(Merged);

#[test]
fn sessions_go_on_with_adapters_as_merged_weights_do() {
    let dev = Cpu::default();
    let mut model = dev.build_module::<Decoder, f32>();
    scatter(&mut model);
    let mut merged = dev.build_module::<Merged, f32>();
    lora::merge(&model, &mut merged).unwrap();
    let tokens = [3, 1, 4, 1, 5, 9, 2, 6];
    let whole = model
        .forward(dev.tensor_from_vec(tokens.to_vec(), (1, 8)))
        .as_vec();
    let mut session = model.session(40).unwrap();
    let mut of_merged = merged.session(40).unwrap();
    for (token, expected) in tokens.iter().zip(whole.chunks(11)) {
        let expected: Vec<f64> = expected.iter().map(|y| f64::from(*y)).collect();
        for logits in [
            session.step(*token).unwrap(),
            of_merged.step(*token).unwrap(),
        ] {
            assert_close("logits", logits, &expected, f64::from(TOLERANCE));
        }
    }
    let greedy = || Sampling {
        temperature: 0.0,
        ..Sampling::default()
    };
    let mut session = model.session(40).unwrap();
    let mut of_merged = merged.session(40).unwrap();
    let found = session.generate(&tokens, greedy(), &[]).unwrap();
    let expected = of_merged.generate(&tokens, greedy(), &[]).unwrap();
    let [found, expected] =
        [found, expected].map(|tokens| tokens.take(32).collect::<Result<Vec<_>, _>>());
    let found = found.unwrap();
    assert_eq!(found.len(), 32);
    assert_eq!(found, expected.unwrap());
}

macro_rules! shared {
    ($Name:ident $(, $lora:tt)?) => {
        model! {
            /// Layers that run in two loops, in two calls of a block, and in all rounds of a loop.
            struct $Name<d = 6 $(, lora $lora)?>;
            block part(x: [.., d]) -> [.., d] { x + linear::<d>(gelu(linear::<9, name = up>(x))) }
            fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                let mut x = part(x);
                repeat 2 { x = part(x); x += attention::<2>(x); }
                repeat 2, tied = blocks { x = part(tanh(x)); x += attention::<2>(x); }
                repeat 3, share = true, name = rounds { x += tanh(linear::<d>(x)); }
                part::<tied = part>(x)
            }
        }
    };
}

shared!(
    Shared,
    (
        rank = 2,
        alpha = 3,
        on = ["up", "q_proj", "o_proj", "rounds.linear"]
    )
);
shared!(Whole);

#[test]
fn layers_that_run_several_times_have_one_adapter() {
    let dev = Cpu::default();
    let mut model = dev.build_module::<Shared, f64>();
    scatter(&mut model);
    let adapters = 3 * 2 * (6 + 9) + 2 * 2 * 2 * (6 + 6) + 2 * (6 + 6);
    assert_eq!(Shared::PARAMS - Whole::PARAMS, adapters);
    let x: Tensor<(usize, usize, Const<6>), f64, Cpu> = tensor("x", (2, 5, Const));
    let [fused, composed] = [false, true].map(|composed| {
        let y = match composed {
            true => model.composed().forward(x.leaky_trace()),
            false => model.forward(x.leaky_trace()),
        };
        backpropagate(y).input("x", &x).parameters(&model)
    });
    for (name, values) in fused.all() {
        assert_close(name, values, composed.get(name), 1e-11);
    }
    let mut merged = dev.build_module::<Whole, f64>();
    lora::merge(&model, &mut merged).unwrap();
    assert_close(
        "merged",
        fused.get("output"),
        &flat(&merged.forward(x)),
        1e-11,
    );
}

/// One error lists all that is wrong with the files of the network, and no weight has changed.
#[test]
fn weights_without_some_of_their_files_or_of_another_network_are_refused() {
    let dev = Cpu::default();
    let whole = tempfile::tempdir().unwrap();
    let mut base = dev.build_module::<Merged, f32>();
    scatter(&mut base);
    save_mapped_in_shards(&base, &WeightMap::identity(), whole.path(), 1000).unwrap();
    let mut model = dev.build_module::<Decoder, f32>();
    let before = saved(&model);
    let map = WeightMap::identity().without_adapters();
    let mut refused = |path: &Path| {
        let archive = Archive::open(path);
        let loaded = archive
            .and_then(|archive| archive.load_mapped(&mut model, &map, LoadOptions::default()));
        let message = loaded.unwrap_err().problem.to_string();
        assert_eq!(saved(&model), before);
        message
    };
    let message = refused(&folder().join("base.safetensors"));
    let listed = |kind: &str| message.matches(kind).count();
    // The head has another size, and one network has biases, and a layer, that the other one does not have.
    assert_eq!(listed("\n  extra: "), 2, "{message}");
    assert_eq!(listed("\n  missing: "), 3, "{message}");
    assert_eq!(listed("\n  different: "), 2 + 2 * 4, "{message}");

    let files = fs::read_dir(whole.path()).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "safetensors"));
    files.sort();
    assert!(files.len() > 3);
    let [first, .., last] = files.as_slice() else {
        panic!("{files:?}");
    };
    for path in [first, last] {
        fs::remove_file(path).unwrap();
    }
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let expected = format!(
        "2 of its {} files are not there: {}, {}",
        files.len(),
        name(first),
        name(last)
    );
    assert_eq!(refused(whole.path()), expected);
}
