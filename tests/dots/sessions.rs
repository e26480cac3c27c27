//! Token by token: products of queries are those of the new token, and products of keys are remembered, as other values of keys are.

use super::*;
use support::compare::flat;

model! {
    struct Gpt<vocab = 11, d = 6, heads = 2, w = 3, rows = 4>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        param table: [rows, w] = normal(1.0);
        param of_heads: [heads, rows, w] = normal(1.0);
        param biases: [rows, heads] = normal(1.0);
        let mut x = embedding::<vocab, d>(tokens);
        repeat 2 {
            let q = rearrange::<[batch, seq, (heads, w)] -> [batch, seq, heads, w]>(linear::<d>(x));
            let k = rearrange::<[batch, seq, (heads, w)] -> [batch, seq, heads, w]>(linear::<d>(x));
            let gates = linear::<heads>(x);
            let by = tanh(linear::<heads>(x));
            let last = x[d = 0];
            let y = attend::<mask = sliding_window(9)>(q, k, k, gates = gates, by = by, last = last, biases = biases, doubled = 2 * biases) {
                param slope: [heads] = alibi_slopes;
                data gates: [batch, q_len, heads];
                data by: [batch, kv_len, heads];
                data last: [batch, kv_len];
                data biases: [4, heads];
                data doubled: [4, heads];
                fn score(score, b, h, q_idx, kv_idx) {
                    let far = clamp(q_idx - kv_idx, 0, 3);
                    let near = dot(q, table[far]) + dot(2 * q, of_heads[h, 3 - far]);
                    let of_keys = dot(k, table[q_idx % 4]) + by[b, kv_idx, h] * by[b, q_idx, h] + last[b, kv_idx];
                    let of_tables = biases[far, h] + sin(doubled[kv_idx % 4, h]);
                    score * sigmoid(gates[b, q_idx, h]) + near + of_keys + of_tables - slope[h] * (q_idx - kv_idx) as f32
                }
            };
            x += rearrange::<[batch, seq, (heads, w)]>(y);
        }
        linear::<vocab>(x)
    }
}

const VOCAB: usize = 11;

// In two rounds: keys and values of two heads, their products with four rows, two numbers and one.
const _: () = assert!(Gpt::cache_bytes_per_token() == 4 * 2 * (2 * (3 + 3) + 2 * 4 + 2 + 1));

/// The logits of all tokens, in one pass.
fn whole(model: &Gpt<f64, Cpu>, tokens: &[usize]) -> Vec<f64> {
    let tokens: Tensor<(usize, usize), usize, _> =
        Cpu::default().tensor_from_vec(tokens.to_vec(), (1, tokens.len()));
    flat(&model.forward(tokens))
}

fn text(start: usize, len: usize) -> Vec<usize> {
    (start..start + len).map(|i| (i * i + 1) % VOCAB).collect()
}

/// Sums of tens of terms of order 1 in another order, on ten levels.
fn assert_near(what: &str, found: &[f64], expected: &[f64]) {
    let tolerance = support::close::Tolerance::OfLargest(1e-13);
    support::close::assert_close(what, found, expected, tolerance);
}

#[test]
fn a_session_computes_what_a_pass_does() {
    let mut model = Cpu::default().build_module::<Gpt, f64>();
    scatter(&mut model);
    let tokens = text(0, 40);
    let expected = whole(&model, &tokens);
    // Prompts of several lengths, and then one token after the other.
    for prompt in [1, 7, 30] {
        let mut session = model.session(64).unwrap();
        let mut at = prompt;
        let mut logits = session.prefill(&tokens[..prompt]).unwrap().to_vec();
        loop {
            let row = &expected[(at - 1) * VOCAB..at * VOCAB];
            assert_near(&format!("{prompt}, {at}"), &logits, row);
            if at == tokens.len() {
                break;
            }
            logits = session.prefill(&tokens[at..=at]).unwrap().to_vec();
            at += 1;
        }
    }
}

/// More tokens than a step has, and a window that drops the first keys.
#[test]
fn a_long_prompt_is_that_of_a_pass() {
    let mut model = Cpu::default().build_module::<Gpt, f64>();
    scatter(&mut model);
    let tokens = text(3, 300);
    let expected = whole(&model, &tokens);
    let mut session = model.session(400).unwrap();
    let logits = session.prefill(&tokens).unwrap().to_vec();
    assert_near("300 tokens", &logits, &expected[299 * VOCAB..]);
    let mut fork = session.fork();
    let logits = fork.prefill(&text(5, 2)).unwrap().to_vec();
    let longer = [tokens, text(5, 2)].concat();
    assert_near(
        "302 tokens",
        &logits,
        &whole(&model, &longer)[301 * VOCAB..],
    );
}

/// The rows of new tokens are those of several sequences, at places of their own.
#[test]
fn sequences_of_several_lengths_go_on_together() {
    let mut model = Cpu::default().build_module::<Gpt, f64>();
    scatter(&mut model);
    let mut texts = [text(0, 3), text(4, 8)];
    let mut sessions = model.sessions(2, 64).unwrap();
    sessions.prefill(&[&texts[0], &texts[1]]).unwrap();
    for step in 0..12 {
        let new = [step % VOCAB, (3 * step + 2) % VOCAB];
        let logits = sessions.step(&new).unwrap().values().to_vec();
        for (index, text) in texts.iter_mut().enumerate() {
            text.push(new[index]);
            let expected = whole(&model, text);
            let row = &expected[(text.len() - 1) * VOCAB..];
            assert_near(
                &format!("{step}, {index}"),
                &logits[index * VOCAB..][..VOCAB],
                row,
            );
        }
    }
}
