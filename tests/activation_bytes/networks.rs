//! Whole networks, whose peak is in the middle of a pass.

use super::*;

const WIDTH: usize = 8;

exact! {
    gpt {
        struct M<vocab = 11, d_model = WIDTH, layers = 3>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let mut x = dropout::<0.1>(embedding::<vocab, d_model>(tokens) + learned_position::<16, d_model>(tokens));
            repeat layers {
                x += attention::<heads = 2, mask = causal, dropout = 0.1>(layer_norm(x));
                x += dropout::<0.1>(feed_forward::<{ 4 * d_model }>(layer_norm(x)));
            }
            linear::<vocab>(layer_norm(x))
        }
    } (batch: 2, seq: 5) (tokens: ids((batch, seq), 11));

    adapted {
        struct M<vocab = 11, d_model = WIDTH, layers = 2, lora(rank = 2, dropout = 0.25, on = ["q_proj", "v_proj", "up_proj", "linear"])>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let mut x = embedding::<vocab, d_model>(tokens);
            repeat layers {
                x += attention::<heads = 2, mask = causal, dropout = 0.1>(layer_norm(x));
                x += feed_forward::<12, activation = swiglu>(layer_norm(x));
            }
            linear::<vocab>(layer_norm(x))
        }
    } (batch: 2, seq: 5) (tokens: ids((batch, seq), 11));

    tied_llama {
        struct M<vocab = 300, d_model = 8, layers = 2>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let mut x = embedding::<vocab, d_model>(tokens);
            repeat layers {
                x += attention::<heads = 4, kv_heads = 2, mask = causal, position = rope, bias = false>(rms_norm(x));
                x += feed_forward::<20, activation = swiglu>(rms_norm(x));
            }
            linear::<tied = embedding>(rms_norm(x))
        }
    } (batch: 2, seq: 5) (tokens: ids((batch, seq), 300));

    encoder_and_decoder {
        struct M<vocab = 7, d_model = 8>;
        fn forward(source: ids[batch, s], target: ids[batch, t], lens: lens[batch]) -> [batch, t, vocab] {
            let mut memory = embedding::<vocab, d_model>(source) * 2.0 + sinusoidal_position::<d_model>(source);
            repeat 2, name = encoder {
                memory = layer_norm(memory + attention::<2, mask = padding>(memory, padding = lens));
                memory = layer_norm(memory + feed_forward::<5, activation = relu>(memory));
            }
            let mut y = embedding::<tied = embedding>(target) * 2.0 + sinusoidal_position::<d_model>(target);
            repeat 3, name = decoder {
                y = layer_norm(y + attention::<2, mask = causal>(y));
                y = layer_norm(y + attention::<2, mask = padding, name = cross>(y, context = memory, padding = lens));
                y = layer_norm(y + feed_forward::<5, activation = relu>(y));
            }
            linear::<tied = embedding>(y)
        }
    } (batch: 2, s: 5, t: 3) (source: ids((batch, s), 7), ids((batch, t), 7), lens_up_to(batch, s));

    shared_rounds {
        struct M<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let mut x = x;
            repeat 5, share = true { x = dropout::<0.5>(gelu(linear::<d>(x) + x)); }
            repeat 1, name = once { x = tanh(linear::<d>(x)); }
            x
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<8>)));

    several_results {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d], y: [batch, seq, d])
            -> ([batch, seq, d], [batch, d], [batch, seq, d], [batch, seq, d])
        {
            let a = linear::<d>(x) + y;
            let b = softmax(a);
            (b, mean_pool(a), b, y)
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<6>)), tensor::<_, E>("y", (batch, seq, Const::<6>)));

    dropout_in_two_results {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d]) -> ([batch, seq, d], [batch, seq, d]) {
            let y = dropout::<0.5>(x);
            (dropout::<0.5>(y) + gelu(y), dropout::<0.5>(x))
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<6>)));

    unread_values {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d]) -> [batch, d] {
            let _y = feed_forward::<30>(layer_norm(x));
            let mut x = tanh(x);
            repeat 2 {
                let _z = softmax(linear::<25>(x) + 1);
                x = x * 2;
            }
            mean_pool(x)
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<6>)));

    widened_in_steps {
        struct M;
        fn forward(x: [1, b, 1, 4], y: [a, 1, c, 1]) -> [a, b, c, 4] { (tanh(x) + gelu(y)) * 2 }
    } (b: 2, a: 2, c: 3) (x: tensor::<_, E>("x", (Const::<1>, b, Const::<1>, Const::<4>)), tensor::<_, E>("y", (a, Const::<1>, c, Const::<1>)));

    widened_for_nothing {
        struct M;
        fn forward(x: [a, b, c, 4], y: [1, 1, 1, 4]) -> [a, b, c, 4] {
            let _z = x + tanh(y);
            x
        }
    } (a: 2, b: 2, c: 3) (x: tensor::<_, E>("x", (a, b, c, Const::<4>)), tensor::<_, E>("y", (Const::<1>, Const::<1>, Const::<1>, Const::<4>)));

    names_of_the_emitted_code {
        struct M<d = 8>;
        fn forward(x: [batch, seq, d]) -> ([batch, seq, d], [batch, seq, d]) {
            let mut next_1 = gelu(x);
            let mut next_0 = tanh(next_1);
            let result_0 = softmax(next_0);
            repeat 3 {
                let result_1 = linear::<d>(next_0);
                next_0 = next_1;
                next_1 = tanh(result_1 * result_1);
            }
            (next_0 * result_0, next_1)
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<8>)));

    a_gru {
        struct M<d = 3, hidden = 8>;
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
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<3>)));
}
