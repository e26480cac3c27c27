//! Rotary embeddings of `transformers`.

use super::*;
use attn::attention;

type X = Tensor<Rank3<2, 12, 32>, f32, Cpu>;

/// A layer, and what both forms compute of the input of all cases. With positions these are passed, too.
macro_rules! cases {
    ($($case:ident, $Layer:ident, [$($rope:tt)*] $(, $positions:expr)?;)*) => {$(
        attention! {
            struct $Layer<heads = 2, d_model = 32, mask = causal, bias = false, position = $($rope)*>;
        }

        #[test]
        fn $case() {
            let values = Values::read();
            let dev = Cpu::default();
            let mut layer = dev.build_module::<$Layer, f32>();
            layer.q_proj.weight = values.tensor("rope.q");
            layer.k_proj.weight = values.tensor("rope.k");
            layer.v_proj.weight = values.tensor("rope.v");
            layer.o_proj.weight = values.tensor("rope.o");
            let x: X = values.tensor("rope.x");
            let expected = concat!("rope.", stringify!($case), ".y");
            let input = cases!(x.clone() $(, $positions(&dev))?);
            values.assert_close(expected, &layer.forward(input));
            let input = cases!(x $(, $positions(&dev))?);
            values.assert_close(expected, &layer.composed().forward(input));
        }
    )*};
    ($x:expr) => { $x };
    ($x:expr, $positions:expr) => { ($x, $positions) };
}

const FACTOR: f64 = 2.5;
const ORIGINAL_MAX_LEN: usize = 64;
const DIMS: usize = 6;
const SHORT: [f64; 8] = [1.0, 1.02, 1.03, 1.05, 1.1, 1.25, 1.5, 2.0];
const LONG: &[f64] = &[1.05, 1.1, 1.25, 1.6, 2.5, 5.0, 9.0, 15.0];

cases! {
    default, Default_, [rope];
    theta, Theta, [rope(500.0)];
    linear, Linear_, [rope(scaling = linear(FACTOR))];
    dynamic_ntk, DynamicNtk, [rope(scaling = dynamic_ntk(3, 8))];
    dynamic_ntk_short, DynamicNtkShort, [rope(scaling = dynamic_ntk(factor = 3.0, original_max_len = ORIGINAL_MAX_LEN))];
    llama3, Llama3, [rope(50.0, scaling = llama3(
        factor = 8.0, low_freq_factor = 1.0, high_freq_factor = 4.0, original_max_len = ORIGINAL_MAX_LEN
    ))];
    yarn, Yarn, [rope(scaling = yarn(4.0, 32))];
    yarn_attention_factor, YarnAttentionFactor, [rope(scaling = yarn(
        4.0, 32, attention_factor = 1.3, beta_fast = 8.0, beta_slow = 2.0
    ))];
    yarn_mscale, YarnMscale, [rope(scaling = yarn(
        4.0, 32, mscale = 0.7, mscale_all_dim = 1.4, truncate = false
    ))];
    longrope, LongRope_, [rope(scaling = longrope(SHORT, LONG, 4.0, 8))];
    longrope_short, LongRopeShort, [rope(scaling = longrope(
        short_factor = &SHORT, long_factor = LONG, factor = 4.0, original_max_len = ORIGINAL_MAX_LEN
    ))];
    longrope_attention_factor, LongRopeAttentionFactor, [rope(dims = 4, scaling = longrope(
        [1.0, 1.25], [1.5, FACTOR], 4.0, 11, attention_factor = 1.3
    ))];
    dims, Dims, [rope(dims = DIMS)];
    interleaved, Interleaved, [rope(interleaved = true)];
    interleaved_dims, InterleavedDims, [rope(interleaved, dims = 10)];
    left_padded, LeftPadded, [rope(position_ids)], left_padded_positions;
    far, Far, [rope(dims = 8, position_ids = true)], far_positions;
}

fn left_padded_positions(dev: &Cpu) -> Tensor<Rank2<2, 12>, usize, Cpu> {
    let of = |at: usize| {
        if at < 12 {
            at
        } else {
            (at - 12).saturating_sub(5)
        }
    };
    dev.tensor_from_vec((0..24).map(of).collect(), (Const, Const))
}

/// Of all sequences.
fn far_positions(dev: &Cpu) -> Tensor<Rank1<12>, usize, Cpu> {
    dev.tensor_from_vec((0..12).map(|at| 7 * at + 100).collect(), (Const,))
}

/// `ntk` has the factor that `dynamic_ntk` works out for the length.
#[test]
fn ntk_is_dynamic_ntk_at_its_length() {
    attention! {
        struct Ntk<heads = 2, d_model = 32, mask = causal, bias = false, position = rope(scaling = ntk(3.0 * 12.0 / 8.0 - 2.0))>;
    }
    let values = Values::read();
    let mut layer = Cpu::default().build_module::<Ntk, f32>();
    layer.q_proj.weight = values.tensor("rope.q");
    layer.k_proj.weight = values.tensor("rope.k");
    layer.v_proj.weight = values.tensor("rope.v");
    layer.o_proj.weight = values.tensor("rope.o");
    let x: X = values.tensor("rope.x");
    values.assert_close("rope.dynamic_ntk.y", &layer.forward(x));
}
