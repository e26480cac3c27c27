//! Scans that keep all steps, scans that keep the states before segments, and attention at the steps of a scan.

use super::*;
use support::cases::tensor;

support::attends_at_steps!(exact);

exact! {
    a_norm_a_dropout_and_a_loop {
        struct M<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            scan seq {
                state h: [batch, d] = 0.0;
                let mut z = dropout::<0.2>(layer_norm(h + x));
                repeat 2 { z = tanh(linear::<d>(rms_norm(z))); }
                h = 0.5 * h + dropout::<0.1>(z);
                yield h * x;
            }
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<8>)));

    segments_with_a_norm_a_dropout_and_a_loop {
        struct M<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            scan seq, keep = sqrt {
                state h: [batch, d] = 0.0;
                let mut z = dropout::<0.2>(layer_norm(h + x));
                repeat 2 { z = tanh(linear::<d>(rms_norm(z))); }
                h = 0.5 * h + dropout::<0.1>(z);
                yield h * x;
            }
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<8>)));

    a_gru_in_segments {
        struct M<d = 3, hidden = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, hidden] {
            scan seq, keep = sqrt {
                state h: [batch, hidden] = 0.0;
                let (xr, xz, xn) = split(linear::<{ 3 * hidden }>(x));
                let (hr, hz, hn) = split(linear::<{ 3 * hidden }>(h));
                let z = sigmoid(xz + hz);
                h = (1 - z) * tanh(xn + sigmoid(xr + hr) * hn) + z * h;
                yield h;
            }
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<3>)));

    shares_of_rows {
        struct M<d = 64>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let y = scan seq {
                state h: [batch, d] = 0.0;
                let (hr, hn) = split(linear::<{ 2 * d }>(h));
                h = tanh(linear::<d>(sigmoid(hr) * x) + hn);
                yield h;
            };
            scan seq, keep = sqrt {
                state h: [batch, d] = 0.0;
                h = tanh(linear::<d>(y + linear::<d>(h))) * h + x;
                yield h;
            }
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<64>)));

    two_states_backwards_in_segments {
        struct M<d = 3>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let y = linear::<d>(x);
            let (a, last) = scan seq, reverse = true, keep = sqrt {
                state h: [batch, d] = 0.0;
                state c: [batch, d] = 1;
                c = sigmoid(linear::<d>(h)) * c + y;
                h = tanh(c) * x;
                yield layer_norm(h);
                c
            };
            a * x + last
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<3>)));
}

/// 1,024 steps keep 32 states, and a segment has 32 steps.
#[test]
fn segments_take_the_memory_of_the_square_root_of_the_steps() {
    macro_rules! model {
        ($name:ident: $($keep:tt)*) => {
            attn::model! {
                struct $name<d = 16>;
                fn forward(x: [batch, d], steps: [seq]) -> [batch, d] {
                    scan seq $($keep)* {
                        state h: [batch, d] = x;
                        h = tanh(linear::<d>(h) + steps);
                        h
                    }
                }
            }
        };
    }
    model!(All:);
    model!(Sqrt: , keep = sqrt);
    let [all, sqrt] = [
        All::activation_bytes(8, 1024),
        Sqrt::activation_bytes(8, 1024),
    ];
    assert!(10 * sqrt < all, "{sqrt} of {all} bytes");
}
