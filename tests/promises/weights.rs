//! Sessions whose weights are rounded: they compute the model with the weights that plain loops round, and their files have the same bits.

use std::{fs, path::Path};

use attn::{
    Backend, Element,
    checkpoint::{self, Archive, Problem},
    generate::{
        self, Session, SessionError,
        WeightFormat::{self, Bf16, Int8},
    },
    train::{AdamWConfig, Trainer},
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

model! {
    /// A loss of a text, whose products a trainer rounds as a session does.
    struct Rounded<vocab = 11, d = 12>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        let x = x + attention::<heads = 2, kv_heads = 1, mask = causal>(layer_norm(x));
        let h = gelu(linear::<20>(layer_norm(x)));
        linear::<tied = embedding>(x + linear::<d>(h))
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

/// With weights, keys and values in bf16, a session has the loss of a trainer in bf16: both round the operands of all products.
#[test]
fn a_session_in_bf16_computes_what_a_trainer_in_bf16_does() {
    const LEN: usize = 70;
    let dev = Cpu::default();
    let mut model = dev.build_module::<Rounded, f64>();
    scatter(&mut model);
    // Rows of a table are rounded by a session alone.
    round_matrices(&mut model, Bf16, |_| false);
    let text = text(LEN + 1);
    let session = model.session(LEN).unwrap().weights(Bf16).unwrap();
    let mut session = session.cache(generate::Dtype::Bf16).unwrap();
    let mut losses = Vec::new();
    let mut read = |tokens: &[usize], targets: &[usize]| {
        let logits = session.prefill_all(tokens).unwrap();
        for (row, target) in targets.iter().enumerate() {
            let logits = logits.row(row);
            let sum: f64 = logits.iter().map(|z| z.exp()).sum();
            losses.push(sum.ln() - logits[*target]);
        }
    };
    // A prompt, tokens one by one, and some at a time.
    let ends = [30, 31, 32, 33, 60, LEN];
    let mut start = 0;
    for end in ends {
        read(&text[start..end], &text[start + 1..=end]);
        start = end;
    }
    let found = losses.iter().sum::<f64>() / LEN as f64;
    let [tokens, targets] = [0, 1].map(|first| {
        let ids = text[first..first + LEN].to_vec();
        dev.tensor_from_vec(ids, (1, LEN))
    });
    let [rounded, whole] = [generate::Dtype::Bf16, generate::Dtype::Model].map(|dtype| {
        let trainer = Trainer::new(model.clone(), AdamWConfig::default());
        let mut trainer = trainer.dtype(dtype);
        trainer.evaluate((tokens.clone(), targets.clone())).unwrap()
    });
    // Sums of at most 20 numbers of about 1 in `f64`, on ten levels.
    assert!((found - rounded).abs() < 1e-12, "{found} is not {rounded}");
    assert!((found - whole).abs() > 1e-6, "{found} and {whole}");
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
                        // A session rounds its inputs of products on up to twenty levels: int8 to 2e-5 of the largest number of a row, bf16 to 4e-3 of each
                        // number, with errors of both signs.
                        let most = if format == Int8 { 1e-3 } else { 5e-2 };
                        assert!(
                            (found - expected).abs() < most * expected.abs().max(1.0),
                            "{} {format:?}: {found} is not {expected}",
                            stringify!($name),
                        );
                        difference = difference.max((found - exact).abs());
                    }
                }
                assert!(difference > 2e-3, "{format:?} rounds the weights: {difference}");

                // The file has what another session needs, to the last bit.
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("rounded.safetensors");
                let [saved, _] = &mut sessions;
                saved.save_weights(&path).unwrap();
                let other = dev.build_module::<M, E>();
                let mut loaded = other.session(LEN).unwrap().load_weights(&path).unwrap();
                assert_eq!(loaded.weight_report(), saved.weight_report());
                saved.reset();
                assert_eq!(loaded.prefill(&text).unwrap(), saved.prefill(&text).unwrap());
                let again = folder.path().join("again.safetensors");
                loaded.fork().save_weights(&again).unwrap();
                assert!(fs::read(&path).unwrap() == fs::read(&again).unwrap());
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

    [f32] a_network_whose_adapters_stay_exact {
        struct M<vocab = 11, d = 12, lora(rank = 2, alpha = 4, dropout = 0.1, on = ["q_proj", "v_proj", "up_proj", "linear"])>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let mut x = embedding::<vocab, d>(tokens);
            repeat 2 {
                x += attention::<heads = 2, mask = causal, position = rope>(layer_norm(x));
                x += feed_forward::<24>(layer_norm(x));
            }
            linear::<vocab>(layer_norm(x))
        }
    } ["lora_"];
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
    struct Gpt2<vocab = VOCAB, d = 32, layers = 2, max_len = LEN>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d, init = normal(0.02)>(tokens) + learned_position::<max_len, d, init = normal(0.02)>(tokens);
        repeat layers {
            x += attention::<heads = 2, mask = causal>(layer_norm(x));
            x += feed_forward::<{ 4 * d }, activation = gelu_tanh>(layer_norm(x));
        }
        linear::<tied = embedding>(layer_norm(x))
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
        match name {
            // The others of the row are up to 0.6, and are rounded to multiples of 0.5.
            "blocks.1.feed_forward.down_proj.weight" => values[3 * 1000 + 5] = 60.0,
            "blocks.0.attention.k_proj.weight" => values[2 * 32 + 5] = f64::NAN,
            _ => {}
        }
        values
    });
    let exact = model.session(8).unwrap();
    assert_eq!(exact.weight_report(), None);
    let parameters = 4 * Wide::PARAMS;
    // In bf16, with the 24 rows that are missing in the last panel of 1,000.
    for (format, part) in [(Int8, 0.3), (Bf16, 0.53)] {
        let session = model.session(8).unwrap().weights(format).unwrap();
        let report = session.weight_report().unwrap();
        assert_eq!((report.format, report.bytes_before), (format, parameters));
        assert!(
            (report.bytes as f64) < part * parameters as f64,
            "{report:?}"
        );
        let inexact = report.inexact.iter().map(|row| (&row.tensor[..], row.row));
        let expected: &[(&str, usize)] = match format {
            Int8 => &[
                ("blocks.0.attention.k_proj.weight", 2),
                ("blocks.1.feed_forward.down_proj.weight", 3),
            ],
            _ => &[("blocks.0.attention.k_proj.weight", 2)],
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

/// The bytes of a tensor of a safetensors file, by its header.
fn bytes_in(path: &Path, tensor: &str) -> Vec<u8> {
    let file = fs::read(path).unwrap();
    let (length, rest) = file.split_first_chunk().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let header: serde_json::Value = serde_json::from_slice(header).unwrap();
    let [start, end] =
        [0, 1].map(|end| header[tensor]["data_offsets"][end].as_u64().unwrap() as usize);
    data[start..end].to_vec()
}

#[test]
fn a_file_has_the_tensors_of_the_model_and_a_scale_for_each_row() {
    let mut model = Cpu::default().build_module::<Small, f32>();
    scatter(&mut model);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rounded.safetensors");
    let name = "blocks.1.attention.v_proj.weight";
    let found = |format| {
        let session = model.session(8).unwrap().weights(format).unwrap();
        session.save_weights(&path).unwrap();
        let archive = Archive::open(&path).unwrap();
        let tensors = archive
            .tensors()
            .map(|(name, of)| (name.to_owned(), of.to_string()));
        let (of_layer, all): (Vec<_>, Vec<_>) =
            tensors.partition(|(other, _)| other.contains(name));
        let types = of_layer.into_iter().map(|(_, of)| of).collect::<Vec<_>>();
        (types, all.len() + 1)
    };
    let all = tensors::parameters(&model);
    let matrices = all.iter().filter(|tensor| tensor.dims.len() > 1).count();
    let (types, count) = found(Bf16);
    assert_eq!(
        (&types[..], count),
        (&["BF16 [32, 32]".to_owned()][..], all.len())
    );
    let (types, count) = found(Int8);
    assert_eq!(types, ["I8 [32, 32]", "F32 [32, 1]"]);
    assert_eq!(count, all.len() + matrices - 1);

    let integers = bytes_in(&path, name);
    let scales = bytes_in(&path, &format!("{name}_scale"));
    let weights = all.iter().find(|tensor| tensor.name == name).unwrap();
    let rows = weights
        .values
        .chunks(32)
        .zip(integers.chunks(32))
        .zip(scales.chunks(4));
    for ((row, integers), scale) in rows {
        let scale = f64::from(f32::from_le_bytes(scale.try_into().unwrap()));
        let found: Vec<_> = integers
            .iter()
            .map(|q| scale * f64::from(*q as i8))
            .collect();
        assert_eq!(found, round(row, Int8));
    }
}

#[test]
fn a_file_that_does_not_fit_is_an_error_with_all_differences() {
    let dev = Cpu::default();
    let mut small = dev.build_module::<Small, f32>();
    scatter(&mut small);
    let wide = dev.build_module::<Wide, f32>();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let load = |session: Session<f32>| session.load_weights(&path).err().unwrap().problem;
    let begin = || small.session(8).unwrap();

    // Not rounded: the session, and then the file.
    let error = begin().save_weights(&path).err().unwrap();
    assert!(matches!(error.problem, Problem::NotRounded), "{error}");
    checkpoint::save(&small, &path).unwrap();
    assert!(matches!(load(begin()), Problem::NotRounded));

    // Another network.
    let rounded = |format| begin().weights(format).unwrap();
    rounded(Int8).save_weights(&path).unwrap();
    let problem = load(wide.session(8).unwrap());
    let Problem::Mismatch(mismatch) = &problem else {
        panic!("{problem}")
    };
    assert_eq!(mismatch.missing, []);
    assert_eq!(mismatch.extra, []);
    let different = mismatch.different.iter().map(|of| &of.tensor[..]);
    let of_round = |round| {
        [
            "down_proj.weight",
            "up_proj.bias",
            "up_proj.weight",
            "up_proj.weight_scale",
        ]
        .map(|name| format!("blocks.{round}.feed_forward.{name}"))
    };
    let mut different: Vec<_> = different.collect();
    different.sort_unstable();
    assert_eq!(different, [of_round(0), of_round(1)].concat());
    let text = problem.to_string();
    assert!(
        text.contains("up_proj.weight, I8 [64, 32] instead of I8 [1000, 32]"),
        "{text}"
    );

    // Weights that have a format, or that another session has.
    let problem = load(rounded(Bf16));
    let expected = SessionError::Rounded { format: Bf16 };
    assert!(
        matches!(&problem, Problem::Session(error) if *error == expected),
        "{problem}"
    );
    let session = begin();
    let _fork = session.fork();
    assert!(matches!(
        load(session),
        Problem::Session(SessionError::SharedWeights)
    ));

    // A damaged file.
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&path, damaged).unwrap();
    assert!(matches!(load(begin()), Problem::Checksum { .. }));
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert!(matches!(load(begin()), Problem::Length { .. }));
    fs::remove_file(&path).unwrap();
    assert!(matches!(load(begin()), Problem::Io { .. }));

    // A row that was not finite.
    tensors::fill(&mut small, |name, mut values: Vec<f64>| {
        if name == "linear.weight" {
            values[32] = f64::INFINITY;
        }
        values
    });
    let session = small.session(8).unwrap().weights(Int8).unwrap();
    let row = &session.weight_report().unwrap().inexact[0];
    assert!((&row.tensor[..], row.row) == ("linear.weight", 1) && row.error.is_nan());
    session.save_weights(&path).unwrap();
    let problem = load(small.session(8).unwrap());
    let expected = [("linear.weight_scale".to_owned(), 1)];
    assert!(
        matches!(&problem, Problem::Nan(found) if *found == expected),
        "{problem}"
    );
}

#[test]
fn weights_are_loaded_before_the_first_token() {
    let mut small = Cpu::default().build_module::<Small, f32>();
    scatter(&mut small);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let begin = || small.session(8).unwrap();
    begin().weights(Int8).unwrap().save_weights(&path).unwrap();

    let mut session = begin();
    session.prefill(&[1, 2, 3]).unwrap();
    let problem = session.load_weights(&path).err().unwrap().problem;
    let expected = SessionError::OtherWeights {
        sequence: 0,
        tokens: 3,
    };
    assert!(
        matches!(&problem, Problem::Session(error) if *error == expected),
        "{problem}"
    );
    let mut two = small.sessions(2, 8).unwrap();
    two.prefill(&[&[1, 2], &[3]]).unwrap();
    two.reset(0);
    let problem = two.load_weights(&path).err().unwrap().problem;
    assert_eq!(
        problem.to_string(),
        "sequence 1 has 1 token, whose keys and values are of the weights so far: load others before the first one, or reset the sequence"
    );

    // A sequence without tokens has no keys of other weights.
    let mut session = begin();
    session.prefill(&[1, 2, 3]).unwrap();
    session.reset();
    let mut loaded = session.load_weights(&path).unwrap();
    let mut rounded = begin().weights(Int8).unwrap();
    let expected = rounded.prefill(&[4, 5]).unwrap();
    assert_eq!(loaded.prefill(&[4, 5]).unwrap(), expected);
}

/// The tokens of the texts that a model learns.
const LEN: usize = 32;

/// The mean of the negative log probabilities of the tokens of texts, one after the other.
fn cross_entropy_of(mut session: Session<f32>, texts: &[Vec<usize>]) -> f64 {
    let mut sum = 0.0;
    for text in texts {
        session.reset();
        for pair in text.windows(2) {
            let logits = session.step(pair[0]).unwrap().iter();
            let logits: Vec<f64> = logits.map(|x| f64::from(*x)).collect();
            let all: f64 = logits.iter().map(|x| x.exp()).sum();
            sum += all.ln() - logits[pair[1]];
        }
    }
    sum / (texts.len() * LEN) as f64
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

/// The perplexity of a model in each format, of a text that it has learned to expect. The text has 1.74 nats, of 2.40; the rows of the weights are
/// rounded to 1/254 of their largest number, so that the perplexity stays within half a percent.
macro_rules! perplexity {
    ($($name:ident: $Model:ident;)*) => {$(
        #[test]
        fn $name() {
            let dev = Cpu::default();
            let model = dev.build_module::<$Model, f32>();
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
            let texts: Vec<_> = (0..10).map(|i| noisy(LEN + 1, i + (1 << 20))).collect();
            let begin = || model.session(LEN).unwrap();
            let exact = cross_entropy_of(begin(), &texts);
            assert!(exact < 2.0, "the model has learned: {exact}");
            for format in [Int8, Bf16] {
                let rounded = cross_entropy_of(begin().weights(format).unwrap(), &texts);
                assert!(
                    (rounded - exact).exp().max((exact - rounded).exp()) < 1.005,
                    "{format:?}: {rounded} and {exact}"
                );
                assert_ne!(rounded, exact);
            }
            let cached = begin().cache(generate::Dtype::Bf16).unwrap();
            let rounded = cross_entropy_of(cached, &texts);
            let ratio = (rounded - exact).exp().max((exact - rounded).exp());
            assert!(ratio < 1.005 && rounded != exact, "keys and values: {rounded} and {exact}");
        }
    )*};
}

perplexity! {
    the_perplexity_of_a_trained_model_stays_within_half_a_percent: Small;
    the_perplexity_of_a_trained_gpt2_stays_within_half_a_percent: Gpt2;
}
