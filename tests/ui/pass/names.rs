//! The user's names do not affect the expansion: layers, items and modules with names of the expansion.

// Names of the prelude have another meaning here.
#[allow(dead_code)]
mod shadows {
    pub struct Option;
    pub struct Result;
    pub struct Vec;
    pub struct Some;
    pub struct None;
    pub struct Ok;
    pub struct Err;
    pub struct String;
    pub trait Clone {}
    pub trait Debug {}
    pub trait Fn {}
    pub trait Sized {}
    pub trait Default {}
    pub trait Iterator {}
    pub mod core {}
    pub mod std {}
    pub mod dfdx {}
    pub mod p {}
}

#[allow(dead_code, unused_imports, unused_macros)]
mod model {
    use super::shadows::*;

    macro_rules! assert {
        ($($any:tt)*) => {
            compile_error!("the user's");
        };
    }
    macro_rules! unreachable {
        ($($any:tt)*) => {
            compile_error!("the user's")
        };
    }

    pub struct Tensor;
    pub struct Const;
    pub struct Linear;
    pub struct Device;
    pub struct AutoDevice;
    pub struct NoneTape;
    pub trait Module {}
    pub trait Dim {}
    pub fn softmax() {}
    pub fn quotient() {}
    pub fn x() {}
    pub fn device() {}
    pub const HEADS: usize = 2;

    attn::attention! {
        pub struct Layer<
            heads = HEADS,
            d_model = 8,
            mask = causal & padding & document,
            softcap = 5.0,
            position = rel_pos_bias(8, 16),
            qk_norm = rms,
            dropout = 0.5,
        >;
        pub struct Cross<heads = HEADS, d_model = 8, d_context = 8, mask = !padding, score = additive(2)>;

        /// Tensors with the names of variables and fields of the expansion.
        pub struct Tensors<heads = HEADS, d_model = 8> {
            param output: [heads] = ones;
            param element: [1] = ones;
            param data_call: [1] = ones;
            data call: ids[batch, q_len];
            data layer: [kv_len];
            data r#type: [heads];
            fn score(score, b, h, q_idx, kv_idx) {
                let call = call[b, q_idx] as f32 * data_call[0];
                score * output[h] * element[0] + layer[kv_idx] * r#type[h] * call
            }
            fn mask(b, q_idx, kv_idx) { call[b, q_idx] <= call[b, kv_idx] || layer[kv_idx] < 1.0 }
        }
    }
}

/// Layers with the names of the expansion's type variables and imports.
mod taken {
    macro_rules! layers {
        ($($name:ident)*) => {
            $(pub mod $name {
                ::attn::attention! {
                    #[allow(non_camel_case_types)]
                    pub struct $name<heads = 2, d_model = 8, mask = causal, qk_norm = rms, dropout = 0.1>;
                }
            })*
        };
    }

    #[allow(non_snake_case)]
    pub mod layers {
        layers! {
            A1 A2 A3 B B2 D D0 D2 E E0 E2 F GIVEN Ids K Lengths Q S T V X
            Err None Ok Option Result Some Clone Debug Vec
            Tensor Const Dim Tape Linear Weight Module Error Element
            p x layer train self_ device core attn
        }
    }
}

use attn::dfdx::{prelude as d, tensor::AutoDevice};
use d::*;

macro_rules! run {
    ($($name:ident)*) => {
        [$({
            let dev = AutoDevice::default();
            let x: d::Tensor<Rank3<1, 2, 8>, f32, _> = dev.sample_normal();
            let mut layer = dev.build_module::<taken::layers::$name::$name, f32>();
            let gradients = layer.alloc_grads();
            let y = layer.forward_mut(layer.forward(x).traced(gradients));
            y.shape().concrete()
        }),*]
    };
}

#[test]
fn names_of_the_user_are_his() {
    let dev = AutoDevice::default();
    let x: d::Tensor<Rank3<1, 2, 8>, f32, _> = dev.sample_normal();
    let ids: d::Tensor<Rank2<1, 2>, usize, _> = dev.zeros();
    let lengths: d::Tensor<Rank1<1>, usize, _> = dev.tensor([2]);
    let y =
        dev.build_module::<model::Layer, f32>()
            .forward((x.clone(), lengths.clone(), ids.clone()));
    let y = dev
        .build_module::<model::Cross, f32>()
        .forward((y, x, lengths));
    let y = dev.build_module::<model::Tensors, f32>().forward((
        y,
        ids,
        dev.zeros_like(&(Const::<2>,)),
        dev.ones_like(&(Const::<2>,)),
    ));
    assert!(y.as_vec().iter().all(|y| y.is_finite()));

    let shapes = run! { B D E Option Tensor p };
    assert!(shapes.iter().all(|shape| *shape == [1, 2, 8]));
}
