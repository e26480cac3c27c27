//! `pad`, `shift` and `windows`.

use super::checked;

checked! {
    padded_axes {
        struct M<d = 4, rows = 3, more = 6>;
        fn forward(x: [batch, rows, d]) -> [batch, more, 5] {
            let y = pad::<rows, before = 1, after = 2, value = -0.5, to = more>(linear::<d>(x));
            pad::<after = 1>(gelu(y))
        }
    } (batch: 2 [0, 1]) (x: tensor::<_, E>("x", (batch, Const::<3>, Const::<4>))) reads x;

    token_shift {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            param mix: [d] = normal(0.5);
            let y = linear::<d>(x);
            mix * shift::<seq, 1>(y) + (1 - mix) * y + shift::<seq, -2>(x) + shift::<by = 3>(x)
        }
    } (batch: 2 [0, 1], seq: 4 [0, 1, 2]) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;

    windows_of_constants {
        struct M<d = 5, len = 7, kernel = 3>;
        fn forward(x: [batch, len, d]) -> [batch, 2, 2, d] {
            let y = windows::<len, kernel, 2, to = n>(linear::<d>(x));
            windows::<n, size = 2>(y[kernel = 1])
        }
    } (batch: 2 [0, 1]) (x: tensor::<_, E>("x", (batch, Const::<7>, Const::<5>))) reads x;

    causal_convolution {
        struct M<d = 3, out = 4, kernel = 3>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, out] {
            let before = pad::<seq, before = 2, to = longer>(layer_norm(x));
            let parts = windows::<longer, size = kernel, to = seq>(before);
            linear::<out>(rearrange::<[batch, seq, (kernel, d)]>(parts))
        }
    } (batch: 2 [0, 1], seq: 4 [0, 1, 2]) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;

    strided_windows {
        struct M<d = 3, kernel = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, n, d] {
            let parts = windows::<seq, kernel, step = 2, to = n>(linear::<d>(x));
            linear::<d, name = mix>(rearrange::<[batch, n, (kernel, d)]>(parts)) + parts[kernel = 1]
        }
    } (batch: 2 [0, 1], seq: 8 [4, 5]) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;
}
