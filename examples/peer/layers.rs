//! Layers that are written in `model!`, as benchmarks of several libraries time them: forward, and backward from a given gradient.

use anyhow::{Result, bail};
use attn::{backward, dfdx::prelude::*, model};

use crate::{number, times};

model! {
    struct Gru<d = 256, hidden = 256>;

    fn forward(x: [batch, seq, d]) -> [batch, seq, hidden] {
        scan seq {
            state h: [batch, hidden] = 0.0;
            let (xr, xz, xn) = split(linear::<{ 3 * hidden }, name = ih>(x));
            let (hr, hz, hn) = split(linear::<{ 3 * hidden }, name = hh>(h));
            let z = sigmoid(xz + hz);
            h = (1 - z) * tanh(xn + sigmoid(xr + hr) * hn) + z * h;
            yield h;
        }
    }
}

model! {
    struct Lstm<d = 256, hidden = 256>;

    fn forward(x: [batch, seq, d]) -> [batch, seq, hidden] {
        scan seq {
            state h: [batch, hidden] = 0.0;
            state c: [batch, hidden] = 0.0;
            let (i, f, g, o) = split(linear::<{ 4 * hidden }, name = ih>(x) + linear::<{ 4 * hidden }, name = hh>(h));
            c = sigmoid(f) * c + sigmoid(i) * tanh(g);
            h = sigmoid(o) * tanh(c);
            yield h;
        }
    }
}

model! {
    /// The front of Whisper tiny, without the last activation.
    struct Conv1d<n_mels = 80, d = 384>;

    fn forward(mel: [batch, n_mels, seq]) -> [batch, d, frames] {
        let x = gelu(conv1d::<seq, d, 3, padding = 1, channels = n_mels, name = conv1>(mel));
        conv1d::<seq, d, 3, stride = 2, padding = 1, channels = d, to = frames, name = conv2>(x)
    }
}

model! {
    struct Second<d = 384>;

    fn forward(x: [batch, d, seq]) -> [batch, d, frames] {
        conv1d::<seq, d, 3, stride = 2, padding = 1, channels = d, to = frames>(x)
    }
}

model! {
    /// The patches of images for a transformer.
    struct Conv2d<c = 3, height = 224, width = 224, d = 384>;

    fn forward(image: [batch, c, height, width]) -> [batch, d, 14, 14] {
        conv2d::<[height, width], d, kernel = 16, stride = 16, channels = c>(image)
    }
}

model! {
    /// A block of a residual network.
    struct Residual<c = 64, height = 56, width = 56>;

    fn forward(x: [batch, c, height, width]) -> [batch, c, height, width] {
        let y = conv2d::<[height, width], c, 3, padding = 1, channels = c, bias = false, name = conv1>(x);
        let y = relu(group_norm::<8, axis = c, name = norm1>(y));
        let y = conv2d::<[height, width], c, 3, padding = 1, channels = c, bias = false, name = conv2>(y);
        relu(x + group_norm::<8, axis = c, name = norm2>(y))
    }
}

model! {
    struct Depthwise<c = 96, height = 56, width = 56>;

    fn forward(x: [batch, c, height, width]) -> [batch, c, height, width] {
        conv2d::<[height, width], c, 7, padding = 3, groups = c, channels = c>(x)
    }
}

model! {
    /// The loss is that of a given gradient of the output.
    struct NoWeights<heads = 8, d = 64>;

    fn forward(q: [batch, heads, seq, d], k: [batch, heads, seq, d], v: [batch, heads, seq, d], upstream: [batch, heads, seq, d]) -> [] {
        sum::<[batch, heads, seq, d]>(attend(q, k, v) * upstream)
    }
}

model! {
    /// The weights are a result, and their mean square is a part of the loss.
    struct Weights<heads = 8, d = 64>;

    fn forward(q: [batch, heads, seq, d], k: [batch, heads, seq, d], v: [batch, heads, seq, d], upstream: [batch, heads, seq, d]) -> [] {
        let (y, weights) = attend(q, k, v);
        sum::<[batch, heads, seq, d]>(y * upstream) + sum::<[batch, heads, seq]>(mean::<kv>(weights * weights))
    }
}

model! {
    /// That part alone, of given weights.
    struct LossOfWeights<heads = 8>;

    fn forward(weights: [batch, heads, seq, kv]) -> [] { sum::<[batch, heads, seq]>(mean::<kv>(weights * weights)) }
}

model! {
    struct Attention<heads = 8, d_model = 512>;

    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] { attention::<heads, d_model, mask = causal>(x) }
}

model! {
    /// The same layer in its parts.
    struct Attend<heads = 8, width = 64, d_model = 512>;

    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        let q = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<d_model, name = q_proj>(x));
        let k = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<d_model, name = k_proj>(x));
        let v = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<d_model, name = v_proj>(x));
        let y = attend::<mask = causal>(q, k, v);
        linear::<d_model, name = o_proj>(rearrange::<[batch, seq, (heads, width)]>(y))
    }
}

/// Times a model of one input and one result.
macro_rules! layer {
    ($pass:expr, $Model:ident: $shape:expr) => {{
        let dev = Cpu::seed_from_u64(1);
        let model = dev.build_module::<$Model, f32>();
        let x = dev.sample_normal_like(&$shape);
        let of = model.forward(x.clone());
        let upstream = dev.sample_normal_like(of.shape());
        match $pass {
            Pass::Forward => times(|| drop(model.forward(x.clone()))),
            Pass::Both => times(|| drop(backward(model.forward(x.leaky_trace()), &upstream))),
        }
    }};
}

/// Times a loss of attention.
macro_rules! loss {
    ($Model:ident: $length:expr) => {{
        let [q, k, v, upstream] = heads($length);
        let model = Cpu::default().build_module::<$Model, f32>();
        times(|| {
            let loss = model.forward((q.leaky_trace(), k.clone(), v.clone(), upstream.clone()));
            drop(loss.backward());
        })
    }};
}

/// What of a layer is timed.
#[derive(Clone, Copy)]
enum Pass {
    /// The forward pass, without a tape.
    Forward,
    /// The forward and the backward pass.
    Both,
}

/// The times of a case of `w5` to `w8`.
pub(crate) fn run(case: &[&str]) -> Result<Vec<f64>> {
    let (pass, case) = match case {
        [case @ .., "forward"] => (Pass::Forward, case),
        case => (Pass::Both, case),
    };
    Ok(match case {
        ["w5", "gru"] => layer!(pass, Gru: (8, 128, Const)),
        ["w5", "lstm"] => layer!(pass, Lstm: (8, 128, Const)),
        ["w6", "conv1d"] => layer!(pass, Conv1d: (1, Const, 3000)),
        ["w6", "conv1d", "second"] => layer!(pass, Second: (1, Const, 3000)),
        ["w6", "conv2d"] => layer!(pass, Conv2d: (8, Const, Const, Const)),
        ["w6", "residual"] => layer!(pass, Residual: (8, Const, Const, Const)),
        ["w6", "depthwise"] => layer!(pass, Depthwise: (8, Const, Const, Const)),
        ["w7", "no", "weights", length] => loss!(NoWeights: number(length, 's')?),
        ["w7", "weights", length] => loss!(Weights: number(length, 's')?),
        ["w7", "loss", length] => loss_of_weights(number(length, 's')?),
        ["w8", "attention"] => layer!(pass, Attention: (4, 512, Const)),
        ["w8", "attend"] => layer!(pass, Attend: (4, 512, Const)),
        _ => bail!("there is no case `{}`: see `--help`", case.join("_")),
    })
}

type Heads = Tensor<(usize, Const<8>, usize, Const<64>), f32, Cpu>;

/// Queries, keys, values, and the gradient of the result.
fn heads(length: usize) -> [Heads; 4] {
    let dev = Cpu::seed_from_u64(1);
    [(); 4].map(|()| dev.sample_normal_like(&(1, Const, length, Const)))
}

fn loss_of_weights(length: usize) -> Vec<f64> {
    let dev = Cpu::seed_from_u64(1);
    let weights: Tensor<(usize, Const<8>, usize, usize), f32, Cpu> =
        dev.sample_normal_like(&(1, Const, length, length));
    let model = dev.build_module::<LossOfWeights, f32>();
    times(|| drop(model.forward(weights.leaky_trace()).backward()))
}
