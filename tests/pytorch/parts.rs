//! Parts of values, values side by side, and axes in another order.

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
}
