//! Models with `rope`.

/// As [`operations!`](crate::operations): rotations by places and by given positions.
#[macro_export]
macro_rules! ropes {
    ($check:ident) => {
        $check! {
            ropes_of_tokens {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] { x * rope(x) + rope::<theta = 7.0>(x * x) }
            } (batch: 3, seq: 5) (x: tensor("x", (batch, seq, Const::<6>))) reads x;

            ropes_of_heads {
                struct M<d = 12, heads = 2, width = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, heads, width] {
                    let q = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<12>(x));
                    rope::<seq, dims = 4, interleaved = true>(q)
                }
            } (batch: 2, seq: 7) (x: tensor("x", (batch, seq, Const::<12>))) reads x;

            ropes_of_heads_before_tokens {
                struct M<d = 12, heads = 2, width = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, heads, seq, width] {
                    let q = rearrange::<[batch, seq, (heads, width)] -> [batch, heads, seq, width]>(x);
                    q * rope::<scaling = yarn(factor = 4.0, original_max_len = 3)>(q)
                }
            } (batch: 2, seq: 7) (x: tensor("x", (batch, seq, Const::<12>))) reads x;

            ropes_of_the_length {
                struct M<d = 4>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    rope::<seq, scaling = dynamic_ntk(factor = 2.0, original_max_len = 3)>(x)
                }
            } (batch: 2, seq: 5) (x: tensor("x", (batch, seq, Const::<4>))) reads x;

            ropes_of_long_sequences {
                struct M<d = 4>;
                fn forward(x: [batch, seq, d], at: ids[seq]) -> [batch, seq, d] {
                    let y = rope::<seq, scaling = longrope([1.0, 1.5], [2.0, 4.0], factor = 8, original_max_len = 3)>(x);
                    let z = rope::<seq, scaling = longrope([1.0, 1.5], [2.0, 4.0], factor = 8, original_max_len = 5)>(x);
                    rope::<scaling = longrope([1.0, 1.5], [2.0, 4.0], factor = 8, original_max_len = 7)>(y * z, at)
                }
            } (batch: 2, seq: 5) (x: tensor("x", (batch, seq, Const::<4>)), ids((seq,), 9)) reads x;

            ropes_along_a_constant {
                struct M<places = 5, d = 4>;
                fn forward(x: [batch, places, seq, d]) -> [batch, places, seq, d] { rope::<places>(x) }
            } (batch: 2, seq: 3) (x: tensor("x", (batch, Const::<5>, seq, Const::<4>))) reads x;

            ropes_at_positions {
                struct M<heads = 2, d = 4>;
                fn forward(x: [batch, heads, seq, d], at: ids[batch, seq]) -> [batch, heads, seq, d] { rope(x, at) + x * x }
            } (batch: 2, seq: 5) (x: tensor("x", (batch, Const::<2>, seq, Const::<4>)), ids((batch, seq), 9)) reads x;

            ropes_at_positions_of_all {
                struct M<heads = 3, d = 4>;
                fn forward(x: [seq, batch, heads, d], at: ids[batch, seq], all: ids[seq]) -> [seq, batch, heads, d] {
                    rope::<seq>(rope(x, at), all)
                }
            } (batch: 2, seq: 5) (x: tensor("x", (seq, batch, Const::<3>, Const::<4>)), ids((batch, seq), 20_000), ids((seq,), 9)) reads x;
        }
    };
}
