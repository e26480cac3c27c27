//! Pure changes of a shape, which have no memory of their own.

use super::checked;

checked! {
    views_between_layers {
        struct M<d = 4, rows = 3>;
        fn forward(x: [batch, rows, d]) -> [batch, rows, d] {
            let y = rearrange::<[batch, (rows, d)]>(layer_norm(x));
            let y = gelu(linear::<{ rows * d }>(y)) + y;
            let z = rearrange::<[batch, (rows, d)] -> [batch, rows, d]>(y);
            x + z * layer_norm(z)
        }
    } (batch: 2 [0, 1, 3]) (x: tensor::<_, E>("x", (batch, Const::<3>, Const::<4>))) reads x;

    views_of_an_input_and_as_the_result {
        struct M<d = 6>;
        fn forward(x: [batch, d]) -> [batch, 2, 3] {
            let y = rearrange::<[batch, (2, 3)] -> [batch, 2, 3]>(x);
            rearrange::<[batch, (2, 3)] -> [batch, 2, 3]>(linear::<d>(x)) * y
        }
    } (batch: 2 [0, 1]) (x: tensor::<_, E>("x", (batch, Const::<6>))) reads x;

    a_view_that_is_returned {
        struct M<d = 6>;
        fn forward(x: [batch, d]) -> [batch, 1, 2, 3] {
            rearrange::<[batch, (2, 3)] -> [batch, 1, 2, 3]>(gelu(linear::<d>(x)))
        }
    } (batch: 2 [0, 1]) (x: tensor::<_, E>("x", (batch, Const::<6>))) reads x;

    a_view_of_an_input_that_is_returned {
        struct M<d = 6>;
        fn forward(x: [batch, d]) -> [batch, 3, 2] {
            rearrange::<[batch, (3, 2)] -> [batch, 3, 2]>(x)
        }
    } (batch: 2 [0, 1]) (x: tensor::<_, E>("x", (batch, Const::<6>))) reads x;

    views_in_rounds {
        struct M<d = 4, rows = 3>;
        fn forward(x: [batch, rows, d]) -> [batch, rows, d] {
            let whole = linear::<d>(x);
            let mut x = x;
            let mut y = rearrange::<[batch, (rows, d)]>(x);
            repeat 2 {
                let z = linear::<{ rows * d }>(rearrange::<[batch, (rows, d)]>(layer_norm(x)));
                x = rearrange::<[batch, (rows, d)] -> [batch, rows, d]>(z + y);
                y = rearrange::<[batch, (rows, d)]>(x * whole);
            }
            x + rearrange::<[batch, (rows, d)] -> [batch, rows, d]>(y)
        }
    } (batch: 2 [0, 1, 3]) (x: tensor::<_, E>("x", (batch, Const::<3>, Const::<4>))) reads x;

    a_round_that_only_changes_the_shape_back_and_forth {
        struct M<d = 4, rows = 2>;
        fn forward(x: [batch, d]) -> [batch, d] {
            let mut x = x;
            repeat 3 {
                x = rearrange::<[batch, (rows, cols)]>(2 * rearrange::<[batch, (rows, cols)] -> [batch, rows, cols]>(x));
            }
            x
        }
    } (batch: 2 [0, 1]) (x: tensor::<_, E>("x", (batch, Const::<4>))) reads x;

    one_memory_read_in_two_shapes {
        struct M<d = 4, rows = 3>;
        fn forward(x: [batch, rows, d]) -> [batch, rows, d] {
            let y = linear::<d>(x);
            let flat = rearrange::<[batch, (rows, d)]>(y);
            let scaled = flat * mean::<12>(flat);
            let back = rearrange::<[batch, (rows, d)] -> [batch, rows, d]>(scaled);
            let norm = layer_norm(y);
            norm * back + back * y
        }
    } (batch: 2 [0, 1, 3]) (x: tensor::<_, E>("x", (batch, Const::<3>, Const::<4>))) reads x;

    axes_of_size_1_come_and_go {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let y = rearrange::<[batch, 1, seq, d]>(linear::<d>(x));
            let z = rearrange::<[batch, heads, seq, d] -> [batch, seq, heads, d]>(gelu(y));
            x + rearrange::<[batch, seq, d]>(z) + rearrange::<[batch, seq, (d, 1)]>(y)
        }
    } (batch: 2 [0, 1], seq: 3 [0, 1]) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;

    attention_of_views {
        struct M<d = 4, groups = 2, len = 3>;
        fn forward(x: [batch, 6, d]) -> [batch, 6, d] {
            let y = rearrange::<[batch, (groups, len), d] -> [rows = (batch, groups), len, d]>(layer_norm(x));
            let y = y + attention::<2, mask = causal>(y);
            x + rearrange::<[(batch, groups), len, d] -> [batch, (groups, len), d]>(y)
        }
    } (batch: 2 [0, 1, 3]) (x: tensor::<_, E>("x", (batch, Const::<6>, Const::<4>))) reads x;
}
