//! Convolutions over one and two axes, and transposed ones.

cases! {
    strided_along_a_sequence {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d]) -> ([batch, frames, 12], [batch, few, 4]) {
            let a = conv1d::<seq, 4, 3, stride = 2, padding = 1, to = frames, name = a>(x);
            let b = conv1d::<seq, out = 8, kernel = 3, stride = 2, padding = 1, groups = 2, bias = false, to = frames, name = b>(x);
            (concat(a, b), conv1d::<seq, out = 4, kernel = 2, stride = 4, to = few, name = wide>(x))
        }
    } (x: floats[_, _, 6]);

    as_long_as_the_sequence {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d]) -> ([batch, seq, 23], [batch, seq, 12]) {
            let a = conv1d::<seq, 5, 4, padding = same, dilation = 2, name = a>(x);
            let b = conv1d::<seq, 12, 3, padding = same, groups = d, name = b>(x);
            let c = conv1d::<seq, d, 5, padding = same, groups = d, bias = false, name = d>(x);
            let past = conv1d::<seq, d, 3, padding = causal, dilation = 2, groups = 3, name = e>(x);
            (concat(a, b, c), concat(past, conv1d::<seq, d, 4, padding = causal, groups = d, name = f>(x)))
        }
    } (x: floats[_, _, 6]);

    front_of_whisper {
        struct M<n_mels = 5, d = 6>;
        fn forward(mel: [batch, n_mels, seq]) -> [batch, frames, d] {
            let x = gelu(conv1d::<seq, d, 3, padding = 1, channels = n_mels, name = conv1>(mel));
            let x = gelu(conv1d::<seq, d, 3, stride = 2, padding = 1, channels = d, to = frames, name = conv2>(x));
            permute::<[batch, frames, d]>(x)
        }
    } (mel: floats[_, 5, _]);

    over_images {
        struct M<c = 4>;
        fn forward(x: [batch, c, height, width]) -> ([batch, 6, rows, columns], [batch, 6, h, w]) {
            let patches = conv2d::<[height, width], 6, [3, 4], stride = [3, 4], channels = c, to = [rows, columns], name = patches>(x);
            let a = conv2d::<
                [height, width], out = 6, kernel = [3, 2], stride = [2, 1], padding = [1, 2], dilation = [1, 3], groups = 2,
                channels = c, to = [h, w], name = a,
            >(x);
            (patches, tanh(a))
        }
    } (x: floats[_, 4, _, _]);

    over_images_with_the_channels_last {
        struct M<height = 5, width = 6, c = 4>;
        fn forward(x: [batch, height, width, c]) -> ([batch, height, width, 14], [batch, 1, 3, c]) {
            let a = conv2d::<[height, width], 6, 3, padding = same, name = a>(x);
            let b = conv2d::<[height, width], 8, [3, 2], padding = same, dilation = 2, groups = c, bias = false, name = b>(x);
            let d = conv2d::<[height, width], out = c, kernel = [5, 3], stride = 2, padding = [0, 1], groups = c, name = d>(x);
            (concat(a, b), d)
        }
    } (x: floats[_, 5, 6, 4]);

    transposed_along_a_sequence {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d]) -> ([batch, twice, 10], [batch, longer, d]) {
            let a = conv_transpose1d::<seq, 4, 3, stride = 2, padding = 1, output_padding = 1, to = twice, name = a>(x);
            let b = conv_transpose1d::<seq, out = d, kernel = 4, stride = 2, padding = 1, groups = 2, bias = false, to = twice, name = b>(x);
            (concat(a, b), conv_transpose1d::<seq, out = d, kernel = 3, dilation = 2, groups = d, to = longer, name = d>(x))
        }
    } (x: floats[_, _, 6]);

    transposed_over_images {
        struct M<c = 4>;
        fn forward(x: [batch, c, height, width]) -> ([batch, 6, rows, columns], [batch, 3, h, w]) {
            let a = conv_transpose2d::<[height, width], 6, [2, 3], stride = [2, 3], groups = 2, channels = c, to = [rows, columns], name = a>(x);
            let b = conv_transpose2d::<
                [height, width], out = 3, kernel = [3, 2], stride = 2, padding = [1, 0], output_padding = [1, 0], dilation = [2, 1],
                channels = c, to = [h, w], name = b,
            >(x);
            (a, b)
        }
    } (x: floats[_, 4, _, _]);

    other_orders_of_axes {
        struct M<c = 4>;
        fn forward(x: [batch, c, height, width]) -> ([batch, 6, more, width], [batch, 4, rows, columns]) {
            let a = conv1d::<height, 6, 2, padding = 1, channels = c, to = more, name = rows>(x);
            (a, conv2d::<[width, height], 4, [3, 2], channels = c, to = [columns, rows], name = turned>(x))
        }
    } (x: floats[_, 4, _, _]);
}
