use super::{GPT, lower};
use crate::model::emit::picture::svg;

const ENCODER_DECODER: &str = "
    struct Transformer<vocab = 11, d_model = 10, heads = 2, layers = 2, hidden = 7>;

    fn forward(source: ids[batch, s], target: ids[batch, t], lens: lens[batch]) -> [batch, t, vocab] {
        let mut memory = embedding::<vocab, d_model>(source) * { 3.0 } + sinusoidal_position::<d_model>(source);
        repeat layers, name = encoder {
            memory = layer_norm(memory + attention::<heads, mask = padding>(memory, padding = lens));
            memory = layer_norm(memory + feed_forward::<hidden, activation = relu>(memory));
        }
        let mut y = embedding::<tied = embedding>(target) * { 3.0 } + sinusoidal_position::<d_model>(target);
        repeat layers, name = decoder {
            y = layer_norm(y + attention::<heads, mask = causal>(y));
            y = layer_norm(y + attention::<heads, mask = padding, name = cross>(y, context = memory, padding = lens));
            y = layer_norm(y + feed_forward::<hidden, activation = relu>(y));
        }
        linear::<tied = embedding>(y)
    }";

const NESTED: &str = "
    struct Nested<d = 6>;

    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let outside = tanh(x);
        let mut x = x;
        repeat 2, name = outer {
            let start = rms_norm(x);
            repeat 3, name = inner {
                x = x + feed_forward::<7>(layer_norm(x + start)) * outside;
            }
            repeat 2, share = true, name = shared {
                x = x + linear::<d>(start);
            }
        }
        softmax(x)
    }";

const SWAPPED: &str = "
    struct Swapped<d = 6>;

    fn forward(x: [batch, seq, d], y: [batch, seq, d]) -> ([batch, seq, d], [batch, seq, d], [batch, seq, d]) {
        let mut a = tanh(x);
        let mut b = gelu(y);
        let kept = a + a;
        repeat 3 {
            let old = a;
            a = b;
            b = linear::<d>(old);
        }
        repeat 2, name = again {
            a = kept;
            b = b * a;
        }
        (a * 2 - b, a, y)
    }";

const TINY: &str = "struct Tiny<d = 4>; fn forward(x: [batch, d]) -> [batch, d] { linear::<d>(x) }";

#[test]
fn dump() {
    for (name, source) in [
        ("gpt", GPT),
        ("ed", ENCODER_DECODER),
        ("nested", NESTED),
        ("swapped", SWAPPED),
        ("tiny", TINY),
    ] {
        std::fs::write(format!("/tmp/svg_{name}.svg"), svg(&lower(source))).unwrap();
    }
}
