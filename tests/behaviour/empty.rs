//! Batches, queries and keys may be empty: shapes are kept, nothing is NaN, and every parameter has a gradient.

use attn::{attention, data::LengthsPerQuery};
use dfdx::{
    optim::{Optimizer, Sgd, SgdConfig},
    prelude::*,
};
use support::{
    reference::Traced,
    tensors::{Named, flat, gradients},
};

attention! {
    struct Plain<heads = 2, d_model = 8>;
    struct Causal<heads = 4, kv_heads = 2, d_model = 8, mask = causal, position = rope, qk_norm = rms, dropout = 0.5>;
    struct Windowed<heads = 2, d_model = 8, mask = sliding_window(2) | !chunked(3), position = alibi, qk_norm = l2, bias = [o]>;
    struct Table<heads = 2, d_model = 8, mask = prefix_lm(2), position = rel_pos_bias(4, 6), softcap = 3>;
    struct Softmax1<heads = 2, d_model = 8, mask = dilated_sliding_window(2, 2), normalizer = softmax1>;
    struct Sigmoid<heads = 2, d_model = 8, mask = causal, normalizer = sigmoid>;
    struct Additive<heads = 2, d_model = 8, mask = causal, score = additive(hidden = 3)>;
    struct Bilinear<heads = 2, d_model = 8, score = bilinear, value_head_dim = 3>;
    struct Padded<heads = 2, d_model = 8, mask = padding & causal>;
    struct Packed<heads = 2, d_model = 8, mask = document>;

    struct Cross<heads = 2, d_model = 8, d_context = 6>;
    struct CrossCausal<heads = 4, kv_heads = 2, d_model = 8, d_context = 6, mask = causal(lower_right), position = rope, qk_norm = rms, dropout = 0.5>;
    struct CrossTable<heads = 2, d_model = 8, d_context = 6, position = rel_pos_bias(4, 6), qk_norm = l2, softcap = 3>;
    struct CrossAlibi<heads = 2, d_model = 8, d_context = 6, mask = sliding_window(2, symmetric, upper_left), position = alibi>;
    struct CrossSoftmax1<heads = 2, d_model = 8, d_context = 6, normalizer = softmax1>;
    struct CrossSigmoid<heads = 2, d_model = 8, d_context = 6, mask = causal(upper_left), normalizer = sigmoid>;
    struct CrossAdditive<heads = 2, d_model = 8, d_context = 6, score = additive(hidden = 3)>;
    struct CrossBilinear<heads = 2, d_model = 8, d_context = 6, score = bilinear>;
    struct CrossPadded<heads = 2, d_model = 8, d_context = 6, mask = padding>;
    struct CrossPacked<heads = 2, d_model = 8, d_context = 6, mask = document>;
}

type Batched<const M: usize> = Tensor<(usize, usize, Const<M>), f32, Cpu>;

fn ones<const M: usize>(batch: usize, len: usize) -> Batched<M> {
    Cpu::default().ones_like(&(batch, len, Const))
}

fn row<V: Unit>(value: V, len: usize) -> Tensor<(usize,), V, Cpu> {
    Cpu::default().tensor_from_vec(vec![value; len], (len,))
}

fn table<V: Unit>(value: V, rows: usize, columns: usize) -> Tensor<(usize, usize), V, Cpu> {
    Cpu::default().tensor_from_vec(vec![value; rows * columns], (rows, columns))
}

/// Differentiates the sum of `y`. dfdx cannot sum an empty tensor, which adds 0 to a loss.
fn backward<S: Shape>(y: Traced<S, f32>) -> Gradients<f32, Cpu> {
    if y.shape().num_elements() > 0 {
        return y.sum().backward();
    }
    let (_, tape) = y.split_tape();
    let loss: Tensor<Rank0, f32, Cpu> = Cpu::default().zeros();
    loss.put_tape(tape).backward()
}

/// Checks the output of a layer for empty input. It is zero before the output projection, so the rows of the output are its bias.
/// Only the bias has a gradient, of 1 for each row.
fn assert_nothing<L: TensorCollection<f32, Cpu>, S: Shape, X: Shape>(
    layer: &mut L,
    x: &Tensor<X, f32, Cpu>,
    y: Traced<S, f32>,
    bias: &[f32],
) {
    let name = std::any::type_name::<L>();
    let output = flat(&y);
    let rows = output.len() / 8;
    for row in output.chunks(8) {
        let bias: Vec<f64> = bias.iter().map(|&b| b.into()).collect();
        assert_eq!(row, bias, "{name}");
    }
    let computed = backward(y);
    let of_x = flat(&computed.get(x));
    assert!(of_x.iter().all(|&g| g == 0.0), "{name}: {of_x:?}");
    for Named {
        name: parameter,
        dims,
        values,
    } in gradients(layer, &computed)
    {
        let expected = if parameter == "o_proj.bias" {
            rows as f64
        } else {
            0.0
        };
        assert_eq!(
            values,
            vec![expected; dims.iter().product()],
            "{name}: {parameter}"
        );
    }
    Sgd::new(layer, SgdConfig::default())
        .update(layer, &computed)
        .expect("every parameter has a gradient");
}

/// A layer whose output bias is not 0, and this bias.
macro_rules! layer {
    ($Layer:ident) => {{
        let mut layer = Cpu::default().build_module::<$Layer, f32>();
        layer.o_proj.bias = Cpu::default().tensor([1.0, -2.0, 3.0, -4.0, 5.0, -6.0, 7.0, -8.0]);
        layer
    }};
}

/// Runs a self-attention on empty batches and sequences. `$input` makes its input from `x`, batch and length.
macro_rules! assert_self_attention {
    ($Layer:ident, |$x:ident, $b:ident, $s:ident| $input:expr, |$y:ident, $len:ident| $unbatched:expr) => {{
        for ($b, $s) in [(0, 3), (2, 0), (0, 0)] {
            let mut layer = layer!($Layer);
            let bias = layer.o_proj.bias.as_vec();
            let x = ones::<8>($b, $s);
            let call = |$x| $input;
            let dims = [$b, $s, 8];

            let y = layer.forward(call(x.leaky_trace()));
            assert_eq!(y.shape().concrete(), dims);
            assert_nothing(&mut layer.clone(), &x, y, &bias);
            let y = layer.forward_mut(call(x.leaky_trace()));
            assert_eq!(y.shape().concrete(), dims);
            assert_nothing(&mut layer.clone(), &x, y, &bias);
            let (y, weights) = layer.forward_with_weights(call(x.leaky_trace()));
            assert_eq!(y.shape().concrete(), dims);
            assert_eq!(weights.shape().concrete(), [$b, $Layer::HEADS, $s, $s]);
            assert_nothing(&mut layer, &x, y, &bias);
        }
        let mut layer = layer!($Layer);
        let bias = layer.o_proj.bias.as_vec();
        let x: Tensor<(usize, Const<8>), f32, _> = Cpu::default().ones_like(&(0, Const));
        let call = |$y, $len: usize| $unbatched;
        let (y, weights) = layer.forward_with_weights(call(x.leaky_trace(), 0));
        assert_eq!(y.shape().concrete(), [0, 8]);
        assert_eq!(weights.shape().concrete(), [$Layer::HEADS, 0, 0]);
        assert_nothing(&mut layer, &x, y, &bias);
    }};
    ($($Layer:ident),+) => {
        $(assert_self_attention!($Layer, |x, _b, _s| x, |x, _s| x);)+
    };
}

/// As `assert_self_attention!`, for a cross-attention.
macro_rules! assert_cross_attention {
    (
        $Layer:ident, |$x:ident, $context:ident, $b:ident, $q:ident, $k:ident| $input:expr,
        |$y:ident, $other:ident, $queries:ident, $keys:ident| $unbatched:expr
    ) => {{
        for ($b, $q, $k) in [(0, 3, 4), (2, 0, 4), (2, 3, 0), (2, 0, 0), (0, 3, 0), (0, 0, 0)] {
            let mut layer = layer!($Layer);
            let bias = layer.o_proj.bias.as_vec();
            let x = ones::<8>($b, $q);
            let context = ones::<6>($b, $k);
            let call = |$x, $context: Batched<6>| $input;
            let dims = [$b, $q, 8];

            let y = layer.forward(call(x.leaky_trace(), context.clone()));
            assert_eq!(y.shape().concrete(), dims);
            assert_nothing(&mut layer.clone(), &x, y, &bias);
            let y = layer.forward_mut(call(x.leaky_trace(), context.clone()));
            assert_eq!(y.shape().concrete(), dims);
            assert_nothing(&mut layer.clone(), &x, y, &bias);
            let (y, weights) = layer.forward_with_weights(call(x.leaky_trace(), context.clone()));
            assert_eq!(y.shape().concrete(), dims);
            assert_eq!(weights.shape().concrete(), [$b, $Layer::HEADS, $q, $k]);
            let tape = backward(y);
            assert!(flat(&tape.get(&context)).iter().all(|&g| g == 0.0));
        }
        for ($queries, $keys) in [(0, 4), (3, 0), (0, 0)] {
            let mut layer = layer!($Layer);
            let bias = layer.o_proj.bias.as_vec();
            let x: Tensor<(usize, Const<8>), f32, _> = Cpu::default().ones_like(&($queries, Const));
            let context: Tensor<(usize, Const<6>), f32, _> = Cpu::default().ones_like(&($keys, Const));
            let call = |$y, $other| $unbatched;
            let (y, weights) = layer.forward_with_weights(call(x.leaky_trace(), context));
            assert_eq!(y.shape().concrete(), [$queries, 8]);
            assert_eq!(weights.shape().concrete(), [$Layer::HEADS, $queries, $keys]);
            assert_nothing(&mut layer, &x, y, &bias);
        }
    }};
    ($($Layer:ident),+) => {
        $(assert_cross_attention!($Layer, |x, c, _b, _q, _k| (x, c), |x, c, _q, _k| (x, c));)+
    };
}

#[test]
fn self_attention_accepts_empty_input() {
    assert_self_attention!(Plain, Causal, Windowed, Table);
    assert_self_attention!(Softmax1, Sigmoid, Additive, Bilinear);
}

#[test]
fn self_attention_accepts_empty_input_and_mask_data() {
    assert_self_attention!(Padded, |x, b, s| (x, row(s, b)), |x, s| (x, s));
    assert_self_attention!(
        Padded,
        |x, b, s| (x, LengthsPerQuery(table(s, b, s))),
        |x, s| (x, LengthsPerQuery(row(s, s)))
    );
    assert_self_attention!(Padded, |x, b, s| (x, table(true, b, s)), |x, s| (
        x,
        row(true, s)
    ));
    assert_self_attention!(Packed, |x, b, s| (x, table(1, b, s)), |x, s| (x, row(1, s)));
}

#[test]
fn cross_attention_accepts_empty_inputs() {
    assert_cross_attention!(Cross, CrossCausal, CrossTable, CrossAlibi);
    assert_cross_attention!(CrossSoftmax1, CrossSigmoid, CrossAdditive, CrossBilinear);
}

#[test]
fn cross_attention_accepts_empty_inputs_and_mask_data() {
    assert_cross_attention!(
        CrossPadded,
        |x, c, b, _q, k| (x, c, row(k, b)),
        |x, c, _q, k| (x, c, k)
    );
    assert_cross_attention!(
        CrossPadded,
        |x, c, b, q, k| (x, c, LengthsPerQuery(table(k, b, q))),
        |x, c, q, k| (x, c, LengthsPerQuery(row(k, q)))
    );
    assert_cross_attention!(
        CrossPadded,
        |x, c, b, _q, k| (x, c, table(true, b, k)),
        |x, c, _q, k| (x, c, row(true, k))
    );
    assert_cross_attention!(
        CrossPacked,
        |x, c, b, q, k| (x, c, (table(1, b, q), table(1, b, k))),
        |x, c, q, k| (x, c, (row(1, q), row(1, k)))
    );
}

#[test]
fn sizes_of_zero_may_be_known_at_compile_time() {
    let mut layer = layer!(Causal);
    let bias = layer.o_proj.bias.as_vec();
    let x: Tensor<Rank3<2, 0, 8>, f32, _> = Cpu::default().zeros();
    let (y, weights) = layer.forward_with_weights(x.leaky_trace());
    let weights: Tensor<Rank4<2, 4, 0, 0>, f32, _, _> = weights;
    assert!(flat(&weights).is_empty());
    let y: Traced<Rank3<2, 0, 8>, f32> = y;
    assert_nothing(&mut layer, &x, y, &bias);
}

#[test]
fn a_residual_of_empty_input_is_empty() {
    let model = Cpu::default().build_module::<(Residual<Causal>, Linear<8, 3>), f32>();
    let x = ones::<8>(0, 3);
    let y: Batched<8> = model.0.forward(x);
    assert_eq!(y.shape().concrete(), [0, 3, 8]);
}
