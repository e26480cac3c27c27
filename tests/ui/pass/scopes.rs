//! A declaration is possible wherever an item is, and has the declared visibility.

use attn::{attention, dfdx::prelude::*};

mod outer {
    use attn::attention;

    attention! {
        struct Private<heads = 1, d_model = 4>;
        pub(self) struct Own<heads = 2, d_model = 4>;
        pub(crate) struct Shared<heads = 4, d_model = 4>;
        pub struct Public<heads = 2, d_model = 4, mask = padding>;
    }

    pub mod inner {
        attn::attention! {
            pub(super) struct ForParent<heads = 1, d_model = 8>;
            pub(in crate::scopes::outer) struct ForOuter<heads = 2, d_model = 8>;
            pub(in super::super) struct ForTheTop<heads = 4, d_model = 8, d_context = 2>;
        }

        pub fn heads() -> [usize; 2] {
            [ForParent::HEADS, ForOuter::HEADS]
        }

        pub mod innermost {
            // A private item is visible below its module.
            pub fn head_dim() -> usize {
                crate::scopes::outer::Private::HEAD_DIM
            }
        }
    }

    pub fn heads() -> [usize; 4] {
        [
            Private::HEADS,
            Own::HEADS,
            inner::ForParent::HEADS,
            inner::ForOuter::HEADS,
        ]
    }

    /// Methods and fields are as visible as the layer.
    pub fn width_of_a_private_layer() -> usize {
        use super::*;
        let layer = AutoDevice::default().build_module::<Private, f32>();
        let x: Tensor<Rank2<3, 4>, f32, _> = AutoDevice::default().sample_normal();
        layer.q_proj.bias.shape().num_elements() + layer.forward(x).shape().1.size() - 4
    }
}

struct Holder {
    layer: outer::Shared,
}

impl Holder {
    const WIDTH: usize = {
        attention! {
            struct InAConstant<heads = 2, d_model = 6>;
        }
        InAConstant::D_MODEL
    };

    fn built() -> Self {
        let layer = AutoDevice::default().build_module::<outer::Shared, f32>();
        Holder { layer }
    }
}

fn in_a_function() -> Vec<f32> {
    const HEADS: usize = 2;
    attention! {
        /// Documented, and local to this function.
        #[derive(Debug)]
        struct Local<heads = HEADS, d_model = { HEADS * Holder::WIDTH }, mask = causal>;
    }
    let dev = AutoDevice::default();
    let x: Tensor<Rank2<3, 12>, f32, _> = dev.sample_normal();
    dev.build_module::<Local, f32>().forward(x).as_vec()
}

fn in_a_closure_and_a_block() -> usize {
    let outer = || {
        attention! {
            struct Layer<heads = 1, d_model = 2>;
        }
        Layer::PARAMS
    };
    let inner = {
        attention! {
            struct Layer<heads = 1, d_model = 4>;
        }
        Layer::PARAMS
    };
    outer() + inner
}

#[test]
fn layers_are_as_visible_as_they_say() {
    assert_eq!(outer::heads(), [1, 2, 1, 2]);
    assert_eq!(outer::inner::heads(), [1, 2]);
    assert_eq!(outer::inner::innermost::head_dim(), 4);
    assert_eq!(outer::Public::HEADS + outer::inner::ForTheTop::D_CONTEXT, 4);
    assert_eq!(outer::width_of_a_private_layer(), 4);
    assert_eq!(in_a_function().len(), 36);
    assert_eq!(in_a_closure_and_a_block(), 4 * (4 + 2) + 4 * (16 + 4));

    let dev = AutoDevice::default();
    let x: Tensor<Rank3<1, 2, 4>, f32, _> = dev.ones();
    let y: Tensor<Rank3<1, 2, 4>, f32, _> = Holder::built().layer.forward(x);
    assert!(y.array()[0][0] == y.array()[0][1]);
}
