//! Bounds on the memory of a model that nothing meets, or that are no bounds.

use attn::model;

const BATCH: usize = 4;

model! {
    struct TooLittle<d = 64, memory = 100 KiB for (batch = BATCH, seq = 32)>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let mut x = x;
        repeat 4 {
            x += attention::<heads = 4>(layer_norm(x));
            x += feed_forward::<{ 4 * d }>(layer_norm(x));
        }
        x
    }
}

model! {
    struct Unit<d = 8, memory = 64 Megabytes for (batch = 8, seq = 32)>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] { linear::<d>(x) }
}

model! {
    struct WithoutLengths<d = 8, memory = 64 MiB>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] { linear::<d>(x) }
}

model! {
    struct OtherAxis<d = 8, memory = 64 MiB for (batch = 8, tokens = 32)>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] { linear::<d>(x) }
}

model! {
    struct MissingAxis<d = 8, memory = 64 MiB for (seq = 32)>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] { linear::<d>(x) }
}

model! {
    struct SizesOfFunction<d = 8>;
    fn forward<hidden = 16>(x: [batch, seq, d]) -> [batch, seq, d] { linear::<d>(x) }
}

fn main() {
    let _ = TooLittle::activation_bytes(1, 2);
}
