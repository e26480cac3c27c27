//! Sessions with `attend`.

use super::*;
use support::close::assert_close;

model! {
    struct InOrder<vocab = 5, d = 8, heads = 2, width = 4>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        let q = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<8>(x));
        let k = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(tanh(x));
        let v = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<8>(x));
        let y = attend::<mask = causal, position = rope>(q, k, v);
        linear::<vocab>(rearrange::<[batch, seq, (heads, width)]>(y) + x)
    }
}

model! {
    struct HeadsFirst<vocab = 5, d = 8, heads = 2, width = 4>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        let q = rearrange::<[batch, seq, (heads, width)] -> [batch, heads, seq, width]>(linear::<8>(x));
        let k = linear::<4>(x);
        let y = attend::<mask = sliding_window(3)>(q, k, k);
        linear::<vocab>(rearrange::<[batch, seq, (heads, width)]>(y) + x)
    }
}

macro_rules! goes_on {
    ($($name:ident: $Model:ident;)*) => {$(
        #[test]
        fn $name() {
            let mut model = Cpu::default().build_module::<$Model, f64>();
            scatter(&mut model);
            let tokens = [3, 1, 4, 1, 2, 0, 4];
            let whole: Tensor<Rank3<1, 7, 5>, f64, Cpu> = model.forward(Cpu::default().tensor([tokens]));
            let mut session = model.session(7).unwrap();
            for (position, token) in tokens.into_iter().enumerate() {
                let logits = session.prefill(&[token]).unwrap();
                assert_close(position, logits, &whole.array()[0][position], 1e-13);
            }
        }
    )*};
}

goes_on! {
    a_session_goes_on_with_an_attend: InOrder;
    a_session_goes_on_with_heads_before_the_sequence: HeadsFirst;
}
