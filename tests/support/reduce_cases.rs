//! Models with reductions of axes, and softmaxes along axes.
//!
//! The notation is that of [`cases`](crate::cases).

/// Each reduction along the first axis, one in the middle, and the last one; along several; of inputs, in rounds and to one number.
#[macro_export]
macro_rules! reductions {
    ($claim:ident) => {
        $claim! {
            sums {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    y * sum::<batch>(y) + sum::<seq>(x) + y * sum::<d>(y)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            means {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    y * mean::<batch>(y) + mean::<seq>(x) + y * mean::<d>(y)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            largest_numbers {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    max(y, 2 * max::<batch>(y)) + max::<seq>(x) + y * max::<d>(y)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            smallest_numbers {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    y * min::<batch>(y) + min::<seq>(x) + y * min::<d>(y)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            variances {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    y * variance::<batch>(y) + variance::<seq>(x) + y * variance::<d>(y)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            logarithms_of_sums {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    y * logsumexp::<batch>(y) + logsumexp::<seq>(x) + y * logsumexp::<d>(y)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            softmaxes {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    y * softmax::<batch>(y) + softmax::<seq>(x) * softmax::<d>(2 * y)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            several_axes {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    let scale = mean::<[d, seq]>(y) * variance::<[seq, d]>(y) + max::<[seq, d]>(x);
                    y * scale + sum::<[batch, seq]>(y) + x * variance::<[batch, d]>(x)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            all_axes {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    y * mean::<[batch, seq, d]>(x) / (1 + variance::<[batch, seq, d]>(y)) + logsumexp::<[d, batch, seq]>(y)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            axes_of_constants {
                struct M<rows = 4, d = 3>;
                fn forward(x: [batch, rows, d]) -> [batch, d] {
                    let y = linear::<d>(x);
                    sum::<rows>(softmax::<rows>(y) * x) - mean::<4>(y)
                }
            } (batch: 2) (x: tensor::<_, E>("x", (batch, Const::<4>, Const::<3>))) reads x;

            of_learned_tensors {
                struct M<n = 3, d = 4>;
                fn forward(x: [batch, d]) -> [batch, d] {
                    param table: [n, d] = normal(1.0);
                    param shares: [n] = normal(1.0);
                    x * sum::<n>(table * softmax(shares)) + logsumexp::<n>(shares)
                }
            } (batch: 2) (x: tensor::<_, E>("x", (batch, Const::<4>))) reads x;

            in_rounds {
                struct M<d = 4>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let mut x = x;
                    repeat 3 {
                        x = x + linear::<d>(x - mean::<seq>(x)) / (1 + variance::<seq>(x)) * max::<seq>(softmax::<seq>(x));
                    }
                    x
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;
        }
    };
}
