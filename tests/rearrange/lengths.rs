//! Axes of any length that are made of others.

use super::checked;

checked! {
    rows_of_all_sequences {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [rows, d] {
            let y = rearrange::<[rows = (batch, seq), d]>(linear::<d>(x));
            let z = rearrange::<[(batch, seq), d] -> [batch, seq, d]>(layer_norm(y));
            rearrange::<[(batch, seq), d]>(x * z) + y
        }
    } (batch: 2 [0, 1], seq: 3 [0, 1]) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;

    groups_of_a_sequence {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let y = rearrange::<[batch, (groups, 3), d] -> [batch, groups, (3, d)]>(x);
            let y = gelu(linear::<12>(y));
            x + rearrange::<[batch, groups, (3, d)] -> [batch, (groups, 3), d]>(y)
        }
    } (batch: 2 [0, 1], seq: 6 [0, 3]) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;

    groups_across_a_sequence {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, 2, n, d] {
            let y = rearrange::<[batch, (n, 2), d] -> [every = (batch, 2), n, d]>(layer_norm(x));
            let y = y + attention::<2>(y);
            rearrange::<[(batch, 2), n, d] -> [batch, 2, n, d]>(y)
        }
    } (batch: 2 [0, 1], seq: 6 [0, 2]) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;

    learned_tokens_before_a_sequence {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            param prompt: [2, d] = normal(0.5);
            let all = concat::<seq, to = all>(prompt, linear::<d>(x));
            let all = all + attention::<2, mask = causal>(layer_norm(all));
            x + all[all = 2..]
        }
    } (batch: 2 [0, 1], seq: 3 [0, 1]) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;

    three_sequences_in_one {
        struct M<d = 4>;
        fn forward(x: [batch, q, d], y: [batch, k, d]) -> [batch, all, d] {
            let x = linear::<d>(x);
            gelu(concat::<q, to = all>(x, y, x))
        }
    } (batch: 2 [0, 1], q: 3 [0, 1], k: 2 [0, 1]) (x: tensor::<_, E>("x", (batch, q, Const::<4>)), tensor::<_, E>("y", (batch, k, Const::<4>))) reads x;

    along_the_last_axis {
        struct M<d = 2>;
        fn forward(x: [batch, seq, d]) -> [batch, d, all] {
            let y = permute::<[batch, d, seq]>(x);
            concat::<seq, to = all>(y, 2 * y)
        }
    } (batch: 2 [0, 1], seq: 3 [0, 1]) (x: tensor::<_, E>("x", (batch, seq, Const::<2>))) reads x;
}
