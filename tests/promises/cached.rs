//! Sessions whose keys and values are rounded to bf16: they compute the attention of which plain loops round the operands of all products.

use attn::{
    Backend, Element,
    generate::{BeamSearch, Dtype, Session, SessionError, WeightFormat::Int8},
};
use support::tensors;

use super::*;

const VOCAB: usize = 11;

fn text(len: usize) -> Vec<usize> {
    (0..len).map(|i| (i * i + 3 * i + 1) % VOCAB).collect()
}

/// The nearest number in bf16 to one in `f32`, and the even one of two. A subnormal one becomes 0.
fn bf16(x: f64) -> f64 {
    let x = f64::from(x as f32);
    if x.abs() < f32::MIN_POSITIVE.into() {
        return 0.0;
    }
    let unit = (x.abs().log2().floor() - 7.0).exp2();
    (x / unit).round_ties_even() * unit
}

fn begin<E: Element, M>(model: &M, session: impl Fn(&M) -> Session<E>, dtype: Dtype) -> Session<E> {
    session(model).cache(dtype).unwrap()
}

model! {
    /// Two query heads for a head of keys.
    struct Plain<vocab = 11, d = 12>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        linear::<tied = embedding>(x + attention::<heads = 2, kv_heads = 1, mask = causal, bias = false>(x))
    }
}

/// The keys that are read before a maximum of scores is known.
const TILE: usize = 512;

/// The logits of the last token of a text, with queries, keys, values and weights that are rounded.
fn by_formula(model: &Plain<f64, Cpu>, text: &[usize], round: fn(f64) -> f64) -> Vec<f64> {
    let all = tensors::parameters(model);
    let of = |name: &str| {
        let found = all.iter().find(|tensor| tensor.name == name);
        found.unwrap_or_else(|| panic!("no {name}")).values.clone()
    };
    let table = of("embedding.weight");
    let row = |token: usize| &table[12 * token..][..12];
    let times = |weight: &[f64], x: &[f64]| -> Vec<f64> {
        let rows = weight.chunks(x.len());
        rows.map(|w| w.iter().zip(x).map(|(w, x)| w * x).sum())
            .collect()
    };
    let [w_q, w_k, w_v, w_o] =
        ["q", "k", "v", "o"].map(|of_| of(&format!("attention.{of_}_proj.weight")));
    let x = row(*text.last().unwrap());
    let q = times(&w_q, x);
    let rounded = |weight: &[f64]| -> Vec<Vec<f64>> {
        let rows = text.iter().map(|token| times(weight, row(*token)));
        rows.map(|row| row.into_iter().map(round).collect())
            .collect()
    };
    let [keys, values] = [&w_k, &w_v].map(|weight| rounded(weight));
    let mut attended = Vec::new();
    for q in q.chunks(6) {
        let q: Vec<f64> = q.iter().map(|q| round(q / 6_f64.sqrt())).collect();
        let (mut largest, mut sum) = (f64::NEG_INFINITY, 0.0);
        let mut out = [0.0; 6];
        for (keys, values) in keys.chunks(TILE).zip(values.chunks(TILE)) {
            let scores = keys
                .iter()
                .map(|k| k.iter().zip(&q).map(|(k, q)| k * q).sum::<f64>());
            let scores: Vec<f64> = scores.collect();
            let before = largest;
            largest = scores.iter().copied().fold(largest, f64::max);
            let less = (before - largest).exp();
            let weights = scores.iter().map(|score| (score - largest).exp());
            let weights: Vec<f64> = weights.collect();
            sum = sum * less + weights.iter().sum::<f64>();
            for (i, out) in out.iter_mut().enumerate() {
                let terms = weights.iter().zip(values);
                *out = *out * less + terms.map(|(p, v)| round(*p) * v[i]).sum::<f64>();
            }
        }
        attended.extend(out.map(|out| out / sum));
    }
    let y = times(&w_o, &attended);
    let y: Vec<f64> = x.iter().zip(y).map(|(x, y)| x + y).collect();
    times(&table, &y)
}

/// Of many tokens at a time, and of one, which reads the rows where they stand; over the border of a page.
#[test]
fn a_session_rounds_the_operands_of_attention() {
    const LEN: usize = 530;
    let mut model = Cpu::default().build_module::<Plain, f64>();
    scatter(&mut model);
    let text = text(LEN);
    let mut session = begin(&model, |model| model.session(LEN).unwrap(), Dtype::Bf16);
    let mut end = 0;
    let mut difference: f64 = 0.0;
    for tokens in [20, 1, 1, 3, 1, 484, 1, 1, 1, 5, 1] {
        let found = session.prefill(&text[end..end + tokens]).unwrap();
        end += tokens;
        let [rounded, whole] = [bf16, |x| x].map(|round| by_formula(&model, &text[..end], round));
        for ((found, rounded), whole) in found.iter().zip(&rounded).zip(&whole) {
            assert!(
                (found - rounded).abs() < 1e-12,
                "{end}: {found} is not {rounded}"
            );
            difference = difference.max((found - whole).abs());
        }
    }
    assert!(
        difference > 1e-4,
        "keys and values are rounded: {difference}"
    );
}

/// A number as an `f64`.
fn wide<E: Element>(x: &[E]) -> Vec<f64> {
    x.iter().map(|x| (*x).into()).collect()
}

/// However the tokens come, and behind a fork or a cut, the results are the same; keys and values take half of the memory of `f32`.
macro_rules! sessions {
    ($($name:ident($len:expr) { $($model:tt)* })*) => {$(
        #[test]
        fn $name() {
            model! { $($model)* }

            fn check<E: Element>(tolerance: f64, part: usize)
            where
                Cpu: Backend<E>,
            {
                const LEN: usize = $len;
                let mut model = Cpu::default().build_module::<M, E>();
                scatter(&mut model);
                let begin = || model.session(LEN).unwrap().cache(Dtype::Bf16).unwrap();
                let mut whole = model.session(LEN).unwrap().cache(Dtype::Model).unwrap();
                let [mut at_once, mut by_steps] = [begin(), begin()];
                assert_eq!(at_once.cache_bytes() * part, whole.cache_bytes());
                let text = text(LEN);
                let near = |found: &[f64], expected: &[f64], most: f64| {
                    let pairs = found.iter().zip(expected);
                    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) < most
                };
                let expected = wide(at_once.prefill(&text).unwrap());
                by_steps.prefill(&text[..5]).unwrap();
                for token in &text[5..LEN - 2] {
                    by_steps.step(*token).unwrap();
                }
                let memory = by_steps.cache_memory();
                assert!(memory.own > 0 && memory.own <= memory.capacity);
                // A fork shares what it has, and goes on with the same bits. So does a session that takes tokens back.
                let mut fork = by_steps.fork();
                assert_eq!(fork.cache_memory().own, 0);
                let of_fork = wide(fork.prefill(&text[LEN - 2..]).unwrap());
                by_steps.prefill(&[7, 7]).unwrap();
                by_steps.truncate(LEN - 2).unwrap();
                let found = wide(by_steps.prefill(&text[LEN - 2..]).unwrap());
                assert_eq!(found, of_fork);
                assert!(near(&found, &expected, tolerance), "{found:?} is not {expected:?}");
                let exact = wide(whole.prefill(&text).unwrap());
                assert!(near(&found, &exact, 0.05) && !near(&found, &exact, 1e-5), "{found:?} and {exact:?}");
                by_steps.reset();
                assert_eq!(wide(by_steps.prefill(&text).unwrap()), expected);
            }
            check::<f64>(1e-9, 4);
            // A number may be rounded to another one of two that are almost as near.
            check::<f32>(1e-2, 2);
        }
    )*};
}

sessions! {
    grouped_queries_with_rotations(70) {
        struct M<vocab = 11, d = 12>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let mut x = embedding::<vocab, d>(tokens);
            repeat 2 {
                x = x + attention::<heads = 2, kv_heads = 1, mask = causal, position = rope, qk_norm = rms>(rms_norm(x));
            }
            linear::<vocab>(x)
        }
    }

    a_window_that_evicts_keys(400) {
        struct M<vocab = 11, d = 12>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let x = embedding::<vocab, d>(tokens);
            linear::<vocab>(x + attention::<heads = 4, mask = sliding_window(20), bias = [q, k, v]>(x))
        }
    }

    additive_scores_sinks_and_heads_that_talk(40) {
        struct M<vocab = 11, d = 12>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let x = embedding::<vocab, d>(tokens);
            let x = x + attention::<heads = 2, mask = causal, score = additive(hidden = 5)>(x);
            let x = x + attention::<heads = 2, mask = causal, normalizer = sparsemax>(x);
            linear::<vocab>(x + attention::<heads = 3, mask = causal, talking_heads = both>(x))
        }
    }

    latents_that_are_keys_and_values(40) {
        struct M<vocab = 11, d = 6, both = 12, heads = 2>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let x = embedding::<vocab, d>(tokens);
            let q = rearrange::<[batch, seq, (heads, both)] -> [batch, seq, heads, both]>(linear::<24>(x));
            let c = tanh(x);
            let k = concat::<both>(sin(x), c);
            linear::<vocab>(mean::<heads>(attend::<mask = causal>(q, k, c)))
        }
    }
}

#[test]
fn the_dtype_of_a_cache_is_chosen_before_the_first_token() {
    let model = Cpu::default().build_module::<Plain, f32>();
    let mut session = model.session(8).unwrap();
    session.prefill(&[1, 2, 3]).unwrap();
    let mut fork = session.fork();
    let refused = session.cache(Dtype::Bf16).err().unwrap();
    let expected = SessionError::Cached {
        sequence: 0,
        tokens: 3,
    };
    assert_eq!(refused, expected);
    fork.reset();
    let whole = fork.cache_bytes();
    // Beside weights in fewer bits.
    let session = fork.cache(Dtype::Bf16).unwrap();
    assert_eq!(session.cache_bytes(), whole / 2);
    let mut sessions = model
        .sessions(3, 8)
        .unwrap()
        .cache(Dtype::Bf16)
        .unwrap()
        .weights(Int8)
        .unwrap();
    sessions.prefill(&[&[1, 2], &[3], &[4, 5]]).unwrap();
    assert!(sessions.cache(Dtype::Model).is_err());
}

#[test]
fn beams_share_rounded_keys_and_values() {
    let mut model = Cpu::default().build_module::<Plain, f64>();
    scatter(&mut model);
    let search = BeamSearch {
        beams: 3,
        tokens: 8,
        ..Default::default()
    };
    let beams = |dtype| {
        let session = begin(&model, |model| model.session(12).unwrap(), dtype);
        session.beam_search(&[1, 2, 3], &search).unwrap()
    };
    let [rounded, whole] = [Dtype::Bf16, Dtype::Model].map(beams);
    assert_eq!(rounded.len(), whole.len());
    for (rounded, whole) in rounded.iter().zip(&whole) {
        assert_eq!(rounded.tokens, whole.tokens);
        assert_ne!(rounded.score, whole.score);
    }
}

model! {
    struct Translator<vocab = 11, d = 12>;
    fn forward(tokens: ids[batch, seq], memory: [batch, src, d]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        let x = x + attention::<heads = 2, mask = causal>(x);
        linear::<vocab>(x + attention::<heads = 2>(x, context = memory))
    }
}

/// The keys and values of a context are there when the session begins.
#[test]
fn those_of_a_context_are_rounded_too() {
    let mut model = Cpu::default().build_module::<Translator, f32>();
    scatter(&mut model);
    let memory: Tensor<Rank3<1, 5, 12>, f32, Cpu> = tensor("memory", Default::default());
    let session = || model.session(memory.clone(), 6).unwrap();
    let mut whole = session();
    let mut rounded = session().cache(Dtype::Bf16).unwrap();
    assert_eq!(rounded.cache_bytes() * 2, whole.cache_bytes());
    let own = rounded.cache_memory().own;
    assert_eq!(own, 2 * 5 * 12 * 2);
    let [rounded, whole] =
        [&mut rounded, &mut whole].map(|session| wide(session.prefill(&text(4)).unwrap()));
    let pairs = rounded.iter().zip(&whole);
    let distance = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(distance > 1e-5 && distance < 0.05, "{distance}");
}
