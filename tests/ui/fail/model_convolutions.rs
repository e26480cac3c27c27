//! Mistakes with convolutions: windows, paddings, channels, and the axis of the result.

use attn::model;

model! {
    struct OneAxis<d = 8, n = 12>;
    fn forward(x: [batch, seq, d], fixed: [batch, n, d], mel: [batch, d, seq], tokens: ids[batch, seq]) -> [batch, seq, d] {
        let a = conv1d::<seq, d>(x);
        let b = conv1d::<seq, d, [3, 3], padding = same>(x);
        let c = conv1d::<seq, d, 3, padding = same, groups = 3>(x);
        let e = conv1d::<seq, 12, 3, padding = same, groups = 8>(x);
        let f = conv1d::<seq, d, 3, padding = same, stride = 2>(x);
        let g = conv1d::<time, d, 3, padding = same>(x);
        let h = conv1d::<n, d, kernel = 13>(fixed);
        let i = conv1d::<n, d, kernel = 5, dilation = 4, padding = 2>(fixed);
        let j = conv1d::<seq, d, 3>(x);
        let k = conv1d::<seq, d, 3, stride = 2, to = batch>(x);
        let l = conv1d::<seq, d, 3, padding = 1>(mel);
        let m = conv1d::<d, d, 3, padding = same>(x);
        let o = conv1d::<seq, d, 3, padding = valid>(x);
        let p = conv1d::<seq, d, 3, padding = same, padding_mode = reflect>(x);
        let q = conv1d::<seq, d, 0>(x);
        let r = conv1d::<seq, d, 3, padding = same>(tokens);
        let s = conv1d::<seq, d, 3, padding = same>(x, x);
        let t = conv1d::<seq, kernel = 3, padding = same>(x);
        let u = conv1d::<seq, d, 3, padding = [1, 2], to = more>(x);
        let v = conv_transpose1d::<seq, d, 4, stride = 2, padding = 1>(x);
        let w = conv_transpose1d::<n, d, 3, stride = 2, output_padding = 2>(fixed);
        let y = conv_transpose1d::<n, d, 1, padding = 7>(fixed);
        let z = conv_transpose1d::<seq, d, 3, padding = same>(x);
        x + a + b + c + e + f + g + h + i + j + k + l + m + o + p + q + r + s + t + u + v + w + y + z
    }
}

model! {
    struct TwoAxes<c = 3>;
    fn forward(image: [batch, c, height, width]) -> [batch, c, height, width] {
        let a = conv2d::<height, c, 3, padding = same, channels = c>(image);
        let b = conv2d::<[height, width], c, [3, 3, 3], padding = same, channels = c>(image);
        let d = conv2d::<[height, width], c, 3, padding = causal, channels = c>(image);
        let e = conv2d::<[height, width], c, 3, channels = c, to = rows>(image);
        let f = conv2d::<[height, width], c, 3, channels = c>(image);
        let g = conv2d::<[height, width], c, 3, padding = same>(image);
        let h = conv2d::<[height, height], c, 3, padding = same, channels = c>(image);
        let i = conv2d::<[height, width], c, 3, padding = same, channels = channel>(image);
        let j = conv1d::<[height, width], c, 3, padding = same, channels = c>(image);
        let k = conv3d::<[height, width], c, 3>(image);
        image + a + b + d + e + f + g + h + i + j + k
    }
}

const GROUPS: usize = 3;
const KERNEL: usize = 13;
const STRIDE: usize = 2;

model! {
    struct Constants<d = 8, n = 12>;
    fn forward(x: [batch, n, d]) -> [batch, n, d] {
        let a = conv1d::<n, d, 3, padding = same, groups = GROUPS>(x);
        let b = conv1d::<n, d, 3, padding = same, stride = STRIDE>(x);
        let _c = conv1d::<n, d, KERNEL>(x);
        a + b
    }
}

model! {
    struct Session<vocab = 5, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        linear::<vocab>(conv1d::<seq, d, kernel = 3, padding = same>(x))
    }
}

fn main() {
    let model = attn::dfdx::prelude::DeviceBuildExt::build_module::<Session, f32>(&attn::AutoDevice::default());
    let _session = model.session(5);
}
