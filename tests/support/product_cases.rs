//! Models of products over axes by name, and of axes with other names.
//!
//! The notation is that of [`cases`](crate::cases).

/// Products of inputs, of learned tensors, of a value and itself, in rounds, and of several operands.
#[macro_export]
macro_rules! products {
    ($claim:ident) => {
        $crate::products_of_learned_tensors!($claim);
        $crate::products_of_values!($claim);
        $crate::products_of_renamed_axes!($claim);
    };
}

#[macro_export]
macro_rules! products_of_learned_tensors {
    ($claim:ident) => {
        $claim! {
            a_map_of_the_last_axis {
                struct M<d = 5, e = 3>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, e] {
                    param w: [d, e] = normal(0.5);
                    einsum::<[batch, seq, e]>(layer_norm(x), w)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            maps_to_heads_and_back {
                struct M<d = 5, heads = 2, width = 3>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    param to_heads: [d, heads, width] = normal(0.5);
                    param back: [heads, d, width] = normal(0.5);
                    let y = einsum::<[batch, heads, seq, width]>(x, to_heads);
                    x + einsum::<[batch, seq, d]>(gelu(y), back)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            a_mix_of_tokens_in_rounds {
                struct M<d = 4, rows = 3, mixed = 3>;
                fn forward(x: [batch, rows, d]) -> [batch, rows, d] {
                    let mut x = x;
                    repeat 2 {
                        param w: [rows, mixed] = normal(0.5);
                        x += einsum::<[batch, mixed, d]>(w, layer_norm(x));
                    }
                    x
                }
            } (batch: 2) (x: tensor::<_, E>("x", (batch, Const::<3>, Const::<4>))) reads x;

            a_bilinear_form {
                struct M<d = 4, e = 3>;
                fn forward(x: [batch, seq, d], y: [batch, e]) -> [batch, seq] {
                    param w: [e, d] = normal(0.5);
                    einsum::<[batch, seq]>(tanh(x), w, y)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>)), tensor::<_, E>("y", (batch, Const::<3>))) reads x;
        }
    };
}

#[macro_export]
macro_rules! products_of_values {
    ($claim:ident) => {
        $claim! {
            sums_and_orders_of_one_value {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [d, batch] {
                    let y = gelu(x);
                    einsum::<[d, batch]>(y) + einsum::<[d]>(y) * einsum::<[]>(x)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            axes_of_one_value_alone_are_summed_first {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], y: [batch, keys, d]) -> [d, batch] {
                    einsum::<[d, batch]>(gelu(x), y) + einsum::<[batch, d]>(x, gelu(y))
                }
            } (batch: 2, seq: 3, keys: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), tensor::<_, E>("y", (batch, keys, Const::<5>))) reads x;

            outer_products {
                struct M<d = 5, e = 3>;
                fn forward(x: [batch, d], y: [batch, e], z: [e]) -> [e, batch, d] {
                    let y = gelu(y);
                    einsum::<[e, batch, d]>(x, y) * einsum::<[batch, d, e]>(sigmoid(x), z)
                }
            } (batch: 2) (x: tensor::<_, E>("x", (batch, Const::<5>)), tensor::<_, E>("y", (batch, Const::<3>)), tensor::<_, E>("z", (Const::<3>,))) reads x;

            products_that_are_summed_over_nothing {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], y: [d, seq]) -> [seq, batch, d] {
                    einsum::<[seq, batch, d]>(gelu(x), tanh(y))
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), tensor::<_, E>("y", (Const::<5>, seq))) reads x;

            dots_of_vectors {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], y: [seq, d, batch]) -> [batch, seq] {
                    let dots = einsum::<[batch, seq]>(gelu(x), y) * einsum::<[seq]>(x, y);
                    dots + einsum::<[]>(x, x)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), tensor::<_, E>("y", (seq, Const::<5>, batch))) reads x;

            several_operands {
                struct M<d = 4, e = 3>;
                fn forward(x: [batch, seq, d], y: [seq, e], z: [batch, e, d]) -> [e, d] {
                    einsum::<[e, d]>(gelu(x), y, z, x)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>)), tensor::<_, E>("y", (seq, Const::<3>)), tensor::<_, E>("z", (batch, Const::<3>, Const::<4>))) reads x;

            products_with_itself {
                struct M<d = 4>;
                fn forward(x: [batch, seq, d]) -> [batch, seq] {
                    let y = linear::<d>(x);
                    einsum::<[batch, seq]>(y, y) + einsum::<[batch, seq]>(y, x, y)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;
        }
    };
}

#[macro_export]
macro_rules! products_of_renamed_axes {
    ($claim:ident) => {
        $claim! {
            a_gram_matrix {
                struct M<d = 4>;
                fn forward(x: [batch, seq, d]) -> [batch, d, d] {
                    let y = gelu(x);
                    einsum::<[batch, d, other]>(y, y as [batch, seq, other = d])
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;

            similarities_of_all_pairs {
                struct M<d = 4>;
                fn forward(image: [batch, d], text: [batch, d]) -> [batch, batch] {
                    param temperature: [] = 1;
                    let text = l2_norm(text);
                    exp(temperature) * einsum::<[batch, other]>(l2_norm(image), text as [other = batch, d])
                }
            } (batch: 3) (image: tensor::<_, E>("image", (batch, Const::<4>)), tensor::<_, E>("text", (batch, Const::<4>))) reads image;

            an_attention {
                struct M<d = 4, heads = 2, width = 3>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    param w_q: [d, heads, width] = normal(0.5);
                    param w_k: [d, heads, width] = normal(0.5);
                    param w_v: [d, heads, width] = normal(0.5);
                    param w_o: [heads, width, d] = normal(0.5);
                    let y = layer_norm(x);
                    let q = einsum::<[batch, seq, heads, width]>(y, w_q);
                    let y = y as [batch, kv = seq, d];
                    let k = einsum::<[batch, kv, heads, width]>(y, w_k);
                    let v = einsum::<[batch, kv, heads, width]>(y, w_v);
                    let scores = einsum::<[batch, heads, seq, kv]>(q, k) / sqrt(width);
                    x + einsum::<[batch, seq, d]>(softmax::<kv>(scores), v, w_o)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;

            squared_distances_of_all_pairs {
                struct M<d = 4>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, seq] {
                    let squares = sum::<d>(x * x);
                    let products = einsum::<[batch, seq, other]>(x, x as [batch, other = seq, d]);
                    squares - 2 * products + (squares as [batch, other = seq])
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;

            differences_and_ratios_of_all_pairs {
                struct M<>;
                fn forward(x: [n]) -> [n, n] {
                    let row = exp(x);
                    let column = x as [m = n];
                    let differences = expand::<[n, m]>(x) - column;
                    differences * differences + row / exp(column) + expand::<[n, m]>(row) * (row as [m = n])
                }
            } (n: 4) (x: tensor::<_, E>("x", (n,))) reads x;

            names_in_rounds {
                struct M<d = 4, e = 4>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    param w: [d, e] = normal(0.5);
                    let mut x = x as [batch, seq, e = d];
                    let mut y = gelu(x);
                    let mut z = sigmoid(x as [batch, seq, d = e]);
                    repeat 2 {
                        y = einsum::<[batch, seq, e]>(x as [batch, seq, d = e], w) - y;
                        x = y as [batch, token = seq, d = e];
                        z = z as [batch, token = seq, d];
                    }
                    x + y + z
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;
        }
    };
}
