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
