//! Every operation: what a model computes, and its gradients, against its composed form, in both types of elements.

use super::*;
use crate::layers::compare::assert_same;
use attn::{Backend, Element, model};

/// What both forms differ by: sums of up to 60 terms of order 1, on some six levels, which are rounded in another order:
/// √360 ε / 2 = 10 ε, and ten times that for gradients, whose terms are larger.
pub(super) fn tolerance<E: Element>() -> f64 {
    100.0 * E::epsilon().into()
}

/// `name { the model } (inputs: the first is traced)`
macro_rules! agree {
    ($($name:ident { $($model:tt)* } ($first:ident: $x:expr $(, $other:expr)*) $(reads $input:ident)?;)*) => {$(
        #[test]
        fn $name() {
            model! { $($model)* }

            fn check<E: Element>()
            where
                Cpu: Backend<E>,
            {
                let mut model = Cpu::default().build_module::<M, E>();
                scatter(&mut model);
                let $first = $x;
                let outcome = |y| {
                    let ran: Backpropagated<E> = backpropagate(y);
                    $(let ran = ran.input("x", &$input);)?
                    let outcome: Outcome = ran.parameters(&model);
                    outcome
                };
                let fused = outcome(model.forward(agree!(@input $first.clone().leaky_traced() $(, $other)*)));
                let composed = outcome(model.composed().forward(agree!(@input $first.clone().leaky_traced() $(, $other)*)));
                assert_same(stringify!($name), &fused, &composed, tolerance::<E>());
            }
            check::<f32>();
            check::<f64>();
        }
    )*};
    (@input $first:expr) => { $first };
    (@input $($input:expr),+) => { ($($input),+) };
}
pub(super) use agree;

agree! {
    embeddings {
        struct M<vocab = 7, d = 6>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
            embedding::<vocab, d>(tokens) + learned_position::<9, d>(tokens) - sinusoidal_position::<d>(tokens)
        }
    } (tokens: ids((2, 5), 7));

    embeddings_of_one_sequence {
        struct M<vocab = 7, d = 5>;
        fn forward(tokens: ids[seq]) -> [seq, d] {
            embedding::<vocab, d>(tokens) * learned_position::<9, d>(tokens) + sinusoidal_position::<d>(tokens)
        }
    } (tokens: ids((4,), 7));

    tied {
        struct M<vocab = 7, d = 6>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let x = embedding::<vocab, d, name = table>(tokens);
            linear::<tied = table>(gelu(x) + embedding::<tied = table>(tokens))
        }
    } (tokens: ids((2, 5), 7));

    linears {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, 4] {
            linear::<4, bias = false>(linear::<9>(x))
        }
    } (x: tensor::<_, E>("x", (2, 3, Const::<6>))) reads x;

    linear_of_four_axes {
        struct M<d = 6>;
        fn forward(x: [a, b, c, d]) -> [a, b, c, 4] { linear::<4>(x) }
    } (x: tensor::<_, E>("x", (2, 1, 3, Const::<6>))) reads x;

    feed_forwards {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let a = feed_forward::<24, activation = gelu_tanh>(x);
            let b = feed_forward::<hidden = 16, activation = swiglu>(x) + feed_forward::<5, activation = geglu>(x);
            a * b + feed_forward::<7, activation = relu_squared>(x)
        }
    } (x: tensor::<_, E>("x", (2, 3, Const::<6>))) reads x;

    norms {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] { layer_norm(x) * rms_norm(x) }
    } (x: tensor::<_, E>("x", (2, 3, Const::<6>))) reads x;

    activations {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            gelu(x) + gelu_tanh(x) - relu(x) * relu_squared(x) + silu(x) * sigmoid(x) - tanh(x)
        }
    } (x: tensor::<_, E>("x", (2, 3, Const::<6>))) reads x;

    numbers {
        struct M<d = 6>;
        fn forward(x: [seq, d]) -> [seq, d] {
            let y = 2 * x - 1 / 4.0;
            (1 - y) * { 0.5 * 3.0 } + -x / d
        }
    } (x: tensor::<_, E>("x", (3, Const::<6>))) reads x;

    softmax_of_rows {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] { softmax(3 * x) * x }
    } (x: tensor::<_, E>("x", (2, 3, Const::<6>))) reads x;

    side_by_side {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, 17] { concat(x, linear::<5>(x), x) }
    } (x: tensor::<_, E>("x", (2, 3, Const::<6>))) reads x;

    pooled {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d], lens: lens[batch]) -> [batch, d] { mean_pool(x, lens) + 2 * mean_pool(x) }
    } (x: tensor::<_, E>("x", (3, 4, Const::<6>)), lens([4, 0, 1])) reads x;

    broadcast {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d], y: [1, seq, 1]) -> [batch, seq, d] { (x + y) * y - y }
    } (x: tensor::<_, E>("x", (2, 3, Const::<6>)), tensor::<_, E>("y", (Const::<1>, 3, Const::<1>))) reads x;

    attentions {
        struct M<d = 8>;
        fn forward(x: [batch, seq, d], lens: lens[batch]) -> [batch, seq, d] {
            let x = x + attention::<2, d, mask = causal, position = alibi>(x);
            let x = x + attention::<heads = 4, kv_heads = 2, mask = padding, name = padded>(x, padding = lens);
            x + attention::<2>(x) {
                param slope: [heads] = ones;
                fn score(score, h, q_idx, kv_idx) { score - slope[h] * abs(q_idx - kv_idx) as f32 }
            }
        }
    } (x: tensor::<_, E>("x", (2, 5, Const::<8>)), lens([5, 2])) reads x;

    across {
        struct M<d = 8>;
        fn forward(x: [batch, q, d], y: [batch, k, 6], lens: lens[batch]) -> [batch, q, d] {
            x + attention::<2, mask = padding>(x, context = y, padding = lens)
        }
    } (x: tensor::<_, E>("x", (2, 5, Const::<8>)), tensor::<_, E>("y", (2, 3, Const::<6>)), lens([3, 1])) reads x;

    documents {
        struct M<d = 8>;
        fn forward(x: [batch, seq, d], ids: ids[batch, seq]) -> [batch, seq, d] {
            let a = attention::<2, mask = document & causal>(x, document = ids);
            a + attention::<2>(x, kind = ids) {
                data kind: ids[batch, kv_len];
                fn mask(b, kv_idx) { kind[b, kv_idx] != 2 }
            }
        }
    } (x: tensor::<_, E>("x", (2, 5, Const::<8>)), ids((2, 5), 3)) reads x;

    rounds {
        struct M<d = 6, n = 3>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let mut x = x;
            let mut y = gelu(x);
            repeat n, name = outer {
                repeat 2, share = true, name = inner {
                    x += linear::<d>(y) / 4;
                }
                y = layer_norm(x) * y;
            }
            x - y
        }
    } (x: tensor::<_, E>("x", (2, 3, Const::<6>))) reads x;
}

/// dfdx cannot sum what is empty, so there is no gradient to compare.
#[test]
fn an_empty_batch() {
    model! {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d]) -> [batch, d] {
            let x = x + attention::<2, d>(layer_norm(x));
            mean_pool(x + feed_forward::<8>(rms_norm(x)))
        }
    }
    let model = Cpu::default().build_module::<M, f32>();
    for axes in [(0, 3), (2, 0)] {
        let y = model.forward(tensor::<_, f32>("x", (axes.0, axes.1, Const::<6>)));
        assert_eq!(y.shape().concrete(), [axes.0, 6]);
        assert!(tensors::flat(&y).iter().all(|y| *y == 0.0));
    }
}
