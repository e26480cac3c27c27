//! Models with a map for each group of rows.
//!
//! The notation is that of [`cases`](crate::cases).

/// Mixtures of experts, and other maps by group.
#[macro_export]
macro_rules! experts {
    ($claim:ident) => {
        $claim! {
            a_group_for_each_token {
                struct M<d = 4, groups = 3>;
                fn forward(x: [batch, seq, d], group: ids[batch, seq]) -> [batch, seq, 5] {
                    grouped_linear::<5, groups>(tanh(x), group)
                }
            } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<4>)), ids((batch, seq), 3)) reads x;

            a_group_for_each_sequence {
                struct M<d = 4>;
                fn forward(x: [batch, seq, d], speaker: ids[batch]) -> [batch, seq, d] {
                    let h = relu(grouped_linear::<out = 3, groups = 7, init = normal(0.5)>(x, speaker));
                    x + grouped_linear::<d, groups = 7, bias = false>(h, speaker)
                }
            } (batch: 3, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<4>)), ids((batch,), 7)) reads x;

            a_map_for_each_kind_of_token {
                struct M<vocab = 7, d = 4>;
                fn forward(tokens: ids[seq]) -> [seq, d] {
                    grouped_linear::<d, vocab>(embedding::<vocab, d>(tokens), tokens)
                }
            } (seq: 6) (tokens: ids((seq,), 7));

            several_groups_for_each_token {
                struct M<d = 3>;
                fn forward(x: [seq, d], groups: ids[seq, k]) -> [seq, k, d] {
                    let y = grouped_linear::<4, groups = 5>(x, groups);
                    grouped_linear::<d, groups = 5>(gelu(y), groups)
                }
            } (seq: 4, k: 3) (x: tensor::<_, E>("x", (seq, Const::<3>)), ids((seq, k), 5)) reads x;

            mixtral {
                struct M<d = 3>;
                block moe(x: [.., n], experts = 4, k = 2, hidden = 5) -> [.., n] {
                    let (best, ids) = top_k::<experts, k = k>(softmax(linear::<experts, bias = false>(x)));
                    let gates = best / sum::<k>(best);
                    let h = silu(grouped_linear::<hidden, experts, bias = false>(x, ids));
                    let h = h * grouped_linear::<hidden, experts, bias = false>(x, ids);
                    sum::<k>(gates * grouped_linear::<n, experts, bias = false>(h, ids))
                }
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let mut x = x;
                    repeat 2 { x += moe(layer_norm(x)); }
                    x
                }
            } (batch: 2, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;

            switch {
                struct M<d = 3, experts = 3, factor = 0.75>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let (gate, ids) = top_k::<k = 1>(softmax(linear::<experts>(x)));
                    let h = relu(grouped_linear::<5, experts, capacity_factor = factor>(x, ids));
                    x + sum::<1>(gate * grouped_linear::<d, experts, capacity_factor = factor>(h, ids))
                }
            } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;

            deepseek {
                struct M<d = 4, experts = 5, hidden = 3>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    param bias: [experts] = 0;
                    let scores = sigmoid(linear::<experts, bias = false>(x));
                    let (_best, ids) = top_k::<k = 2>(scores + detach(bias));
                    let gates = scores[experts = ids];
                    let h = silu(grouped_linear::<hidden, experts>(x, ids)) * grouped_linear::<hidden, experts>(x, ids);
                    let routed = sum::<2>(gates / sum::<2>(gates) * grouped_linear::<d, experts>(h, ids));
                    x + routed + feed_forward::<hidden, activation = swiglu, name = shared>(x)
                }
            } (batch: 2, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;

            norms_and_slices_between_two_maps {
                struct M<d = 4, groups = 3>;
                fn forward(x: [batch, seq, d], group: ids[batch, seq]) -> [batch, seq, d] {
                    param gain: [6] = normal(1);
                    let h = layer_norm(grouped_linear::<6, groups>(x, group)) * gain;
                    let (left, right) = split(h);
                    let h = softmax(left) * right;
                    x + grouped_linear::<d, groups, capacity_factor = 0.8>(h, group)
                }
            } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<4>)), ids((batch, seq), 3)) reads x;

            values_between_two_maps_that_others_read {
                struct M<d = 3, groups = 4>;
                fn forward(x: [batch, seq, d], i: ids[batch, seq], j: ids[batch, seq]) -> [batch, seq, d] {
                    let a = grouped_linear::<d, groups>(x, i);
                    let b = relu(grouped_linear::<d, groups>(a, i));
                    let c = grouped_linear::<d, groups>(b + x, i);
                    a + grouped_linear::<d, groups>(dropout::<0.0>(c), j)
                }
            } (batch: 2, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<3>)), ids((batch, seq), 4), ids((batch, seq), 4)) reads x;

            losses_of_the_router {
                struct M<d = 3>;
                block moe(x: [.., n], experts = 4, k = 2) -> { y: [.., n], balance: [], z: [] } {
                    let logits = linear::<experts>(x);
                    let (best, ids) = top_k::<experts, k = k>(logits);
                    let y = sum::<k>(softmax(best) * grouped_linear::<n, experts>(x, ids));
                    let share = mean::<..>(sum::<k>(one_hot::<experts>(ids)));
                    let chance = mean::<..>(softmax(logits));
                    let z = logsumexp::<experts>(logits);
                    { y, balance: experts * sum::<experts>(share * chance), z: mean::<..>(z * z) }
                }
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let mut x = x;
                    let mut loss = 0 * mean::<[batch, seq, d]>(x);
                    repeat 2 {
                        let { y, balance, z } = moe(x);
                        x += y;
                        loss += 0.01 * balance + 0.001 * z;
                    }
                    x + loss
                }
            } (batch: 2, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;
        }
    };
}
