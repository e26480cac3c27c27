//! Both forms of a scan agree, in both element types, and gradients are those of central differences.

use super::claim::{self, agree, tolerance};
use super::*;
use attn::{Backend, Element, model};
use support::compare::assert_same;

agree! {
    gru {
        struct M<d = 3, hidden = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, hidden] {
            scan seq {
                state h: [batch, hidden] = 0.0;
                let (xr, xz, xn) = split(linear::<{ 3 * hidden }>(x));
                let (hr, hz, hn) = split(linear::<{ 3 * hidden }>(h));
                let z = sigmoid(xz + hz);
                h = (1 - z) * tanh(xn + sigmoid(xr + hr) * hn) + z * h;
                yield h;
            }
        }
    } (batch: 2, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;

    backwards_from_a_learned_state {
        struct M<d = 3>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            param start: [d] = normal(0.5);
            param decay: [d] = normal(0.5);
            let y = scan seq, reverse = true {
                state h: [batch, d] = start;
                h = h * sigmoid(decay) + layer_norm(x);
                yield rms_norm(h) * x;
            };
            y + x
        }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;

    two_results_and_the_last_states {
        struct M<d = 3>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let (a, b, first, second) = scan seq {
                state p: [batch, d] = 0.0;
                state q: [batch, d] = 1;
                let next = tanh(p + 0.5 * q + x);
                q = q * next - p;
                p = next;
                yield (q, p * x);
                (q, p)
            };
            a * b + first - second
        }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;

    products_by_name_of_inputs_and_of_states {
        struct M<d = 3, e = 2>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, e] {
            param w: [d, e] = normal(0.5);
            param u: [e] = normal(0.5);
            scan seq {
                state h: [batch, e] = 0.5;
                h = tanh(einsum::<[batch, e]>(sin(x), w) + einsum::<[batch, e]>(einsum::<[batch]>(h, u), u));
                yield h;
            }
        }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;

    along_the_first_axis {
        struct M<d = 3>;
        fn forward(x: [seq, d]) -> [seq, d] {
            scan seq {
                state h: [d] = 0.5;
                h = tanh(linear::<d>(concat(h, x)));
                yield h * x;
            }
        }
    } (seq: 4) (x: tensor::<_, E>("x", (seq, Const::<3>))) reads x;

    along_an_axis_of_constant_size {
        struct M<steps = 3, d = 2>;
        fn forward(x: [batch, d, steps]) -> [batch, d, steps] {
            scan steps {
                state h: [batch, d] = 0.0;
                h = linear::<d>(h) + x;
                yield sin(h);
            }
        }
    } (batch: 2) (x: tensor::<_, E>("x", (batch, Const::<2>, Const::<3>))) reads x;

    linear_attention {
        struct M<d = 3, key = 2, value = 3>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, value] {
            let q = linear::<key>(x);
            let k = linear::<key>(x);
            scan seq {
                state s: [batch, key, value] = 0.0;
                state z: [batch, key] = 0.0;
                let k = if k > 0 { k + 1 } else { exp(k) };
                let q = if q > 0 { q + 1 } else { exp(q) };
                s = s + einsum::<[batch, key, value]>(k, linear::<value>(x));
                z = z + k;
                yield einsum::<[batch, value]>(q, s) / einsum::<[batch]>(q, z);
            }
        }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;

    selective_state_space {
        struct M<d = 3, n = 2>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            param a: [d, n] = normal(0.5);
            param skip: [d] = ones;
            scan seq {
                state h: [batch, d, n] = 0.0;
                let delta = ln(1 + exp(linear::<d>(x)));
                let decay = exp(-einsum::<[batch, d, n]>(delta, exp(a)));
                h = decay * h + einsum::<[batch, d, n]>(delta * x, linear::<n, bias = false>(x));
                yield einsum::<[batch, d]>(h, linear::<n, bias = false>(x)) + skip * x;
            }
        }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;

    a_scan_in_a_repeat {
        struct M<d = 2>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let mut x = x;
            repeat 2 {
                let steps = scan seq {
                    state h: [batch, d] = 0.0;
                    h = tanh(linear::<d>(layer_norm(x + h)));
                    yield h * x;
                };
                x += steps;
            }
            x
        }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<2>))) reads x;

    a_repeat_in_a_scan {
        struct M<d = 3>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            scan seq {
                state h: [batch, d] = 0.0;
                let mut y = x;
                repeat 2 {
                    y = tanh(linear::<d>(layer_norm(y + h)));
                }
                h = y;
                yield h * x;
            }
        }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;

    a_scan_in_a_repeat_and_a_repeat_in_a_scan {
        struct M<d = 2>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let mut x = x;
            repeat 2 {
                let steps = scan seq {
                    state h: [batch, d] = 0.0;
                    let mut y = x;
                    repeat 2, name = inner {
                        y = tanh(linear::<d>(layer_norm(y + h)));
                    }
                    h = y;
                    yield h * x;
                };
                x += steps;
            }
            x
        }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<2>))) reads x;

    a_block_in_a_scan {
        struct M<d = 3>;
        block cell(x: [.., d], h: [.., d]) -> [.., d] {
            let gate = sigmoid(linear::<d>(x) + linear::<d, bias = false>(h));
            gate * h + (1 - gate) * x
        }
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let forwards = scan seq {
                state h: [batch, d] = 0.0;
                h = cell(x, h);
                yield h;
            };
            let backwards = scan seq, reverse = true {
                state h: [batch, d] = 0.0;
                h = cell(x, h);
                yield h;
            };
            forwards * backwards
        }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;

    a_state_that_no_step_reads {
        struct M<d = 3>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let y = 2 * x;
            scan seq {
                state h: [batch, d] = 0.0;
                h = y;
                yield x * h + feed_forward::<4>(x) * softmax(h);
            }
        }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;
}
