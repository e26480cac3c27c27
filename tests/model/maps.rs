//! `attention_maps`: the weights of a network's attentions, against single layers.

use super::encoder_decoder;
use super::*;
use attn::{Backend, Coverage, Element, attention, maps::AttentionMap, model};
use support::compare::assert_close;
use support::tensors::flat;

const VOCAB: usize = 11;

model! {
    struct Nested<vocab = VOCAB, d_model = 8, heads = 2>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d_model] {
        let mut x = embedding::<vocab, d_model>(tokens);
        x = x + attention::<4, mask = sliding_window(2), name = first>(x);
        repeat 2, name = outer {
            x = x + attention::<heads, mask = causal, dropout = 0.5>(layer_norm(x));
            repeat 3, share = true, name = inner {
                x = x + attention::<heads, name = again>(x);
            }
        }
        x
    }
}

/// The weights are returned as `f32`, and are at most 1.
const ROUNDED: f64 = f32::EPSILON as f64;

fn numbers(map: &AttentionMap) -> Vec<f64> {
    map.weights().iter().copied().map(f64::from).collect()
}

/// Checks every map of [`Nested`] against layers that are called one after the other.
fn check_nested<E: Element>(batch: usize, seq: usize, tolerance: f64)
where
    Cpu: Backend<E>,
{
    let dev = Cpu::default();
    let mut model = dev.build_module::<Nested, E>();
    scatter(&mut model);
    let found = model.attention_maps(ids((batch, seq), VOCAB));

    let mut expected = Vec::new();
    let mut x = model.embedding.forward(ids((batch, seq), VOCAB));
    let (y, weights) = model.first.forward_with_weights(x.clone());
    expected.push(("first".to_owned(), 4, flat(&weights)));
    x = x + y;
    for (round, outer) in model.outer.modules.iter().enumerate() {
        let normal = outer.layer_norm.forward(x.clone());
        let (y, weights) = outer.attention.forward_with_weights(normal);
        expected.push((format!("outer.{round}.attention"), 2, flat(&weights)));
        x = x + y;
        for again in 0..3 {
            let (y, weights) = outer.inner.again.forward_with_weights(x.clone());
            expected.push((
                format!("outer.{round}.inner.{again}.again"),
                2,
                flat(&weights),
            ));
            x = x + y;
        }
    }

    assert_eq!(found.len(), expected.len());
    for (found, (name, heads, weights)) in found.iter().zip(expected) {
        assert_eq!(found.name(), name);
        assert_eq!(found.shape(), [batch, heads, seq, seq]);
        assert_close(name, &numbers(found), &weights, tolerance);
    }
}

#[test]
fn rounds_have_the_weights_of_their_layers() {
    for (batch, seq) in [(2, 5), (1, 1), (3, 0), (0, 4)] {
        check_nested::<f64>(batch, seq, ROUNDED);
        // Sums of eight terms of order 1 in a chain of nine layers, and ten times that.
        check_nested::<f32>(batch, seq, 100.0 * ROUNDED);
    }
}

#[test]
fn maps_know_the_blocks_of_their_masks() {
    let model = Cpu::default().build_module::<Nested, f32>();
    let found = model.attention_maps(ids((1, 60), VOCAB));
    let [first, causal, all, ..] = &found[..] else {
        panic!("{} maps", found.len());
    };
    assert_eq!(
        first.mask_blocks(),
        Some(&<NestedFirst>::mask_blocks(60, 60))
    );
    let blocks = causal.mask_blocks().unwrap();
    assert_eq!(blocks.at(0, 0, 3), Coverage::Empty);
    assert_eq!(blocks.at(0, 1, 0), Coverage::Full);
    assert_eq!(all.mask_blocks().unwrap().count(Coverage::Full), 2 * 4);
}

#[test]
fn encoder_decoder_and_cross_attention_maps_have_their_own_lengths() {
    let model = encoder_decoder::declared();
    let source = ids((3, 7), encoder_decoder::VOCAB);
    let target = ids((3, 5), encoder_decoder::VOCAB);
    let lengths = [4, 7, 0];
    let found = model.attention_maps((source, target, lens(lengths)));
    let names: Vec<_> = found.iter().map(|map| (map.name(), map.shape())).collect();
    assert_eq!(
        names,
        [
            ("encoder.0.attention", [3, 2, 7, 7]),
            ("encoder.1.attention", [3, 2, 7, 7]),
            ("decoder.0.attention", [3, 2, 5, 5]),
            ("decoder.0.cross", [3, 2, 5, 7]),
            ("decoder.1.attention", [3, 2, 5, 5]),
            ("decoder.1.cross", [3, 2, 5, 7]),
        ]
    );
    for map in &found {
        let padded = !map.name().starts_with("decoder") || map.name().ends_with("cross");
        for (batch, length) in lengths.into_iter().enumerate() {
            for (head, query) in (0..2).flat_map(|h| (0..map.queries()).map(move |q| (h, q))) {
                let row = map.row(batch, head, query);
                let seen = if padded { length } else { query + 1 };
                assert!(row[..seen].iter().all(|weight| *weight > 0.0), "{row:?}");
                assert!(row[seen..].iter().all(|weight| *weight == 0.0), "{row:?}");
            }
        }
    }
    let tokens = model.embedding.forward(ids((3, 7), encoder_decoder::VOCAB));
    let places = attn::ops::sinusoidal_position((3, 7), &Cpu::default());
    let x = tokens * encoder_decoder::SCALE + places;
    let (_, weights) = model.encoder.modules[0]
        .attention
        .forward_with_weights((x, lens(lengths)));
    assert_close("first", &numbers(&found[0]), &flat(&weights), ROUNDED);
}

#[test]
fn unbatched_maps_are_those_of_a_batch_of_one() {
    model! {
        struct Alone<d_model = 8>;

        fn forward(x: [seq, d_model]) -> [seq, d_model] {
            attention::<2, mask = causal>(x)
        }
    }
    let mut model = Cpu::default().build_module::<Alone, f64>();
    scatter(&mut model);
    let x = || tensor::<_, f64>("x", (3, Const::<8>));
    let found = model.attention_maps(x());
    let (_, weights) = model.attention.forward_with_weights(x());
    assert_eq!(found[0].shape(), [1, 2, 3, 3]);
    assert_close("alone", &numbers(&found[0]), &flat(&weights), ROUNDED);
}

#[test]
fn attentions_inside_a_module_have_no_maps() {
    attention! {
        struct Inner<heads = 2, d_model = 8>;
    }
    model! {
        struct Mixed<d_model = 8>;

        fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
            let y = module::<Inner, out = [batch, seq, d_model]>(x);
            attention::<2, name = outer>(y)
        }
    }
    let mut model = Cpu::default().build_module::<Mixed, f64>();
    scatter(&mut model);
    let x = || tensor::<_, f64>("x", (2, 3, Const::<8>));
    let found = model.attention_maps(x());
    let (_, weights) = model.outer.forward_with_weights(model.module.forward(x()));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].name(), "outer");
    assert_close("outer", &numbers(&found[0]), &flat(&weights), ROUNDED);
}

#[test]
fn a_network_without_attention_has_no_maps() {
    model! {
        struct Plain<d_model = 8>;

        fn forward(x: [batch, d_model]) -> [batch, 3] {
            linear::<3>(x)
        }
    }
    let model = Cpu::default().build_module::<Plain, f32>();
    assert_eq!(model.attention_maps(tensor("x", (2, Const::<8>))), []);
}

#[test]
fn mistakes_are_those_of_forward() {
    let model = encoder_decoder::declared();
    let input = || {
        let vocab = encoder_decoder::VOCAB;
        (ids((3, 7), vocab), ids((2, 5), vocab), lens([1, 2, 3]))
    };
    let expected = model.try_forward(input()).unwrap_err().to_string();
    let found = model.try_attention_maps(input()).unwrap_err().to_string();
    assert_eq!(found, expected);
    assert!(found.contains("batch"), "{found}");
}
