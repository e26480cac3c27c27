//! Models that read values by ids.
//!
//! The notation is that of [`cases`](crate::cases).

/// Ids of an input along every axis: of inputs, of learned tensors, with shared axes and new ones, and in rounds.
#[macro_export]
macro_rules! gathers {
    ($claim:ident) => {
        $claim! {
            rows_of_a_table {
                struct M<vocab = 5, d = 4>;
                fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
                    param table: [vocab, d] = normal(0.5);
                    linear::<d>(table[tokens])
                }
            } (batch: 2, seq: 3) (tokens: ids((batch, seq), 5));

            the_last_token {
                struct M<d = 4>;
                fn forward(x: [batch, seq, d], last: ids[batch]) -> [batch, d] {
                    let y = linear::<d>(x);
                    y[seq = last] * x[seq = last]
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>)), ids((batch,), seq.max(1))) reads x;

            indices_of_the_first_axis {
                struct M<d = 3>;
                fn forward(x: [seq, batch, d], order: ids[n, batch]) -> [n, batch, d] {
                    linear::<d>(x[order]) + x[seq = order]
                }
            } (seq: 3, batch: 2, n: 4) (x: tensor::<_, E>("x", (seq, batch, Const::<3>)), ids((n, batch), seq.max(1))) reads x;

            a_permutation_of_each_sequence {
                struct M<d = 3>;
                fn forward(x: [batch, seq, d], order: ids[batch, seq]) -> [batch, seq, d] {
                    linear::<d>(x) * x[seq = order]
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>)), ids((batch, seq), seq.max(1))) reads x;

            a_number_of_each_vector {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], target: ids[seq, batch]) -> [batch, seq] {
                    let y = linear::<d>(x);
                    y[d = target] - logsumexp::<d>(y)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), ids((seq, batch), 5)) reads x;

            of_all_axes {
                struct M<d = 3>;
                fn forward(x: [batch, seq, d], order: ids[batch, n, d]) -> [batch, n, d] {
                    linear::<d>(x)[seq = order]
                }
            } (batch: 2, seq: 3, n: 2) (x: tensor::<_, E>("x", (batch, seq, Const::<3>)), ids((batch, n, Const::<3>), seq.max(1))) reads x;

            constants {
                struct M<heads = 4, d = 3>;
                fn forward(x: [batch, heads, d]) -> [batch, 3, d] {
                    linear::<d>(x)[heads = [0, 2, -1]] + x[heads = [1, 1, 1]]
                }
            } (batch: 2) (x: tensor::<_, E>("x", (batch, Const::<4>, Const::<3>))) reads x;

            several_axes {
                struct M<heads = 4, d = 3>;
                fn forward(x: [batch, seq, heads, d], last: ids[batch], head: ids[batch]) -> [batch, 2] {
                    linear::<d>(x)[seq = last, heads = head, d = 1..]
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>, Const::<3>)), ids((batch,), seq.max(1)), ids((batch,), 4)) reads x;

            in_rounds {
                struct M<vocab = 5, d = 4>;
                fn forward(x: [batch, seq, d], tokens: ids[batch, seq]) -> [batch, seq, d] {
                    let mut x = x;
                    param shared: [vocab, d] = normal(0.5);
                    repeat 3 {
                        param table: [vocab, d] = normal(0.5);
                        x = linear::<d>(x * table[tokens]) + shared[tokens];
                    }
                    x
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>)), ids((batch, seq), 5)) reads x;
        }
    };
}

/// Ids that the model computes, and sums by ids.
#[macro_export]
macro_rules! computed_ids {
    ($claim:ident) => {
        $claim! {
            the_largest {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, d] {
                    let y = linear::<d>(x);
                    y[seq = argmax::<seq>(sum::<d>(tanh(y)))] * x[seq = argmax::<seq>(sum::<d>(x))]
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            a_causal_attention {
                struct M<d = 4, heads = 2, width = 3>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let (q, k, v) = split::<6>(rearrange::<[batch, seq, (6, width)] -> [batch, 6, seq, width]>(linear::<18>(x)));
                    let scores = einsum::<[batch, heads, seq, kv]>(q, k as [batch, heads, kv = seq, width]) / sqrt(width);
                    let scores = if arange::<kv>() <= arange::<seq>() { scores } else { -1e30 };
                    let y = einsum::<[batch, heads, seq, width]>(softmax::<kv>(scores), v as [batch, heads, kv = seq, width]);
                    linear::<d>(rearrange::<[batch, seq, (heads, width)]>(y))
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;

            mixture_of_experts {
                struct M<d = 3, experts = 4>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    param table: [experts, d] = normal(0.5);
                    let (values, chosen) = top_k::<k = 2>(linear::<experts>(x));
                    x + sum::<2>(table[chosen] * softmax(values))
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;

            the_first_tokens_by_score {
                struct M<d = 3>;
                fn forward(x: [batch, seq, d]) -> [batch, 2, d] {
                    let y = linear::<d>(x);
                    let (_values, order) = top_k::<seq, k = 2>(y[d = 0]);
                    y[seq = order]
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;

            positions {
                struct M<d = 3, max_len = 7>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    param table: [max_len, d] = normal(0.5);
                    linear::<d>(x) * table[arange::<seq>()]
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;

            vectors_with_a_one {
                struct M<d = 3, vocab = 5>;
                fn forward(x: [batch, seq, d], tokens: ids[batch, seq]) -> [batch, seq, vocab] {
                    let y = linear::<vocab>(x);
                    y * one_hot::<vocab>(tokens) + one_hot::<vocab>(argmax::<vocab>(y))
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>)), ids((batch, seq), 5)) reads x;

            embeddings_of_computed_ids {
                struct M<d = 3, vocab = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let ids = argmax::<vocab>(linear::<vocab>(x));
                    embedding::<vocab, d>(ids) * x
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;

            the_nearest_tokens {
                struct M<d = 3, n = 4>;
                block best(x: [.., n]) -> [.., d] {
                    param gains: [n, d] = normal(0.5);
                    gains[argmax::<n>(x)]
                }
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    let y = y as [batch, kv = seq, d];
                    let (near, places) = top_k::<kv, k = 2>(einsum::<[batch, seq, kv]>(x, y));
                    x * sum::<2>(y[kv = places] * near) + best(linear::<n>(x))
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;

            in_rounds_of_a_loop {
                struct M<d = 4>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let mut x = x;
                    let first = argmax::<seq>(x[d = 0]);
                    repeat 3 {
                        let y = linear::<d>(x);
                        let best = argmax::<seq>(y[d = 1]);
                        x = y * tanh(x[seq = best]) + x[seq = first];
                    }
                    x
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;

            sums_by_id {
                struct M<d = 3, segments = 4>;
                fn forward(x: [batch, seq, d], segment: ids[batch, seq]) -> [batch, segments, d] {
                    let y = scatter_add::<[batch, segments, d]>(linear::<d>(x), segment);
                    y * scatter_add::<[batch, segments, d]>(x, segment)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>)), ids((batch, seq), 4)) reads x;

            sums_over_a_batch {
                struct M<d = 3, vocab = 4>;
                fn forward(x: [batch, seq, d], tokens: ids[batch, seq]) -> [vocab, d] {
                    scatter_add::<[vocab, d]>(linear::<d>(x), tokens)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>)), ids((batch, seq), 4)) reads x;

            sums_along_the_same_axis {
                struct M<d = 3>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let (_values, order) = top_k::<k = 2>(linear::<d>(x));
                    let y = linear::<2>(x);
                    x * scatter_add::<[batch, seq, d], axis = d>(y, order)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;
        }
    };
}

/// Sums up to each place, and lengths along any axis.
#[macro_export]
macro_rules! sums_along {
    ($claim:ident) => {
        $claim! {
            cumulative_sums {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    cumsum::<seq>(y) * cumsum(x) + cumsum::<batch>(y) * y
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            vectors_of_length_1 {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    l2_norm::<seq>(y) * l2_norm::<d>(x) + y * l2_norm::<batch, epsilon = 0.3>(x)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;
        }
    };
}

/// Reductions and softmaxes of the numbers that lengths or marks select.
#[macro_export]
macro_rules! selections {
    ($claim:ident) => {
        $claim! {
            sums_of_some {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], lens: lens[batch], keep: bool[batch, seq]) -> [batch, d] {
                    let y = linear::<d>(x);
                    sum::<seq>(y, lens) * sum::<seq>(x, keep) + mean::<seq>(y, lens) * mean::<seq>(x, keep)
                }
            } (batch: 3, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), lens_up_to(batch, seq), marks((batch, seq))) reads x;

            extremes_of_some {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], lens: lens[batch], keep: bool[batch, seq]) -> [batch, d] {
                    let y = linear::<d>(x);
                    max::<seq>(y, lens) * min::<seq>(x, keep) + min::<seq>(y, lens) * max::<seq>(x, keep)
                }
            } (batch: 3, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), lens_up_to(batch, seq), marks((batch, seq))) reads x;

            variances_of_some {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], lens: lens[batch], keep: bool[batch, seq]) -> [batch, d] {
                    let y = linear::<d>(x);
                    variance::<seq>(y, lens) + variance::<seq>(x, keep) * variance::<seq>(y, keep)
                }
            } (batch: 3, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), lens_up_to(batch, seq), marks((batch, seq))) reads x;

            softmaxes_of_some {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], lens: lens[batch], keep: bool[batch, seq]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    softmax::<seq>(y, lens) * x + softmax::<seq>(x, keep) * softmax::<seq>(y, keep)
                }
            } (batch: 3, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), lens_up_to(batch, seq), marks((batch, seq))) reads x;

            rows_of_some {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], keep: bool[seq, d], lens: lens[batch, seq]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    softmax(y, keep) * sum::<d>(x, lens) + max::<d>(x, keep) * softmax::<d>(y, lens)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), marks((seq, Const::<5>)), lens_of((batch, seq), 5)) reads x;

            axes_behind {
                struct M<d = 5>;
                fn forward(x: [seq, batch, d], keep: bool[batch, seq], lens: lens[batch]) -> [seq, batch, d] {
                    let y = linear::<d>(x);
                    softmax::<seq>(y, keep) * mean::<seq>(x, keep) + softmax::<seq>(y, lens) * max::<seq>(y, lens)
                }
            } (seq: 4, batch: 3) (x: tensor::<_, E>("x", (seq, batch, Const::<5>)), marks((batch, seq)), lens_up_to(batch, seq)) reads x;

            an_axis_between {
                struct M<d = 3, heads = 2>;
                fn forward(x: [batch, heads, seq, d], keep: bool[batch, seq]) -> [batch, heads, d] {
                    let y = linear::<d>(x);
                    sum::<seq>(y * softmax::<seq>(x, keep), keep)
                }
            } (batch: 2, seq: 4) (x: tensor::<_, E>("x", (batch, Const::<2>, seq, Const::<3>)), marks((batch, seq))) reads x;

            logarithms_of_sums_of_some {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], lens: lens[batch]) -> [batch, d] {
                    logsumexp::<seq>(linear::<d>(x), lens) * logsumexp::<seq>(x, lens)
                }
            } (batch: 2, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), lens_up_to(batch, seq)) reads x;
        }
    };
}

/// Ids and sums along an axis, of the numbers that lengths or marks select.
#[macro_export]
macro_rules! selected_along {
    ($claim:ident) => {
        $claim! {
            places_of_some {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], lens: lens[batch], keep: bool[batch, seq]) -> [batch, d] {
                    let y = linear::<d>(x);
                    let score = sum::<d>(tanh(x));
                    y[seq = argmax::<seq>(score, keep)] * x[seq = argmax::<seq>(score, lens)]
                }
            } (batch: 3, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), lens_up_to(batch, seq), marks((batch, seq))) reads x;

            sums_up_to_places_of_some {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], lens: lens[batch], keep: bool[batch, seq]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    cumsum::<seq>(y, lens) * cumsum::<seq>(x, keep)
                }
            } (batch: 3, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), lens_up_to(batch, seq), marks((batch, seq))) reads x;

            vectors_of_some {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], lens: lens[batch], keep: bool[d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    l2_norm::<seq, epsilon = 0.1>(y, lens) * l2_norm::<d, epsilon = 0.1>(x + y, keep)
                }
            } (batch: 3, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), lens_up_to(batch, seq), marks((Const::<5>,))) reads x;
        }
    };
}

/// Losses of classifiers: of ids of the call and computed ones, along any axis, with targets that do not count.
#[macro_export]
macro_rules! losses {
    ($claim:ident) => {
        $claim! {
            the_mean_of_all_targets {
                struct M<d = 3, vocab = 5>;
                fn forward(x: [batch, seq, d], targets: ids[batch, seq]) -> [] { cross_entropy(linear::<vocab>(x), targets) }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>)), ids((batch, seq), 5)) reads x;

            the_mean_of_some_targets {
                struct M<d = 3, vocab = 5, share = 0.2>;
                fn forward(x: [batch, seq, d], targets: ids[batch, seq]) -> [] {
                    let logits = linear::<vocab>(x);
                    cross_entropy::<ignore_index = 2, label_smoothing = share>(logits, targets) + mean::<[batch, seq, vocab]>(logits * logits)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>)), ids((batch, seq), 5)) reads x;

            the_loss_of_each_target {
                struct M<d = 3, vocab = 5>;
                fn forward(x: [batch, d, seq], targets: ids[seq, batch]) -> [seq, batch] {
                    param w: [vocab, d] = normal(0.5);
                    let logits = einsum::<[batch, vocab, seq]>(x, w);
                    let losses = cross_entropy::<vocab, ignore_index = 2, reduction = none>(logits, targets);
                    losses * losses
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, Const::<3>, seq)), ids((seq, batch), 5)) reads x;

            a_computed_target_among_tokens {
                struct M<d = 3>;
                fn forward(x: [batch, seq, d]) -> [batch] {
                    let scores = sum::<d>(linear::<d>(x));
                    cross_entropy::<seq, reduction = none, label_smoothing = 0.1>(scores, argmax::<seq>(sum::<d>(x)))
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;
        }
    };
}
