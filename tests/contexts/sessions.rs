//! The results of a token are those of the function for the whole sequence up to it.

use attn::{Error, dfdx::prelude::*, model};
use support::cases::{scatter, tensor};

use super::{Translator, VOCAB, assert_near, ids, lens, text};

type Net = Translator<f64>;

fn translator() -> Net {
    let mut net = Cpu::default().build_module::<Net, f64>();
    scatter(&mut net);
    net
}

fn memory(sequences: usize, len: usize) -> Tensor<(usize, usize, Const<16>), f64, Cpu> {
    tensor("memory", (sequences, len, Const))
}

#[test]
fn a_token_has_the_results_of_the_whole_sequence() {
    let net = translator();
    for src in [0, 1, 7, 130] {
        let valid = lens(&[src.min(5)]);
        let tokens = text(0, 23);
        let whole = net.decode((
            ids(std::slice::from_ref(&tokens)),
            memory(1, src),
            valid.clone(),
        ));
        let whole = whole.as_vec();
        for piece in [1, 4, 23] {
            let mut session = net
                .decode_session(memory(1, src), valid.clone(), 23)
                .unwrap();
            let mut at = 0;
            for tokens in tokens.chunks(piece) {
                let found = session.prefill(tokens).unwrap();
                at += tokens.len();
                assert_near(
                    found,
                    &whole[(at - 1) * VOCAB..at * VOCAB],
                    &format!("{src}, {at}"),
                );
            }
        }
    }
}

#[test]
fn sequences_have_memories_of_their_own() {
    let net = translator();
    let tokens = [text(1, 9), text(2, 9), text(3, 9)];
    let valid = lens(&[6, 1, 3]);
    let whole = net
        .decode((ids(&tokens), memory(3, 6), valid.clone()))
        .as_vec();
    let mut sessions = net.decode_sessions(memory(3, 6), valid, 9).unwrap();
    // Different numbers of tokens at once.
    sessions
        .prefill(&[&tokens[0][..4], &tokens[1][..1], &tokens[2][..9]])
        .unwrap();
    let found = sessions
        .prefill(&[&tokens[0][4..], &tokens[1][1..], &[]])
        .unwrap();
    for sequence in 0..3 {
        let last = (sequence * 9 + 8) * VOCAB;
        assert_near(
            found.row(sequence),
            &whole[last..last + VOCAB],
            &format!("sequence {sequence}"),
        );
    }
}

/// `forward` computes the encoder, too: once, when the session starts.
#[test]
fn what_follows_of_the_given_alone_is_computed_once() {
    let net = translator();
    let source = ids(&[text(4, 8)]);
    let tokens = text(5, 6);
    let whole = net
        .forward((
            source.clone(),
            ids(std::slice::from_ref(&tokens)),
            lens(&[7]),
        ))
        .as_vec();
    let mut session = net.session(source, lens(&[7]), 6).unwrap();
    for (at, token) in tokens.into_iter().enumerate() {
        let found = session.step(token).unwrap();
        assert_near(
            found,
            &whole[at * VOCAB..(at + 1) * VOCAB],
            &format!("token {at}"),
        );
    }
}

#[test]
fn a_session_that_is_reset_or_forked_keeps_its_memory() {
    let net = translator();
    let mut session = net.decode_session(memory(1, 5), lens(&[5]), 8).unwrap();
    let first = session.prefill(&[1, 2, 3]).unwrap().to_vec();
    let mut fork = session.fork();
    fork.step(4).unwrap();
    session.reset();
    assert_eq!(session.prefill(&[1, 2, 3]).unwrap(), first);
    assert_eq!(session.step(4).unwrap(), fork.results());
}

/// The keys and values of two layers: of 8 tokens in self-attention, of 5 of the memory.
#[test]
fn the_bytes_of_the_cache_are_those_of_the_sizes() {
    let net = translator();
    let session = net.decode_session(memory(1, 5), lens(&[5]), 8).unwrap();
    let own = 2 * 2 * (8 * 2 * 4);
    let of_memory = 2 * 2 * (5 * 16);
    assert_eq!(session.cache_bytes(), (own + of_memory) * size_of::<f64>());
}

#[test]
fn what_is_given_is_checked_when_a_session_starts() {
    let net = translator();
    let error = net
        .decode_session(memory(2, 5), lens(&[5, 5]), 8)
        .err()
        .unwrap();
    let message = "Translator::decode: `batch` is 2, and a session of one sequence takes 1: `sessions` takes any number";
    assert_eq!(error.to_string(), message);
    let error = net
        .decode_session(memory(1, 5), lens(&[6]), 8)
        .err()
        .unwrap();
    assert!(
        matches!(
            error,
            Error::LengthBeyondKeys {
                length: 6,
                keys: 5,
                ..
            }
        ),
        "{error}"
    );
    let error = net
        .decode_sessions(memory(2, 5), lens(&[5]), 8)
        .err()
        .unwrap();
    assert!(
        matches!(
            error,
            Error::AxisMismatch {
                size: 2,
                found: 1,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_memory_may_be_marked_or_computed_or_left_out() {
    model! {
        struct Reader<vocab = 11, d_model = 16>;

        fn forward(
            tokens: ids[batch, seq],
            memory: [batch, src, d_model],
            keep: bool[batch, src] = true,
        ) -> [batch, seq, vocab] {
            let read = feed_forward::<20, activation = relu>(layer_norm(memory));
            let mut x = embedding::<vocab, d_model>(tokens);
            x += attention::<heads = 2, mask = padding, normalizer = sparsemax, score = bilinear>(x, context = read, padding = keep);
            x += attention::<heads = 2, position = rope, qk_norm = rms>(x, context = concat::<src, to = both>(memory, read)) {
                param bias: [heads, 5] = zeros;
                fn score(score, h, q_idx, kv_idx) { score + bias[h, clamp(q_idx - kv_idx, -2, 2) + 2] }
            };
            linear::<vocab>(x)
        }
    }
    let mut net = Cpu::default().build_module::<Reader<f64>, f64>();
    scatter(&mut net);
    let tokens = text(6, 7);
    let marks: Tensor<(usize, usize), bool, _> =
        Cpu::default().tensor_from_vec(vec![true, false, true, true], (1, 4));
    for keep in [None, Some(marks)] {
        let whole = net
            .forward((
                ids(std::slice::from_ref(&tokens)),
                memory(1, 4),
                keep.clone(),
            ))
            .as_vec();
        let mut session = net.session(memory(1, 4), keep, 7).unwrap();
        for (at, token) in tokens.iter().enumerate() {
            let found = session.step(*token).unwrap();
            assert_near(
                found,
                &whole[at * VOCAB..(at + 1) * VOCAB],
                &format!("token {at}"),
            );
        }
    }
}

#[test]
fn an_image_is_continued_row_by_row() {
    model! {
        /// Pixels that see those before them, near by.
        struct Image<vocab = 11, d_model = 16, rows = 4, cols = 5>;

        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let mut x = embedding::<vocab, d_model>(tokens);
            x += attention::<heads = 2, grid = [rows, cols], mask = causal & local(3)>(x);
            linear::<vocab>(x + attention::<heads = 2, grid = [rows, cols], mask = causal & same_col>(x))
        }
    }
    let mut net = Cpu::default().build_module::<Image<f64>, f64>();
    scatter(&mut net);
    let tokens = text(7, 20);
    let whole = net.forward(ids(std::slice::from_ref(&tokens))).as_vec();
    let mut session = net.session(20).unwrap();
    for (at, token) in tokens.into_iter().enumerate() {
        let found = session.step(token).unwrap();
        assert_near(
            found,
            &whole[at * VOCAB..(at + 1) * VOCAB],
            &format!("token {at}"),
        );
    }
    let error = net.session(21).err().unwrap();
    assert!(
        matches!(
            error,
            Error::TooLong {
                length: 21,
                max: 20,
                ..
            }
        ),
        "{error}"
    );
}
