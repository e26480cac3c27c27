//! Token by token: the states are all that a session remembers.

use super::claim::tolerance;
use super::*;
use attn::model;

model! {
    struct M<vocab = 7, d = 4>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        param start: [d] = normal(0.5);
        let mut x = embedding::<vocab, d>(tokens);
        repeat 2 {
            let steps = scan seq {
                state h: [batch, d] = start;
                state count: [batch] = 1;
                let gate = sigmoid(linear::<d>(x) + linear::<d>(h));
                h = gate * h + (1 - gate) * x;
                count = count + 1;
                yield h / sqrt(count);
            };
            x += steps;
        }
        linear::<vocab>(layer_norm(x))
    }
}

/// The tokens of two sequences.
const TOKENS: [[usize; 5]; 2] = [[3, 1, 6, 1, 2], [0, 6, 6, 5, 4]];

#[test]
fn a_session_computes_what_the_forward_pass_does() {
    let mut model = Cpu::default().build_module::<M, f64>();
    scatter(&mut model);
    let whole = |tokens: &[usize]| {
        let tokens: Tensor<(usize, usize), usize, Cpu> =
            Cpu::default().tensor_from_vec(tokens.to_vec(), (1, tokens.len()));
        let results = model.forward(tokens).as_vec();
        results[results.len() - 7..].to_vec()
    };
    let assert_near = |found: &[f64], expected: &[f64]| {
        assert!(
            found
                .iter()
                .zip(expected)
                .all(|(a, b)| (a - b).abs() < tolerance::<f64>())
        );
    };
    let mut alone = model.session(5).unwrap();
    let mut at_once = model.session(5).unwrap();
    let mut two = model.sessions(2, 5).unwrap();
    at_once.prefill(&TOKENS[0][..3]).unwrap();
    for place in 0..5 {
        let [first, second] = TOKENS.map(|tokens| whole(&tokens[..=place]));
        assert_near(alone.step(TOKENS[0][place]).unwrap(), &first);
        match place {
            0 | 1 => {}
            2 => assert_near(at_once.results(), &first),
            _ => assert_near(at_once.step(TOKENS[0][place]).unwrap(), &first),
        }
        let results = two.step(&TOKENS.map(|tokens| tokens[place])).unwrap();
        assert_near(results.row(0), &first);
        assert_near(results.row(1), &second);
    }
    alone.reset();
    assert_near(alone.step(TOKENS[1][0]).unwrap(), &whole(&TOKENS[1][..1]));
}
