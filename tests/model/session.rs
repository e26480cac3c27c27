//! Sessions: the results of a token equal those of the model for the whole sequence up to it.

use super::*;
use attn::{
    Backend, Element, Error,
    generate::{Sampling, SessionError},
    model,
};

const VOCAB: usize = 11;

/// Tokens of a sequence, different for every number.
fn text(number: usize, len: usize) -> Vec<usize> {
    (0..len)
        .map(|i| (i * i + (3 + number) * i + number) % VOCAB)
        .collect()
}

/// The difference of both ways: sums of up to 150 terms of order 1, on about eight levels, rounded in another order: √1200 ε / 2
/// < 20 ε, and ten times that, as norms amplify small differences.
fn assert_near<E: Element>(found: &[E], expected: &[E], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let most: f64 = 200.0 * E::epsilon().into();
    for (found, expected) in found.iter().zip(expected) {
        let found: f64 = (*found).into();
        let expected: f64 = (*expected).into();
        let difference = (found - expected).abs();
        assert!(
            difference <= most * expected.abs().max(1.0),
            "{what}: {found} is not {expected}"
        );
    }
}

/// The numbers of tokens per call: the first ones at once, the others one by one or in pieces.
fn pieces(len: usize) -> [Vec<usize>; 4] {
    let first = 5.min(len);
    let uneven = [1, 2, 19, 40].into_iter().cycle();
    let mut left = len;
    let uneven = uneven
        .map(|piece| {
            let piece = piece.min(left);
            left -= piece;
            piece
        })
        .take_while(|&piece| piece > 0);
    let uneven: Vec<usize> = uneven.collect();
    let mut prompt = vec![first];
    prompt.extend(vec![1; len - first]);
    [vec![1; len], prompt, vec![len], uneven]
}

/// `types name { the model } len`: a model of tokens, `ids[batch, seq]`, which is compared at all positions of sequences of that
/// length, for these element types.
macro_rules! goes_on {
    ($([$($E:ty),*] $name:ident { $($model:tt)* } $len:expr;)*) => {$(
        #[test]
        fn $name() {
            model! { $($model)* }

            fn check<E: Element>()
            where
                Cpu: Backend<E>,
            {
                let dev = Cpu::default();
                let len = $len;
                let mut model = dev.build_module::<M, E>();
                scatter(&mut model);
                let tokens = text(0, len);
                let whole = model.forward(dev.tensor_from_vec(tokens.clone(), (1, len)));
                let whole = whole.as_vec();
                let width = whole.len() / len;
                for pieces in pieces(len) {
                    let mut session = model.session(len).unwrap();
                    let mut at = 0;
                    for piece in pieces {
                        let results = session.prefill(&tokens[at..at + piece]).unwrap();
                        at += piece;
                        let expected = &whole[(at - 1) * width..at * width];
                        assert_near(results, expected, &format!("{} after {at}", stringify!($name)));
                    }
                    assert_eq!(session.len(), len);
                }
            }
            $(check::<$E>();)*
        }
    )*};
}

/// `M`: two blocks around an attention with these keys, and an optional body.
macro_rules! attends {
    ($($name:ident [$($keys:tt)*] $({ $($body:tt)* })? => $len:expr;)*) => {
        goes_on! {$(
            [f32] $name {
                struct M<vocab = 11, d = 12>;
                fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
                    let mut x = embedding::<vocab, d>(tokens);
                    repeat 2 {
                        x = x + attention::<$($keys)*>(layer_norm(x)) $({ $($body)* })?;
                    }
                    linear::<vocab>(x)
                }
            } $len;
        )*}
    };
}

attends! {
    causal [heads = 2, mask = causal] => 37;
    longer_than_a_prefill [heads = 2, mask = causal] => 150;
    grouped [heads = 2, kv_heads = 1, mask = causal, position = rope] => 37;
    rotated_and_normed [heads = 2, mask = causal, position = rope, qk_norm = rms] => 37;
    unit_keys [heads = 2, mask = causal, position = rope(theta = 100.0), qk_norm = l2] => 20;
    neighbours_of_a_part [heads = 2, mask = causal, position = rope(interleaved, dims = 4), qk_norm = rms(gain = one_plus)] => 37;
    scaled_rotations [heads = 2, mask = sliding_window(9), position = rope(scaling = yarn(4, 16))] => 150;
    long_rotations [heads = 2, mask = causal, position = rope(scaling = longrope([1.0, 1.5, 2.0], [2.0, 3.0, 5.0], 4, 16))] => 37;
    long_rotations_of_short_texts [heads = 2, mask = causal, position = rope(scaling = longrope([1.0, 1.5, 2.0], [2.0, 3.0, 5.0], 4, 64))] => 37;
    slopes [heads = 2, mask = causal, position = alibi] => 37;
    buckets [heads = 2, mask = causal, position = rel_pos_bias(num_buckets = 8, max_distance = 12)] => 37;
    capped [heads = 2, mask = causal, softcap = 0.5] => 20;
    other_widths [heads = 2, mask = causal, head_dim = 5, value_head_dim = 3] => 20;
    additive [heads = 2, mask = causal, score = additive(hidden = 5)] => 20;
    bilinear [heads = 2, mask = causal, score = bilinear] => 20;
    softmax1 [heads = 2, mask = causal, normalizer = softmax1] => 20;
    sinks [heads = 2, mask = causal, normalizer = sink] => 20;
    sigmoids [heads = 2, mask = causal, normalizer = sigmoid] => 20;
    sparse [heads = 2, mask = causal, normalizer = sparsemax] => 20;
    entmax [heads = 2, mask = causal, normalizer = entmax15] => 20;
    window [heads = 2, mask = sliding_window(5), position = rope] => 400;
    dilated [heads = 2, mask = dilated_sliding_window(3, 4), position = alibi] => 400;
    chunks [heads = 2, mask = causal & chunked(16), position = rope] => 300;
    dropped [heads = 2, mask = causal, dropout = 0.5] => 20;
    places_alone [heads = 2, mask = causal] {
        param width: [heads] = 3.0;
        fn score(h, q_idx, kv_idx) { -pow((q_idx - kv_idx) as f32 / width[h], 2) }
    } => 150;
    first_tokens_and_a_window [heads = 2, position = alibi] {
        fn mask(q_idx, kv_idx) { kv_idx <= q_idx && (kv_idx < 4 || q_idx - kv_idx < 9) }
    } => 400;
    first_tokens_alone [heads = 2] {
        fn mask(q_idx, kv_idx) { kv_idx <= q_idx && kv_idx < 4 }
    } => 300;
    windows_of_heads [heads = 2, position = rope] {
        fn mask(h, q_idx, kv_idx) { kv_idx <= q_idx && q_idx - kv_idx < if h < 1 { 3 } else { 20 } }
    } => 400;
    strided [heads = 2, position = rope] {
        fn mask(q_idx, kv_idx) { kv_idx <= q_idx && (q_idx - kv_idx < 5 || kv_idx % 64 == 0) }
    } => 300;
    learned [heads = 2, mask = sliding_window(8)] {
        param bias: [heads, 9] = normal(0.5);
        fn score(score, h, q_idx, kv_idx) { score * 1.5 + bias[h, clamp(q_idx - kv_idx, 0, 8)] }
    } => 300;
}

goes_on! {
    [f32] operations_on_rows_between_loops {
        struct M<vocab = 11, d = 12>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let mut x = embedding::<vocab, d>(tokens);
            let gate = linear::<d>(x);
            let scale = linear::<d>(x);
            let shift = linear::<d>(x);
            // A session keeps nothing: results are written over operands and over rows.
            x = layer_norm(gate * x) * (1 + scale) + shift;
            x = x + attention::<heads = 2, mask = causal>(softmax(x + 1) * scale);
            linear::<vocab>(gelu(rms_norm(x)) - l2_norm(x))
        }
    } 20;

    [f32] layers_with_options {
        struct M<vocab = 11, d = 12>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let mut x = embedding::<vocab, d>(tokens);
            x += attention::<heads = 2, mask = causal>(rms_norm::<gain = one_plus>(x));
            x += feed_forward::<9, activation = geglu_tanh, dropout = 0.5>(group_norm::<3>(x));
            linear::<vocab>(layer_norm::<gain = false, bias = false>(x))
        }
    } 20;

    [f32, f64] a_gpt {
        struct M<vocab = 11, d = 12, layers = 2>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let mut x = embedding::<vocab, d>(tokens) + learned_position::<64, d>(tokens);
            x = dropout::<0.25>(x);
            repeat layers {
                x = x + dropout::<0.25>(attention::<heads = 3, mask = causal>(layer_norm(x)));
                x = x + dropout::<0.25>(feed_forward::<hidden = 24, activation = gelu_tanh>(layer_norm(x)));
            }
            linear::<tied = embedding>(dropout::<0.25>(layer_norm(x)))
        }
    } 64;

    [f32, f64] shared_rounds_in_rounds {
        struct M<vocab = 11, d = 12>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let mut x = embedding::<vocab, d>(tokens) + sinusoidal_position::<d>(tokens);
            repeat 2 {
                x = x + feed_forward::<hidden = 24, activation = swiglu>(rms_norm(x));
                repeat 3, share = true {
                    x = x + attention::<heads = 2, mask = causal>(rms_norm(x));
                }
            }
            softmax(linear::<vocab>(x))
        }
    } 21;

    [f64] tokens_go_on_through_learned_tensors_and_parts_of_their_vectors {
        struct M<vocab = 11, d = 8>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            param scale: [d] = ones;
            param shift: [] = 0.5;
            let x = embedding::<vocab, d>(tokens);
            let x = x + attention::<2, mask = causal>(layer_norm(x * scale + shift));
            let (gate, value) = split(x);
            let mixed = concat(value * sigmoid(gate), x[d = 1..5]) * softmax(x);
            param grid: [d, 3] = normal(1.0);
            let row = permute::<[3, d]>(grid);
            linear::<vocab>(mixed * row[3 = 1] * x[d = -1] + (mean::<d>(x) - max::<d>(x)))
        }
    } 12;

    [f32] reductions_of_vectors_and_of_learned_tensors {
        struct M<vocab = 11, d = 12, n = 3>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            param table: [n, d] = normal(1.0);
            param shares: [n] = normal(1.0);
            let mut x = embedding::<vocab, d>(tokens) + sum::<n>(table * softmax(shares));
            x = (x - mean::<d>(x)) / sqrt(0.01 + variance::<d>(x));
            x = x + attention::<heads = 2, mask = causal>(x) * max::<d>(softmax::<d>(x));
            let logits = linear::<vocab>(x);
            let weights = softmax::<n>(table);
            logits - logsumexp::<vocab>(logits) + max::<d>(weights[n = 0]) * min::<d>(x)
        }
    } 21;

    [f32] two_streams {
        struct M<vocab = 11, d = 12>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let mut x = embedding::<vocab, d>(tokens);
            let mut y = 0.5 * x;
            repeat 2 {
                let z = attention::<heads = 2, mask = causal>(concat(x, y));
                x = y + linear::<d>(z);
                y = relu(x) * y;
            }
            linear::<vocab>(concat(x, y))
        }
    } 21;

    [f32] without_attention {
        struct M<vocab = 11, d = 11>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
            embedding::<vocab, d>(tokens)
        }
    } 5;
}

model! {
    struct Gpt<vocab = 11, d = 12>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d>(tokens) + learned_position::<200, d>(tokens);
        repeat 2 {
            x = x + attention::<heads = 3, kv_heads = 1, mask = sliding_window(6)>(layer_norm(x));
        }
        linear::<vocab>(x)
    }
}

model! {
    struct OfOneSequence<vocab = 11, d = 12>;
    fn forward(tokens: ids[seq]) -> [seq, vocab] {
        linear::<vocab>(attention::<heads = 2, mask = causal, position = rope>(embedding::<vocab, d>(tokens)))
    }
}

fn gpt() -> Gpt {
    let mut model = Cpu::default().build_module::<Gpt, f32>();
    scatter(&mut model);
    model
}

/// The results of the model for the last token.
fn last(model: &Gpt, tokens: &[usize]) -> Vec<f32> {
    let x = Cpu::default().tensor_from_vec(tokens.to_vec(), (1, tokens.len()));
    let all = model.forward(x).as_vec();
    all[all.len() - VOCAB..].to_vec()
}

#[test]
fn a_model_of_one_sequence_has_sessions() {
    let dev = Cpu::default();
    let mut model = dev.build_module::<OfOneSequence, f32>();
    scatter(&mut model);
    let tokens = text(0, 9);
    let whole = model.forward(dev.tensor_from_vec(tokens.clone(), (9,)));
    let mut session = model.session(9).unwrap();
    for (token, expected) in tokens.iter().zip(whole.as_vec().chunks(VOCAB)) {
        assert_near(session.step(*token).unwrap(), expected, "a token");
    }
}

#[test]
fn sequences_of_different_lengths_continue_independently() {
    let model = gpt();
    let texts = [text(0, 150), text(1, 3), text(2, 60)];
    let mut sessions = model.sessions(3, 150).unwrap();
    let refused = sessions.prefill(&[&texts[0][..140], &texts[1][..1], &[]]);
    assert_eq!(refused.err(), Some(SessionError::Empty { sequence: 2 }));
    assert_eq!(sessions.lens(), [0, 0, 0]);

    // Some tokens of each sequence at a time, or none.
    let rounds = [[140, 1, 1], [0, 0, 37], [3, 2, 1], [1, 0, 0], [6, 0, 21]];
    let mut lens = [0; 3];
    for round in rounds {
        let parts = (0..3).map(|i| &texts[i][lens[i]..lens[i] + round[i]]);
        let given: Vec<&[usize]> = parts.collect();
        (0..3).for_each(|i| lens[i] += round[i]);
        let results = sessions.prefill(&given).unwrap();
        for (i, len) in lens.into_iter().enumerate() {
            let expected = last(&model, &texts[i][..len]);
            assert_near(results.row(i), &expected, &format!("sequence {i} of {len}"));
        }
        assert_eq!(sessions.lens(), lens);
    }
    assert_eq!(lens, [150, 3, 60]);
}

#[test]
fn steps_are_a_token_of_each_sequence() {
    let model = gpt();
    let texts = [text(3, 40), text(4, 40)];
    let mut sessions = model.sessions(2, 40).unwrap();
    for i in 0..40 {
        let results = sessions.step(&[texts[0][i], texts[1][i]]).unwrap();
        for (number, text) in texts.iter().enumerate() {
            assert_near(results.row(number), &last(&model, &text[..=i]), "a step");
        }
    }
}

#[test]
fn forks_are_independent() {
    let model = gpt();
    let mut session = model.session(20).unwrap();
    let one = text(0, 12);
    let other = text(5, 4);
    session.prefill(&one[..8]).unwrap();
    let mut fork = session.fork();
    assert_eq!(fork.results(), session.results());
    assert_eq!(fork.len(), 8);
    let both: Vec<usize> = one[..8].iter().chain(&other).copied().collect();
    let a = session.prefill(&one[8..]).unwrap();
    let b = fork.prefill(&other).unwrap();
    assert_near(a, &last(&model, &one), "the first");
    assert_near(b, &last(&model, &both), "its fork");
}

#[test]
fn reset_clears_a_session() {
    let model = gpt();
    let mut session = model.session(190).unwrap();
    session.prefill(&text(0, 190)).unwrap();
    session.reset();
    assert!(session.is_empty());
    assert_eq!(session.results(), [0.0; VOCAB]);
    let tokens = text(6, 30);
    let results = session.prefill(&tokens).unwrap();
    assert_near(results, &last(&model, &tokens), "after a reset");
}

#[test]
fn a_session_keeps_the_weights_it_began_with() {
    let mut model = gpt();
    let expected = last(&model, &text(0, 7));
    let mut session = model.session(7).unwrap();
    tensors::fill(&mut model, |_, values| vec![0.0; values.len()]);
    let results = session.prefill(&text(0, 7)).unwrap();
    assert_near(results, &expected, "as before");
}

#[test]
fn sessions_are_unchanged_after_a_mistake() {
    let model = gpt();
    let tokens = text(0, 9);
    let mut session = model.session(10).unwrap();
    let sequence = 0;
    let empty = SessionError::Empty { sequence };
    assert_eq!(session.prefill(&[]).err(), Some(empty));
    session.prefill(&tokens[..8]).unwrap();
    let full = SessionError::Full {
        sequence,
        len: 8,
        given: 3,
        capacity: 10,
    };
    assert_eq!(session.prefill(&[1, 2, 3]).err(), Some(full.clone()));
    assert_eq!(
        full.to_string(),
        "no room: sequence 0 has 8 of 10 tokens, and 3 more are given"
    );
    let unknown = SessionError::Unknown {
        sequence,
        place: 1,
        token: 11,
        vocabulary: VOCAB,
    };
    assert_eq!(session.prefill(&[1, 11]).err(), Some(unknown));
    let sequences = SessionError::Sequences {
        given: 1,
        sequences: 2,
    };
    let message = "tokens for 1 sequence, but the session has 2";
    assert_eq!(sequences.to_string(), message);
    let mut two = model.sessions(2, 10).unwrap();
    assert_eq!(two.step(&[1]).err(), Some(sequences));
    // An empty list of tokens is valid later on: nothing happens.
    let before = session.results().to_vec();
    assert_eq!(session.prefill(&[]).unwrap(), before);
    let results = session.step(tokens[8]).unwrap();
    assert_near(results, &last(&model, &tokens), "after mistakes");
}

#[test]
fn a_session_is_no_longer_than_the_model_and_the_memory() {
    let refused = gpt().session(201).err();
    let too_long = Error::<CpuError>::TooLong {
        layer: "LearnedPosition",
        length: 201,
        max: 200,
    };
    assert_eq!(refused.unwrap().to_string(), too_long.to_string());
    let model = Cpu::default().build_module::<OfOneSequence, f32>();
    let refused = model.session(usize::MAX / 2).err();
    assert!(
        matches!(refused, Some(Error::TooLarge { .. })),
        "{refused:?}"
    );
    // Keys and values are cached, and scores of all pairs are never there.
    let refused = model.session(1 << 40).err().unwrap().to_string();
    assert!(refused.contains("capacity (1099511627776)"), "{refused}");
    // Nothing is cached for a token, but there are too many sequences.
    let refused = model.sessions(1 << 48, 0).err();
    assert!(
        matches!(refused, Some(Error::TooLarge { .. })),
        "{refused:?}"
    );
    let full = SessionError::Full {
        sequence: 0,
        len: 0,
        given: 1,
        capacity: 0,
    };
    assert_eq!(model.session(0).unwrap().step(1).err(), Some(full));
    assert_eq!(model.sessions(0, 5).unwrap().step(&[]).unwrap().rows(), 0);
}

#[test]
fn grouped_heads_and_windows_take_less_memory() {
    // Two rounds, keys and values of one head of 4.
    let row = 2 * 2 * 4 * size_of::<f32>();
    let rows = |capacity| gpt().session(capacity).unwrap().cache_bytes() / row;
    assert_eq!(rows(20), 20);
    assert_eq!(rows(199), rows(200));
    // The window, and the new tokens of one call. The mask is evaluated for 16 queries at a time, so up to 15 more keys are kept.
    assert!(
        (6 + 128..=6 + 15 + 128).contains(&rows(200)),
        "{}",
        rows(200)
    );

    let all = Cpu::default().build_module::<OfOneSequence, f32>();
    let bytes = all.session(1000).unwrap().cache_bytes();
    assert_eq!(bytes, 1000 * 2 * 12 * size_of::<f32>());
}

model! {
    struct Bigram<vocab = 11>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        linear::<vocab>(embedding::<vocab, 4>(tokens))
    }
}

#[test]
fn sessions_without_a_cache_limit_their_sequences() {
    let model = Cpu::default().build_module::<Bigram, f32>();
    let refused = model.sessions(1 << 48, 1).err();
    assert!(
        matches!(refused, Some(Error::TooLarge { .. })),
        "{refused:?}"
    );
}

model! {
    /// The second sequence looks back further than the first.
    struct Uneven<vocab = 11, d = 4>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        linear::<vocab>(attention::<heads = 2, mask = causal>(x) {
            fn mask(b, q_idx, kv_idx) { q_idx - kv_idx < 2 + 100 * b }
        })
    }
}

#[test]
fn sequences_with_masks_of_their_own_keep_what_the_longest_of_them_looks_at() {
    let dev = Cpu::seed_from_u64(7);
    let model = dev.build_module::<Uneven, f32>();
    let tokens = [text(0, 300), text(1, 300)];
    let all = dev.tensor_from_vec(tokens.concat(), (2, 300));
    let expected = model.forward(all).as_vec();
    let mut sessions = model.sessions(2, 300).unwrap();
    let found = sessions.prefill(&[&tokens[0], &tokens[1]]).unwrap();
    for sequence in [0, 1] {
        let expected = &expected[(300 * sequence + 299) * VOCAB..][..VOCAB];
        assert_near(found.row(sequence), expected, "the last token");
    }
}

/// The model of one sequence, whose mask drops nothing.
fn of_one_sequence() -> OfOneSequence {
    let mut model = Cpu::default().build_module::<OfOneSequence, f32>();
    scatter(&mut model);
    model
}

#[test]
fn a_cut_sequence_goes_on_with_the_bits_of_one_without_its_end() {
    let model = of_one_sequence();
    let tokens = text(0, 150);
    let other = text(3, 40);
    for len in [1, 2, 63, 128, 129] {
        let mut session = model.session(200).unwrap();
        session.prefill(&tokens[..len]).unwrap();
        let mut cut = session.fork();
        for piece in tokens[len..].chunks(19) {
            cut.prefill(piece).unwrap();
        }
        cut.truncate(len).unwrap();
        assert_eq!(cut.len(), len);
        assert_eq!(cut.results(), [0.0; VOCAB]);
        for pieces in [&other[..1], &other[1..2], &other[2..]] {
            assert_eq!(
                cut.prefill(pieces).unwrap(),
                session.prefill(pieces).unwrap()
            );
        }
    }
}

#[test]
fn a_sequence_is_cut_within_the_tokens_of_a_call() {
    let model = gpt();
    let tokens = text(0, 120);
    let mut sessions = model.sessions(2, 120).unwrap();
    sessions.prefill(&[&tokens, &tokens[..3]]).unwrap();
    sessions.truncate(0, 37).unwrap();
    assert_eq!(sessions.lens(), [37, 3]);
    let both = sessions.prefill(&[&[5, 6], &tokens[3..9]]).unwrap();
    let expected = [&tokens[..37], &[5, 6]].concat();
    assert_near(
        both.row(0),
        &last(&model, &expected),
        "the one that was cut",
    );
    assert_near(both.row(1), &last(&model, &tokens[..9]), "the other");
}

#[test]
fn a_window_keeps_what_a_sequence_needs_that_is_cut() {
    let model = gpt();
    let tokens = text(0, 200);
    let mut session = model.session(200).unwrap();
    session.prefill(&tokens[..60]).unwrap();
    for (len, token) in tokens.iter().enumerate().skip(60) {
        session.step(*token).unwrap();
        if len % 7 == 0 {
            let mut cut = session.fork();
            cut.truncate(len + 1 - 63).unwrap();
            let found = cut.prefill(&[1, 2]).unwrap();
            let expected = [&tokens[..len + 1 - 63], &[1, 2]].concat();
            assert_near(found, &last(&model, &expected), "after 63 fewer");
        }
    }
    // A call can be taken back.
    let mut long = model.session(200).unwrap();
    long.prefill(&tokens[..80]).unwrap();
    long.prefill(&tokens[80..200]).unwrap();
    long.truncate(80).unwrap();
    let expected = [&tokens[..80], &[7]].concat();
    assert_near(
        long.step(7).unwrap(),
        &last(&model, &expected),
        "a call fewer",
    );
    // The keys before have left.
    let Err(SessionError::Truncate { shortest, .. }) = session.truncate(20) else {
        panic!("keys are there that cannot be");
    };
    assert!((21..=137).contains(&shortest), "{shortest}");
    assert_eq!(session.len(), 200);
    let message = session.truncate(20).unwrap_err().to_string();
    let expected = format!(
        "sequence 0 has 200 tokens, and cannot be cut to 20: keys that it needs have left the window of a mask. {shortest} and more tokens are possible, and 0"
    );
    assert_eq!(message, expected);
    session.truncate(shortest).unwrap();
    let text = [&tokens[..shortest], &[3]].concat();
    assert_near(session.step(3).unwrap(), &last(&model, &text), "the fewest");
}

#[test]
fn states_that_only_go_on_are_not_cut() {
    model! {
        struct Convolved<vocab = 11, d = 12>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let x = embedding::<vocab, d>(tokens);
            let x = x + attention::<heads = 2, mask = causal>(x);
            linear::<vocab>(conv1d::<seq, d, kernel = 3, padding = causal>(x))
        }
    }
    let model = Cpu::default().build_module::<Convolved, f32>();
    let mut session = model.session(20).unwrap();
    session.prefill(&text(0, 9)).unwrap();
    let expected = session.step(4).unwrap().to_vec();
    let refused = session.truncate(8).err();
    let truncate = SessionError::Truncate {
        sequence: 0,
        tokens: 10,
        len: 8,
        shortest: 10,
    };
    assert_eq!(refused, Some(truncate));
    assert_eq!(session.results(), expected);
    session.truncate(0).unwrap();
    session.prefill(&text(0, 9)).unwrap();
    assert_eq!(session.step(4).unwrap(), expected);
}

#[test]
fn the_results_of_all_tokens_are_those_of_the_model() {
    let model = of_one_sequence();
    let tokens = text(1, 150);
    let whole = model.forward(Cpu::default().tensor_from_vec(tokens.clone(), (150,)));
    let mut session = model.session(150).unwrap();
    session.prefill(&tokens[..4]).unwrap();
    let all = session.prefill_all(&tokens[4..]).unwrap();
    assert_eq!((all.rows(), all.cols()), (146, VOCAB));
    assert_near(all.values(), &whole.as_vec()[4 * VOCAB..], "all");
}

#[test]
fn drafts_change_no_greedy_token() {
    // A window with keys that have left, as target and as draft, and a model without one.
    let (windowed, whole) = (gpt(), of_one_sequence());
    let greedy = Sampling::with_temperature(0.0);
    let prompt = text(2, 30);
    // The last is more than a window can take back.
    for k in [1, 4, 11, 100] {
        let sessions = || [windowed.session(190).unwrap(), whole.session(190).unwrap()];
        for target in [0, 1] {
            let mut alone = sessions();
            let tokens = alone[target]
                .generate(&prompt, greedy.clone(), &[])
                .unwrap();
            let expected: Vec<usize> = tokens.take(155).collect::<Result<_, _>>().unwrap();
            let mut both = sessions();
            both.rotate_left(target);
            let [target, draft] = both.each_mut();
            let tokens = target
                .generate_with_draft(draft, k, &prompt, greedy.clone(), &[])
                .unwrap();
            let found: Vec<usize> = tokens.take(155).collect::<Result<_, _>>().unwrap();
            assert_eq!(found, expected);
            assert_eq!(target.len(), 30 + 154);
        }
    }
}

#[test]
fn prompts_of_any_lengths_have_the_greedy_tokens_of_the_whole_model() {
    let model = gpt();
    let prompts = [text(0, 140), text(1, 1), text(2, 60)];
    let expected = prompts.clone().map(|mut text| {
        let start = text.len();
        for _ in 0..12 {
            let logits = last(&model, &text);
            let best =
                (0..VOCAB).fold(0, |best, i| if logits[i] > logits[best] { i } else { best });
            text.push(best);
        }
        text.split_off(start)
    });
    let mut sessions = model.sessions(3, 160).unwrap();
    let given = prompts.each_ref().map(Vec::as_slice);
    let batch = sessions
        .generate(&given, Sampling::with_temperature(0.0), &[])
        .unwrap();
    assert_eq!(batch.continuations(12).unwrap(), expected);
    assert_eq!(sessions.lens(), [151, 12, 71]);
}
