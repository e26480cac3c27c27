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
