//! Models with reductions of rows between operations that treat each row by itself.
//!
//! The notation is that of [`cases`](crate::cases).

/// Norms and softmaxes written by hand, and passes that begin, end and are read in every way.
#[macro_export]
macro_rules! rows {
    ($claim:ident) => {
        $claim! {
            rms_norm_by_hand {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    param gain: [d] = normal(1.0);
                    x / sqrt(mean::<d>(x * x) + 1e-6) * gain
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            layer_norm_by_hand {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    param gain: [d] = normal(1.0);
                    let h = (x - mean::<d>(x)) / sqrt(variance::<d>(x) + 1e-2);
                    // It stands between the norm and its reader.
                    param bias: [d] = normal(1.0);
                    h * gain + bias
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            softmax_by_hand {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let powers = exp(x - max::<d>(x));
                    powers / sum::<d>(powers)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            several_readers {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    let square = y * y;
                    let m = mean::<d>(square);
                    let h = y / sqrt(m + 1e-2);
                    linear::<d>(square) + h * linear::<d>(h) + m
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            every_reduction_of_rows {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    let z = (y - min::<d>(y)) * logsumexp::<d>(x * y) + max::<d>(y * y);
                    tanh(z * variance::<d>(z + y) - sum::<d>(z) / mean::<d>(x * x))
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            operands_of_other_axes {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    param temperature: [] = ones;
                    param places: [3] = normal(1.0);
                    let c = mean::<seq>(x);
                    let y = (x + c) / (1 + mean::<d>(x * x) * temperature);
                    (y - mean::<d>(y)) * (1 + c) * temperature + sum::<3>(places)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            vectors_without_other_axes {
                struct M<d = 5>;
                fn forward(x: [d]) -> [d] {
                    param gain: [d] = normal(1.0);
                    let y = x * gain;
                    y / sqrt(mean::<d>(y * y) + 1e-2) - max::<d>(y)
                }
            } () (x: tensor::<_, E>("x", (Const::<5>,))) reads x;

            equal_sizes {
                struct M<rows = 3, d = 3>;
                fn forward(x: [rows, d]) -> [rows, d] {
                    param gain: [d] = normal(1.0);
                    param height: [rows] = normal(1.0);
                    let m = mean::<d>(x * gain);
                    let columns = sum::<rows>(x);
                    (x - m) / (2 + m * m) * height + m * columns
                }
            } () (x: tensor::<_, E>("x", (Const::<3>, Const::<3>))) reads x;

            of_one_number {
                struct M<d = 1>;
                fn forward(x: [batch, d]) -> [batch, d] {
                    param gain: [d] = normal(1.0);
                    (x - 0.5 * mean::<d>(x)) / sqrt(sum::<d>(x * x) + 1) * gain
                }
            } (batch: 3) (x: tensor::<_, E>("x", (batch, Const::<1>))) reads x;

            rows_in_rounds {
                struct M<d = 4>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let mut x = x;
                    repeat 3 {
                        param gain: [d] = normal(1.0);
                        let h = x / sqrt(mean::<d>(x * x) + 1e-2) * gain;
                        x = x + linear::<d>(h);
                        x = x - mean::<d>(x * gain);
                    }
                    x
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;
        }
    };
}

/// The same with dropout.
#[macro_export]
macro_rules! dropped_rows {
    ($claim:ident) => {
        $claim! {
            dropped_inside_of_passes {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    param gain: [d] = normal(1.0);
                    let y = dropout::<0.25>(x * gain);
                    let root = dropout::<0.25>(mean::<d>(y * y) + 1);
                    dropout::<0.5>(y / sqrt(root + 1e-2) + dropout::<0.25>(x)) * gain
                }
            } (batch: 3, seq: 7) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;
        }
    };
}
