//! Sessions with `rope`.

use super::*;
use support::close::assert_close;

model! {
    struct Rotated<vocab = 5, d = 8, heads = 2, width = 4>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat 2 {
            let q = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<8>(x));
            let k = rope::<dims = 2, interleaved = true>(linear::<4>(x));
            let y = attend::<mask = sliding_window(3)>(rope::<dims = 2, interleaved = true>(q), k, k);
            x += rearrange::<[batch, seq, (heads, width)]>(y + rope::<heads>(q));
        }
        linear::<vocab>(rope::<seq, theta = 100.0>(x))
    }
}

#[test]
fn a_session_rotates_by_the_position_of_its_token() {
    let mut model = Cpu::default().build_module::<Rotated, f64>();
    scatter(&mut model);
    let tokens = [3, 1, 4, 1, 2, 0, 4];
    let whole: Tensor<Rank3<1, 7, 5>, f64, Cpu> = model.forward(Cpu::default().tensor([tokens]));
    let mut session = model.session(7).unwrap();
    for (position, token) in tokens.into_iter().enumerate() {
        let logits = session.prefill(&[token]).unwrap();
        assert_close(position, logits, &whole.array()[0][position], 1e-13);
    }
    // Several sequences at different positions.
    let mut sessions = model.sessions(2, 7).unwrap();
    sessions.prefill(&[&tokens[..3], &tokens[..5]]).unwrap();
    let logits = sessions.step(&[tokens[3], tokens[5]]).unwrap();
    for (row, position) in [(0, 3), (1, 5)] {
        assert_close(
            position,
            logits.row(row),
            &whole.array()[0][position],
            1e-13,
        );
    }
}

model! {
    /// A text of more than five tokens is a long one.
    struct Long<vocab = 5, d = 8, short = [1.0, 1.5], long = [2.0, 6.0]>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        let q = rope::<dims = 4, scaling = longrope(short, long, factor = 4, original_max_len = 5)>(x);
        linear::<vocab>(attend::<mask = causal>(q, q, x))
    }
}

/// The capacity says whether a text is a long one, from its first token on.
#[test]
fn a_session_has_the_rotations_of_its_capacity() {
    let mut model = Cpu::default().build_module::<Long, f64>();
    scatter(&mut model);
    let tokens = [3, 1, 4, 1, 2, 0, 4];
    for len in [5, 7] {
        let ids = Cpu::default().tensor_from_vec(tokens[..len].to_vec(), (1, len));
        let whole = model.forward(ids).as_vec();
        let mut session = model.session(len).unwrap();
        for (position, token) in tokens[..len].iter().enumerate() {
            let logits = session.prefill(&[*token]).unwrap();
            assert_close(position, logits, &whole[position * 5..][..5], 1e-13);
        }
        // A fork has the same capacity.
        let mut session = model.session(len).unwrap();
        session.prefill(&tokens[..len - 1]).unwrap();
        let logits = session.fork().step(tokens[len - 1]).unwrap().to_vec();
        assert_close(len, &logits, &whole[(len - 1) * 5..], 1e-13);
    }
}
