//! Sessions whose weights are rounded: they compute the model with the weights that plain loops round.

use attn::{
    Backend, Element,
    generate::{
        SessionError,
        WeightFormat::{self, Bf16, Int8},
    },
    train::AdamWConfig,
};
use support::tensors;

use super::*;

const VOCAB: usize = 11;

fn text(len: usize) -> Vec<usize> {
    (0..len).map(|i| (i * i + 3 * i + 1) % VOCAB).collect()
}

/// A row in the format, by its definition.
fn round(row: &[f64], format: WeightFormat) -> Vec<f64> {
    if format == Bf16 {
        // 8 bits of the significand.
        let to_bits = |w: &f64| {
            let unit = (w.abs().log2().floor() - 7.0).exp2();
            (w / unit).round_ties_even() * unit
        };
        return row
            .iter()
            .map(|w| if *w == 0.0 { 0.0 } else { to_bits(w) })
            .collect();
    }
    let largest = row.iter().fold(0.0, |a: f64, w| a.max(w.abs())) as f32;
    // 17 bits, rounded up.
    let scale = f64::from(largest / 127.0);
    let unit = (scale.log2().floor() - 16.0).exp2();
    let scale = (scale / unit).ceil() * unit;
    row.iter()
        .map(|w| (w / scale).round_ties_even() * scale)
        .collect()
}

/// Rounds the rows of the tensors with two axes or more, but for those that `is_kept` names.
fn round_matrices<M: TensorCollection<E, Cpu>, E: Dtype>(
    model: &mut M,
    format: WeightFormat,
    is_kept: impl Fn(&str) -> bool,
) where
    Cpu: Device<E>,
{
    let all = tensors::parameters(model);
    tensors::fill(model, |name, values| {
        let tensor = all.iter().find(|tensor| tensor.name == name).unwrap();
        match tensor.dims[..] {
            [_, .., width] if !is_kept(name) => values
                .chunks(width)
                .flat_map(|row| round(row, format))
                .collect(),
            _ => values,
        }
    });
}

/// `types name { the model } kept`: the tensors whose names contain `kept` stay what they are.
macro_rules! rounds {
    ($([$($E:ty),*] $name:ident { $($model:tt)* } $kept:expr;)*) => {$(
        #[test]
        fn $name() {
            model! { $($model)* }

            fn check<E: Element>(format: WeightFormat)
            where
                Cpu: Backend<E>,
            {
                const LEN: usize = 40;
                let dev = Cpu::default();
                let mut model = dev.build_module::<M, E>();
                scatter(&mut model);
                let begin = || model.session(LEN).unwrap();
                let mut sessions = [begin().weights(format).unwrap(), begin()];
                let kept: &[&str] = &$kept;
                round_matrices(&mut model, format, |name| kept.iter().any(|kept| name.contains(kept)));
                let mut rounded = model.session(LEN).unwrap();
                let text = text(LEN);
                let mut difference: f64 = 0.0;
                for piece in [&text[..20], &text[20..21], &text[21..24], &text[24..25], &text[25..]] {
                    let [found, exact] = sessions.each_mut().map(|session| session.prefill(piece).unwrap().to_vec());
                    let expected = rounded.prefill(piece).unwrap();
                    for ((found, expected), exact) in found.into_iter().zip(expected).zip(exact) {
                        let [found, expected, exact]: [f64; 3] = [found, *expected, exact].map(Into::into);
                        // Int8 rounds what is multiplied with it to 2e-5 of the largest number, on up to twenty levels; bf16 rounds nothing else,
                        // but sums in another order.
                        let most = if format == Int8 { 1e-3 } else { 1e-4 };
                        assert!(
                            (found - expected).abs() < most * expected.abs().max(1.0),
                            "{} {format:?}: {found} is not {expected}",
                            stringify!($name),
                        );
                        difference = difference.max((found - exact).abs());
                    }
                }
                assert!(difference > 2e-3, "{format:?} rounds the weights: {difference}");
            }
            $(
                check::<$E>(Int8);
                check::<$E>(Bf16);
            )*
        }
    )*};
}

rounds! {
    [f32, f64] a_gpt_whose_table_is_tied {
        struct M<vocab = 11, d = 12, layers = 2>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let mut x = embedding::<vocab, d>(tokens) + learned_position::<64, d>(tokens);
            repeat layers {
                x = x + attention::<heads = 3, mask = causal>(layer_norm(x));
                x = x + feed_forward::<hidden = 24, activation = gelu_tanh>(layer_norm(x));
            }
            linear::<tied = embedding>(layer_norm(x))
        }
    } [];

    [f32] a_gated_network_with_shared_rounds_and_a_learned_tensor {
        struct M<vocab = 11, d = 12, n = 3>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            param mix: [n, d] = normal(0.3);
            let mut x = embedding::<vocab, d>(tokens);
            repeat 2, share = true {
                x = x + attention::<heads = 2, kv_heads = 1, mask = causal, position = rope, qk_norm = rms>(rms_norm(x));
                x = x + feed_forward::<hidden = 24, activation = swiglu>(rms_norm(x));
            }
            linear::<vocab>(rms_norm(x + sum::<n>(mix)))
        }
    } ["mix"];

    [f32] a_mixture_of_experts {
        struct M<vocab = 11, d = 12, experts = 3>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let x = embedding::<vocab, d>(tokens);
            let y = attention::<heads = 2, mask = causal>(layer_norm(x));
            let expert = argmax::<experts>(linear::<experts>(x));
            let hidden = gelu(grouped_linear::<20, experts>(y, expert));
            linear::<vocab>(x + grouped_linear::<d, experts>(hidden, expert))
        }
    } ["bias"];

    [f32] a_recurrent_network {
        struct M<vocab = 11, d = 12>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let x = embedding::<vocab, d>(tokens);
            let y = scan seq {
                state h: [batch, d] = 0.0;
                let (xr, xz, xn) = split(linear::<{ 3 * d }>(x));
                let (hr, hz, hn) = split(linear::<{ 3 * d }>(h));
                let z = sigmoid(xz + hz);
                h = (1 - z) * tanh(xn + sigmoid(xr + hr) * hn) + z * h;
                yield h;
            };
            linear::<vocab>(y)
        }
    } [];
}

model! {
    struct Small<vocab = VOCAB, d = 32>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat 2 {
            x += attention::<2, mask = causal, position = rope>(layer_norm(x));
            x += feed_forward::<64>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

model! {
    struct Wide<vocab = VOCAB, d = 32>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat 2 {
            x += attention::<2, mask = causal>(layer_norm(x));
            x += feed_forward::<1000>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

#[test]
fn a_report_has_the_bytes_and_the_rows_that_lose_much() {
    let mut model = Cpu::default().build_module::<Wide, f32>();
    scatter(&mut model);
    tensors::fill(&mut model, |name, mut values: Vec<f64>| {
        if name == "blocks.1.feed_forward.down_proj.weight" {
            // The others are up to 0.6, and are rounded to multiples of 0.5.
            values[3 * 1000 + 5] = 60.0;
        }
        values
    });
    let exact = model.session(8).unwrap();
    assert_eq!(exact.weight_report(), None);
    let parameters = 4 * Wide::PARAMS;
    for (format, part) in [(Int8, 0.3), (Bf16, 0.52)] {
        let session = model.session(8).unwrap().weights(format).unwrap();
        let report = session.weight_report().unwrap();
        assert_eq!((report.format, report.bytes_before), (format, parameters));
        assert!(
            (report.bytes as f64) < part * parameters as f64,
            "{report:?}"
        );
        let inexact = report.inexact.iter().map(|row| (&row.layer[..], row.row));
        let expected: &[(&str, usize)] = match format {
            Int8 => &[("blocks.1.feed_forward.down_proj", 3)],
            _ => &[],
        };
        assert_eq!(inexact.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn weights_are_rounded_once_and_before_a_fork() {
    let model = Cpu::default().build_module::<Small, f32>();
    let session = model.session(8).unwrap();
    let fork = session.fork();
    let shared = session.weights(Int8).err().unwrap();
    assert_eq!(shared, SessionError::SharedWeights);
    // The other session is gone.
    let mut session = fork.weights(Int8).unwrap();
    let mut fork = session.fork();
    assert_eq!(session.step(3).unwrap(), fork.step(3).unwrap());
    assert_eq!(session.weight_report(), fork.weight_report());
    let again = session.weights(Bf16).err().unwrap();
    assert_eq!(again, SessionError::Rounded { format: Int8 });
}

/// The mean of the negative log probabilities of a text, by a session in pieces.
fn cross_entropy_of(mut session: attn::generate::Session<f32>, text: &[usize]) -> f64 {
    let mut sum = 0.0;
    for pair in text.windows(2) {
        let logits: Vec<f64> = session
            .step(pair[0])
            .unwrap()
            .iter()
            .map(|x| f64::from(*x))
            .collect();
        let all: f64 = logits.iter().map(|x| x.exp()).sum();
        sum += all.ln() - logits[pair[1]];
    }
    sum / (text.len() - 1) as f64
}

/// Half of the time a token is a function of the one before it, otherwise anything.
fn noisy(len: usize, seed: usize) -> Vec<usize> {
    let noise = support::numbers::scattered(&format!("text {seed}"), 2 * len);
    let mut text = vec![1];
    for i in 1..len {
        text.push(match noise[2 * i] > 0.0 {
            true => (3 * text[i - 1] + 1) % VOCAB,
            false => ((noise[2 * i + 1] + 1.0) / 2.0 * VOCAB as f64) as usize % VOCAB,
        });
    }
    text
}

#[test]
fn the_perplexity_of_a_trained_model_stays_within_half_a_percent() {
    const LEN: usize = 32;
    let dev = Cpu::default();
    let model = dev.build_module::<Small, f32>();
    let mut trainer = model.trainer(AdamWConfig {
        lr: 5e-3,
        ..Default::default()
    });
    for step in 0..40 {
        let texts: Vec<_> = (0..16).map(|i| noisy(LEN + 1, 16 * step + i)).collect();
        let batch = |from: usize| {
            let ids = texts
                .iter()
                .flat_map(|text| text[from..from + LEN].to_vec());
            dev.tensor_from_vec(ids.collect::<Vec<_>>(), (16, LEN))
        };
        trainer.step((batch(0), batch(1))).unwrap();
    }
    let model = trainer.into_model();
    let text = noisy(300, 1 << 20);
    let begin = || model.session(300).unwrap();
    let exact = cross_entropy_of(begin(), &text);
    // The text has 1.74 nats, of 2.40.
    assert!(exact < 2.0, "the model has learned: {exact}");
    for format in [Int8, Bf16] {
        let rounded = cross_entropy_of(begin().weights(format).unwrap(), &text);
        assert!(
            (rounded - exact).abs() < 0.005,
            "{format:?}: {rounded} and {exact}"
        );
        assert_ne!(rounded, exact);
    }
}
