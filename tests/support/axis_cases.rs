//! Models whose values are combined by the names of their axes: a value with fewer axes is repeated along the others.
//!
//! The notation is that of [`cases`](crate::cases).

/// Values without axes at the front, in the middle, at the end, and with axes of size 1.
#[macro_export]
macro_rules! combined_by_name {
    ($claim:ident) => {
        $claim! {
            without_the_first_axes {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], y: [d]) -> [batch, seq, d] {
                    let x = linear::<d>(x);
                    x * y + gelu(y - x)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), tensor::<_, E>("y", (Const::<5>,))) reads x;

            without_the_sequence {
                struct M<d = 5, hidden = { 2 * d }>;
                fn forward(x: [batch, seq, d], y: [batch, d]) -> [batch, seq, hidden] {
                    let gate = sigmoid(linear::<hidden>(y));
                    max(linear::<hidden>(x), gate) * gate
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), tensor::<_, E>("y", (batch, Const::<5>))) reads x;

            without_the_last_axis {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], y: [batch, seq]) -> [batch, seq, d] {
                    let x = linear::<d>(x);
                    if x < y { x * y } else { y / (2 + x * x) }
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), tensor::<_, E>("y", (batch, seq))) reads x;

            without_two_axes_around_one {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], y: [seq]) -> [batch, seq, d] {
                    y - linear::<d>(x) * y
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), tensor::<_, E>("y", (seq,))) reads x;

            of_the_axes_of_numbers {
                struct M<>;
                fn forward(x: [batch, 3, 4], y: [3], z: [4]) -> [batch, 3, 4] {
                    linear::<4>(x) * y + z
                }
            } (batch: 2) (x: tensor::<_, E>("x", (batch, Const::<3>, Const::<4>)), tensor::<_, E>("y", (Const::<3>,)), tensor::<_, E>("z", (Const::<4>,))) reads x;

            learned_tensors {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    param scale: [d] = ones;
                    param token: [d] = normal(0.5);
                    param temperature: [] = 2.5;
                    (linear::<d>(x) * scale + token) / temperature
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            learned_tensors_in_rounds {
                struct M<d = 4>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let mut x = x;
                    repeat 3 {
                        param scale: [d] = 0.1;
                        x = x + scale * feed_forward::<6>(layer_norm(x));
                    }
                    x
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;

            a_learned_tensor_as_the_result {
                struct M<d = 4>;
                fn forward(x: [batch, d]) -> [3, d] {
                    param latents: [3, d] = xavier_uniform;
                    param unread_by_layers: [3, d] = orthogonal;
                    let _x = x;
                    latents * tanh(unread_by_layers)
                }
            } (batch: 2) (x: tensor::<_, E>("x", (batch, Const::<4>)));

            in_another_order {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], y: [d, batch], z: [seq, d, batch]) -> [batch, seq, d] {
                    linear::<d>(x) * y + x * z
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), tensor::<_, E>("y", (Const::<5>, batch)), tensor::<_, E>("z", (seq, Const::<5>, batch))) reads x;

            of_sizes_that_only_rustc_knows {
                struct M<d = { 2_usize.pow(2) }, rows = { d - 1 }, tokens = { rows + 1 }>;
                fn forward(x: [batch, rows, d]) -> [batch, d] {
                    param class: [1, d] = normal(0.5);
                    param position: [tokens, d] = ones;
                    let x = concat::<rows>(class, linear::<d>(x)) + position;
                    let (a, b) = split::<d>(x);
                    let y = linear::<d>(concat(b, a)) * x[tokens = -1];
                    x[tokens = 0] + mean::<tokens>(y) - y[tokens = 1]
                }
            } (batch: 2) (x: tensor::<_, E>("x", (batch, Const::<3>, Const::<4>))) reads x;

            in_rounds {
                struct M<d = 4>;
                fn forward(x: [batch, seq, d], scale: [d]) -> [batch, seq, d] {
                    let mut x = x;
                    repeat 2 {
                        x = x + scale * feed_forward::<6>(layer_norm(x) * scale);
                    }
                    x
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>)), tensor::<_, E>("scale", (Const::<4>,))) reads x;
        }
    };
}

/// Values repeated along axes for operations that take all of them, and ids, lengths and marks as floats.
#[macro_export]
macro_rules! expanded {
    ($claim:ident) => {
        $claim! {
            along_the_first_axis {
                struct M<n = 3, d = 4>;
                fn forward(x: [batch, seq, d]) -> [batch, n, d] {
                    param latents: [n, d] = normal(0.5);
                    let z = expand::<[batch, n, d]>(latents);
                    z + attention::<heads = 2>(layer_norm(z), context = x)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;

            along_axes_of_size_1_and_in_another_order {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], y: [d, batch], z: [batch, 1, d]) -> [batch, seq, d] {
                    let y = linear::<d>(expand::<[batch, seq, d]>(y));
                    softmax::<seq>(expand::<[batch, seq, d]>(z)) * y + expand::<[batch, seq, d]>(x)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), tensor::<_, E>("y", (Const::<5>, batch)), tensor::<_, E>("z", (batch, Const::<1>, Const::<5>))) reads x;

            only_where_values_are_combined {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let bias = linear::<d>(sum::<seq>(x));
                    gelu(x + expand::<[batch, seq, d]>(bias)) * expand::<[seq, d]>(2 * sum::<[batch, seq]>(x))
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            marks_as_floats_and_conditions {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], keep: bool[batch, seq], of_d: bool[d]) -> [batch, seq, d] {
                    let y = if keep && !of_d { linear::<d>(x) } else { 0.5 * x };
                    y * float(of_d) + if !keep { x } else { float(keep) }
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), marks((batch, seq)), marks((Const::<5>,))) reads x;

            lengths_and_ids_as_floats {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], lens: lens[batch], time: ids[batch, seq]) -> [batch, seq, d] {
                    let y = linear::<d>(x) * float(time) + x / (1 + float(lens));
                    if time < lens { y } else if time == 2 { x } else { float(time) }
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), lens_up_to(batch, seq), ids((batch, seq), 4)) reads x;
        }
    };
}

/// One index of an axis, ranges, and parts of one size.
#[macro_export]
macro_rules! parts {
    ($claim:ident) => {
        $claim! {
            indices_of_constants {
                struct M<rows = 4, d = 5>;
                fn forward(x: [batch, rows, d]) -> [batch, d] {
                    let y = linear::<d>(x);
                    y[rows = 0] * y[rows = -1] + x[rows = 2] - y[rows = -2] * y[d = -1, rows = 1]
                }
            } (batch: 2) (x: tensor::<_, E>("x", (batch, Const::<4>, Const::<5>))) reads x;

            ranges_of_constants {
                struct M<d = 7>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, 3] {
                    let y = linear::<d>(x);
                    y[d = 1..4] + y[d = ..3] * y[d = -3..] - x[d = 2..-2] + y[d = -4..-1]
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<7>))) reads x;

            split {
                struct M<d = 4>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let (shift, scale, gate) = split(linear::<{ 3 * d }>(x));
                    x + sigmoid(gate) * (layer_norm(x) * (1 + scale) + shift)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;

            split_along_an_axis {
                struct M<rows = 6, d = 3>;
                fn forward(x: [batch, rows, d]) -> [batch, 3, d] {
                    let (first, last) = split::<rows>(linear::<d>(x));
                    first * last
                }
            } (batch: 2) (x: tensor::<_, E>("x", (batch, Const::<6>, Const::<3>))) reads x;

            modulation_by_parts_of_another_value {
                struct M<d = 4>;
                fn forward(x: [batch, seq, d], c: [batch, d]) -> [batch, seq, d] {
                    let (shift, scale, gate) = split(linear::<{ 3 * d }>(silu(c)));
                    x + gate * feed_forward::<6>(layer_norm(x) * (1 + scale) + shift)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>)), tensor::<_, E>("c", (batch, Const::<4>))) reads x;
        }
    };
}

/// The same of an axis whose size only the call knows.
#[macro_export]
macro_rules! parts_of_any_length {
    ($claim:ident) => {
        $claim! {
            indices {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, d] {
                    let y = linear::<d>(x);
                    y[seq = 0] * y[seq = -1] + x[seq = 2] - y[seq = -2]
                }
            } (batch: 2, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            indices_of_several_axes {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch] {
                    let y = linear::<d>(x);
                    y[seq = 0, d = 1] * y[d = -1][seq = 1] + x[d = 0, seq = -1]
                }
            } (batch: 2, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            ranges_of_any_length {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, 2, d] {
                    let y = linear::<d>(x);
                    y[seq = 1..3] * y[seq = -2..] + x[seq = ..2] - y[seq = -3..-1]
                }
            } (batch: 2, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;
        }
    };
}
