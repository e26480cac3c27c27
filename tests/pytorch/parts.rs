//! Parts of values, values side by side, axes in another order and of other sizes, and products over axes.

cases! {
    concatenated {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d], y: [batch, seq, 2]) -> [batch, seq, 10] { concat(x, y, 2 * x) }
    } (x: floats[_, _, 4], y: floats[_, _, 2]);

    concatenated_along_other_axes {
        struct M<rows = 3, all = 6, d = 4>;
        fn forward(x: [batch, rows, d]) -> [batch, all, d] {
            param token: [1, d] = normal(0.02);
            concat::<all>(token, x, x[rows = 1..])
        }
    } (x: floats[_, 3, 4]);

    permuted {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> ([d, batch, seq], [seq, batch, d]) {
            (2 * permute::<[d, batch, seq]>(x), tanh(permute::<[seq, batch, d]>(x)))
        }
    } (x: floats[_, _, 4]);

    split_in_parts {
        struct M<rows = 6, d = 4>;
        fn forward(x: [batch, rows, d]) -> [batch, 2, 2] {
            let (a, b) = split(x);
            let (d, e, f) = split::<rows>(a * sigmoid(b));
            d - e * f
        }
    } (x: floats[_, 6, 4]);

    indices_and_ranges {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> ([batch, d], [batch, 2, 2]) {
            let middle = x[seq = 1..3, d = 2..] * x[seq = -2.., d = ..2] + x[seq = 3..5, d = 1..3];
            (x[seq = 0] * x[seq = -1] - x[seq = -2, d = 1] * sum::<d>(x[batch = 0, seq = 2]), middle)
        }
    } (x: floats[_, _, 4]);

    axes_in_parts_and_in_one {
        struct M<d = 8, heads = 2, width = 4>;
        fn forward(x: [batch, seq, d]) -> ([batch, heads, seq, width], [batch, d, seq]) {
            let parts = rearrange::<[batch, seq, (heads, width)] -> [batch, heads, seq, width]>(x);
            (tanh(parts), rearrange::<[batch, d = (heads, width), seq]>(parts))
        }
    } (x: floats[_, _, 8]);

    stacked {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d], y: [batch, seq, d]) -> [batch, seq, 3, d] { stack::<[batch, seq, 3, d]>(x, x * y, y) }
    } (x: floats[_, _, 4], y: floats[_, _, 4]);

    expanded_and_marked {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d], keep: bool[batch, seq], time: ids[batch]) -> ([batch, seq, d], [batch, seq, d]) {
            param w: [1, d] = ones;
            let wide = expand::<[batch, seq, d]>(w[1 = 0]);
            let marked = if keep || time < 2 { x } else { wide };
            (softmax::<seq>(wide) * x, marked * (float(time) + float(keep)))
        }
    } (x: floats[_, _, 4], keep: bools[_, _], time: ids[_]);

    padded_and_shifted {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> ([batch, seq, 7], [batch, seq, d]) {
            (pad::<d, before = 1, after = 2, value = 0.5>(x), shift::<seq, 1>(x) * shift::<seq, -1>(x))
        }
    } (x: floats[_, _, 4]);

    sliding_windows {
        struct M<rows = 7, d = 4>;
        fn forward(x: [batch, rows, d]) -> [batch, 3, 3, d] { tanh(windows::<rows, size = 3, step = 2>(x)) }
    } (x: floats[_, 7, 4]);

    products_over_axes {
        struct M<d = 4, e = 6>;
        fn forward(x: [batch, seq, d], y: [batch, k, d]) -> ([batch, seq, e], [batch, k, seq]) {
            param w: [d, e] = normal(0.5);
            (einsum::<[batch, seq, e]>(x, w), einsum::<[batch, k, seq]>(x, y))
        }
    } (x: floats[_, _, 4], y: floats[_, _, 4]);

    products_of_three_and_with_itself {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d], y: [batch, d]) -> ([batch, seq, seq], [batch]) {
            let gram = einsum::<[batch, seq, other]>(x, x as [batch, other = seq, d]);
            (gram, einsum::<[batch]>(x, y, x))
        }
    } (x: floats[_, _, 4], y: floats[_, 4]);
}
