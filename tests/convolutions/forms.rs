//! Both forms, gradients and memory.

use super::checked;

checked! {
    a_strided_convolution {
        struct M<d = 3>;
        fn forward(x: [batch, seq, d]) -> [batch, frames, 4] {
            gelu(conv1d::<seq, 4, 3, stride = 2, padding = 1, to = frames>(layer_norm(x)))
        }
    } (batch: 2 [0, 1], seq: 5 [1, 2]) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;

    a_causal_block {
        struct M<d = 4, kernel = 3>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let y = conv1d::<seq, d, kernel, padding = causal, dilation = 2, groups = d>(x);
            x + conv1d::<seq, d, kernel = 1, groups = 2, bias = false, name = mix>(silu(y))
        }
    } (batch: 2 [0, 1], seq: 4 [0, 1]) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;

    as_long_as_the_operand {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, 8] {
            conv1d::<seq, 8, 4, padding = same, groups = d>(conv1d::<seq, d, 6, padding = same>(x))
        }
    } (batch: 2 [0, 1], seq: 4 [0, 1, 2]) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;

    a_stride_longer_than_the_kernel {
        struct M<d = 3>;
        fn forward(x: [batch, d, seq]) -> [batch, 2, few] {
            conv1d::<seq, out = 2, kernel = 2, stride = 5, channels = d, to = few>(x)
        }
    } (batch: 2 [0, 1], seq: 8 [2, 7]) (x: tensor::<_, E>("x", (batch, Const::<3>, seq))) reads x;

    patches_of_images {
        struct M<c = 3, height = 4, width = 6, d = 5>;
        fn forward(image: [batch, c, height, width]) -> [batch, 6, d] {
            let x = conv2d::<[height, width], out = d, kernel = 2, stride = 2, channels = c, to = [rows, columns]>(image);
            rearrange::<[batch, (rows, columns), d]>(x)
        }
    } (batch: 2 [0, 1]) (image: tensor::<_, E>("x", (batch, Const::<3>, Const::<4>, Const::<6>))) reads image;

    images_of_any_size {
        struct M<c = 4>;
        fn forward(x: [batch, h, w, c]) -> [batch, rows, columns, 6] {
            let y = conv2d::<[h, w], out = 6, kernel = [1, 3], padding = same, groups = 2>(x);
            conv2d::<[h, w], 6, [3, 2], stride = [2, 1], padding = [1, 0], to = [rows, columns], name = down>(tanh(y))
        }
    } (batch: 2 [0, 1], h: 3 [1, 2], w: 4 [2]) (x: tensor::<_, E>("x", (batch, h, w, Const::<4>))) reads x;

    a_longer_axis {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, longer, 2] {
            let y = conv_transpose1d::<seq, d, 4, stride = 2, padding = 1, to = twice>(x);
            conv_transpose1d::<twice, 2, 3, dilation = 2, groups = 2, bias = false, to = longer, name = more>(gelu(y))
        }
    } (batch: 2 [0, 1], seq: 3 [0, 1]) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;

    an_axis_in_halves_and_whole_again {
        struct M<c = 3>;
        fn forward(x: [batch, seq, c]) -> [batch, seq, c] {
            let h = rearrange::<[batch, (half, 2), c] -> [batch, half, (2, c)]>(x);
            x + conv_transpose1d::<half, c, 2, stride = 2>(gelu(h))
        }
    } (batch: 2 [0, 1], seq: 4 [2, 6]) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;

    larger_images {
        struct M<c = 3>;
        fn forward(x: [batch, c, h, w]) -> [batch, 2, rows, columns] {
            conv_transpose2d::<[h, w], 2, [3, 2], stride = 2, padding = [1, 0], output_padding = [1, 0], channels = c, to = [rows, columns]>(x)
        }
    } (batch: 2 [0, 1], h: 2 [1], w: 3 [1]) (x: tensor::<_, E>("x", (batch, Const::<3>, h, w))) reads x;

    an_axis_behind_the_others {
        struct M<c = 4>;
        fn forward(x: [batch, c, h, w]) -> [batch, 2, longer, w] {
            conv1d::<h, out = 2, kernel = 2, padding = 1, channels = c, to = longer>(x)
        }
    } (batch: 2 [0, 1], h: 2 [0, 1], w: 3 [1]) (x: tensor::<_, E>("x", (batch, Const::<4>, h, w))) reads x;
}
