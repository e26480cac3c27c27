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

model! {
    /// An encoder whose last states start the decoder (Sutskever et al. 2014).
    struct Seq2Seq<vocab = 7, d = 4>;

    fn encode(source: ids[batch, src]) -> ([batch, d], [batch, d]) {
        let x = embedding::<vocab, d, name = source>(source);
        scan src, reverse = true {
            state h: [batch, d] = 0.0;
            state c: [batch, d] = 0.0;
            let (i, f, g, o) = split(linear::<{ 4 * d }>(x) + linear::<{ 4 * d }>(h));
            c = sigmoid(f) * c + sigmoid(i) * tanh(g);
            h = sigmoid(o) * tanh(c);
            (h, c)
        }
    }

    fn decode(tokens: ids[batch, seq], hidden: [batch, d], cell: [batch, d]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d, name = target>(tokens);
        let y = scan seq {
            state h: [batch, d] = hidden;
            state c: [batch, d] = cell;
            let (i, f, g, o) = split(linear::<{ 4 * d }>(x) + linear::<{ 4 * d }>(h));
            c = sigmoid(f) * c + sigmoid(i) * tanh(g);
            h = sigmoid(o) * tanh(c);
            yield h;
        };
        linear::<vocab>(y)
    }

    fn forward(source: ids[batch, src], tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let (h, c) = encode(source);
        decode(tokens, h, c)
    }
}

#[test]
fn a_session_begins_with_the_last_states_of_an_encoder() {
    let mut model = Cpu::default().build_module::<Seq2Seq, f64>();
    scatter(&mut model);
    let ids = |rows: &[&[usize]]| {
        let shape = (rows.len(), rows[0].len());
        Cpu::default().tensor_from_vec(rows.concat(), shape)
    };
    let source = ids(&[&[1, 2, 6], &[5, 0, 3]]);
    let tokens = TOKENS;
    let whole = model.forward((source.clone(), ids(&[&tokens[0], &tokens[1]])));
    let whole = whole.as_vec();
    let assert_near = |found: &[f64], sequence: usize, place: usize| {
        let first = (sequence * 5 + place) * 7;
        let expected = &whole[first..first + 7];
        let mut pairs = found.iter().zip(expected);
        assert!(pairs.all(|(a, b)| (a - b).abs() < tolerance::<f64>()));
    };
    let (h, c) = model.encode(source);
    let mut two = model.decode_sessions(h, c, 5).unwrap();
    // Twice: behind a reset, the states begin there again.
    for _ in 0..2 {
        two.prefill(&[&tokens[0][..2], &tokens[1][..1]]).unwrap();
        let results = two.prefill(&[&tokens[0][2..], &tokens[1][1..]]).unwrap();
        assert_near(results.row(0), 0, 4);
        assert_near(results.row(1), 1, 4);
        (0..2).for_each(|sequence| two.reset(sequence));
    }
}
