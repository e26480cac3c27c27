//! `rearrange` with another order, and `stack`.

use super::checked;

checked! {
    patches_of_an_image {
        struct M<channels = 3, p = 2, q = 1, d = 5>;
        fn forward(x: [batch, channels, 4, 3]) -> [batch, 6, d] {
            linear::<d>(rearrange::<[batch, channels, (h, p), (w, q)] -> [batch, (h, w), (p, q, channels)]>(x))
        }
    } (batch: 2 [0, 1]) (x: tensor::<_, E>("x", (batch, Const::<3>, Const::<4>, Const::<3>))) reads x;

    heads_by_hand {
        struct M<d = 6, heads = 2>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let q = rearrange::<[batch, seq, (heads, w)] -> [batch, heads, seq, w]>(linear::<d>(x));
            let q = q * softmax(q);
            x + rearrange::<[batch, heads, seq, w] -> [batch, seq, (heads, w)]>(q)
        }
    } (batch: 2 [0, 1], seq: 3 [0, 1]) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

    rearranged_twice_in_rounds {
        struct M<rows = 3, d = 4>;
        fn forward(x: [batch, rows, d]) -> [batch, rows, d] {
            let mut x = x;
            repeat 2 {
                let y = linear::<12>(rearrange::<[batch, (d, rows)]>(layer_norm(x)));
                x = x + rearrange::<[batch, (d, rows)] -> [batch, rows, d]>(y);
            }
            x
        }
    } (batch: 2 [0, 1]) (x: tensor::<_, E>("x", (batch, Const::<3>, Const::<4>))) reads x;

    stack_of_three_in_the_middle {
        struct M<d = 4, kinds = 3>;
        fn forward(x: [batch, seq, d], y: [batch, d]) -> [batch, kinds, seq, d] {
            let z = linear::<d>(x);
            gelu(stack::<[batch, kinds, seq, d]>(z, y, z))
        }
    } (batch: 2 [0, 1], seq: 3 [0, 1]) (x: tensor::<_, E>("x", (batch, seq, Const::<4>)), tensor::<_, E>("y", (batch, Const::<4>))) reads x;

    stack_at_the_ends {
        struct M<d = 4>;
        fn forward(x: [batch, d]) -> [batch, d] {
            let first = stack::<[2, batch, d]>(linear::<d>(x), x);
            let last = stack::<[batch, d, parts]>(x, gelu(x));
            sum::<2>(first) * sum::<parts>(last) + rearrange::<[1, batch, d] -> [batch, d]>(stack::<[1, batch, d]>(x))
        }
    } (batch: 3 [0, 1]) (x: tensor::<_, E>("x", (batch, Const::<4>))) reads x;
}
