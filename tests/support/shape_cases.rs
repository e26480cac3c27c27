//! Models of operations on shapes: values one after the other along an axis, and axes in another order.
//!
//! The notation is that of [`cases`](crate::cases).

/// Each operation along every axis: of inputs, between layers, of a value and itself, and in rounds.
#[macro_export]
macro_rules! shapes {
    ($claim:ident) => {
        $claim! {
            concat_along_the_middle {
                struct M<d = 5, rows = 3, more = 2>;
                fn forward(x: [batch, rows, d], y: [batch, more, d]) -> [batch, 5, d] {
                    gelu(concat::<rows>(linear::<d>(x), y))
                }
            } (batch: 2) (x: tensor::<_, E>("x", (batch, Const::<3>, Const::<5>)), tensor::<_, E>("y", (batch, Const::<2>, Const::<5>))) reads x;

            concat_along_the_first_of_a_value_and_itself {
                struct M<d = 4, rows = 2>;
                fn forward(x: [rows, seq, d]) -> [6, seq, d] {
                    let y = linear::<d>(x);
                    concat::<rows>(y, x, y)
                }
            } (seq: 3) (x: tensor::<_, E>("x", (Const::<2>, seq, Const::<4>))) reads x;

            concat_along_the_last_by_name {
                struct M<d = 4>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, 7] {
                    concat::<d>(linear::<d>(x), linear::<3>(x))
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;

            concat_of_a_learned_token {
                struct M<d = 4, patches = 3>;
                fn forward(x: [batch, patches, d]) -> [batch, 4, d] {
                    param class: [1, d] = normal(0.5);
                    let x = concat::<patches>(class, linear::<d>(x));
                    x + feed_forward::<6>(layer_norm(x))
                }
            } (batch: 2) (x: tensor::<_, E>("x", (batch, Const::<3>, Const::<4>))) reads x;

            permute_between_layers {
                struct M<d = 5, rows = 3>;
                fn forward(x: [batch, rows, d]) -> [batch, rows, d] {
                    let y = permute::<[batch, d, rows]>(layer_norm(x));
                    x + permute::<[batch, rows, d]>(linear::<rows>(gelu(linear::<rows>(y))))
                }
            } (batch: 2) (x: tensor::<_, E>("x", (batch, Const::<3>, Const::<5>))) reads x;

            permute_of_all_axes {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [d, batch, seq] {
                    let y = linear::<d>(x);
                    permute::<[d, batch, seq]>(y) * permute::<[d, batch, seq]>(x)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            permute_of_two_and_of_four_axes {
                struct M<d = 5, heads = 2>;
                fn forward(x: [batch, seq, heads, d], y: [seq, batch]) -> [batch, heads, seq, d] {
                    let x = permute::<[batch, heads, seq, d]>(linear::<d>(x));
                    x * permute::<[batch, seq]>(y)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<2>, Const::<5>)), tensor::<_, E>("y", (seq, batch))) reads x;

            parts_in_rounds {
                struct M<d = 4, rows = 3>;
                fn forward(x: [batch, rows, d]) -> [batch, rows, d] {
                    let mut x = x;
                    repeat 2 {
                        let y = linear::<d>(layer_norm(x));
                        x = x + concat::<rows>(y[rows = -1..], x[rows = ..-1]);
                    }
                    x
                }
            } (batch: 2) (x: tensor::<_, E>("x", (batch, Const::<3>, Const::<4>))) reads x;
        }
    };
}
