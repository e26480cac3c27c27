//! Sizes and numbers: literals, constants, paths, expressions, other layers.

use attn::{attention, dfdx::prelude::*};

mod config {
    pub const HEADS: usize = 4;
    pub const fn width(heads: usize) -> usize {
        heads * 4
    }
    pub struct Model;
    impl Model {
        pub const D_MODEL: usize = width(HEADS);
    }
    pub trait Sizes {
        const HIDDEN: usize;
        const RATE: f64;
    }
    impl Sizes for Model {
        const HIDDEN: usize = 6;
        const RATE: f64 = 0.25;
    }
    pub const TABLE: [usize; 2] = [8, 32];
    pub static THETA: f32 = 500.0;
}

use config::{HEADS, Model, Sizes};

const RADIX: i32 = 2;

attention! {
    struct Base<heads = HEADS, d_model = { config::width(HEADS) },>;

    struct Everything<
        heads = config::HEADS,
        d_model = Model::D_MODEL,
        kv_heads = { HEADS / 2 },
        head_dim = { Base::HEAD_DIM + 2 },
        value_head_dim = 0b11,
        d_context = { <Model as Sizes>::HIDDEN },
        mask = sliding_window({ HEADS + 1 }, upper_left) & !(chunked(n = HEADS, lower_right) | padding) | prefix_lm(1_usize, lower_right) & document,
        score = scaled_dot,
        scale = { 1.0 / 4f64 },
        softcap = 3e1,
        normalizer = softmax1,
        position = rel_pos_bias(max_distance = config::TABLE[1], num_buckets = { config::TABLE[0] }),
        qk_norm = rms,
        bias = [q, v,],
        dropout = { <Model as Sizes>::RATE },
        init = normal(std = { if HEADS > 2 { 0.02 } else { 0.2 } }),
    >;

    struct Numbers<
        heads = 2,
        d_model = 2 * 2 * 2,
        scale = RADIX,
        softcap = u8::MAX,
        position = rope(theta = { 1e4_f32 * 2.0 }),
        dropout = 0,
    >;

    struct Additive<heads = 3, d_model = 8, value_head_dim = Base::HEADS, score = additive(hidden = Everything::HEAD_DIM)>;
    struct Wide<heads = { HEADS }, d_model = (16), head_dim = 0x1_0>;
    struct Match<heads = { match RADIX { 2 => 2, _ => 1 } }, d_model = { let width = 4; width * 2 }, bias = q>;
}

#[test]
fn sizes_are_written_in_any_way() {
    assert_eq!(
        [
            Everything::HEADS,
            Everything::KV_HEADS,
            Everything::D_MODEL,
            Everything::HEAD_DIM,
            Everything::VALUE_HEAD_DIM,
            Everything::D_CONTEXT,
        ],
        [4, 2, 16, 6, 3, 6]
    );
    assert_eq!(Base::PARAMS, 4 * (16 * 16 + 16));
    assert_eq!(Additive::HEAD_DIM * Additive::VALUE_HEAD_DIM, 24);
    assert_eq!((Wide::HEAD_DIM, Match::HEAD_DIM), (16, 4));
    assert_eq!(config::THETA, 500.0);
    // Where sizes are constants of the user, they can be used in the types of tensors.
    assert_eq!(everything::<f32>() + everything::<f64>(), 2 * 3 * 16 * 2);

    let dev = AutoDevice::default();
    let x: Tensor<(usize, Const<{ Numbers::D_MODEL }>), f64, _> =
        dev.sample_normal_like(&(3, Const));
    let y = dev
        .build_module::<(Numbers, Additive, Match), f64>()
        .forward(x);
    assert_eq!(y.shape().concrete(), [3, 8]);
}

/// `f32` and `f64`, `usize` and `Const`, with a tape and without: the number of elements.
fn everything<E: attn::dfdx::shapes::Dtype>() -> usize
where
    Run: Runs<E>,
{
    Run::run()
}

struct Run;

trait Runs<E> {
    fn run() -> usize;
}

macro_rules! runs {
    ($E:ident) => {
        impl Runs<$E> for Run {
            fn run() -> usize {
                let dev = AutoDevice::default();
                let mut layer = dev.build_module::<Everything, $E>();
                let x: Tensor<(usize, Const<3>, Const<{ Model::D_MODEL }>), $E, _> =
                    dev.sample_normal_like(&(2, Const, Const));
                let context: Tensor<(usize, usize, Const<6>), $E, _> =
                    dev.sample_normal_like(&(2, 5, Const));
                let lengths: Tensor<(usize,), usize, _> = dev.tensor_from_vec(vec![5, 2], (2,));
                let of_queries: Tensor<(usize, Const<3>), usize, _> = dev.zeros_like(&(2, Const));
                let of_keys: Tensor<(usize, usize), usize, _> = dev.zeros_like(&(2, 5));

                let x = x.traced(layer.alloc_grads());
                let (y, tape) = layer
                    .forward_mut((x, context, &lengths, (of_queries, of_keys)))
                    .split_tape();
                let gradients = y.clone().put_tape(tape).square().mean().backward();
                assert!(gradients.get(&layer.q_norm.weight).as_vec().len() == Everything::HEAD_DIM);
                y.shape().num_elements()
            }
        }
    };
}

runs!(f32);
runs!(f64);
