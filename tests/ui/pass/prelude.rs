//! The prelude, alone and beside that of dfdx: its names are unambiguous.

/// A layer, a model, and `run`, which uses both. The names of the macros are those of the enclosing module.
macro_rules! declare {
    () => {
        attention! {
            struct Layer<heads = 2, d_model = 8, mask = causal>;
        }

        model! {
            struct Net<d = 8>;
            fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                x + attention::<2, mask = causal>(layer_norm(x))
            }
        }

        pub fn run() {
            super::uses!(Layer, Net);
        }
    };
}
use declare;

mod alone {
    use attn::prelude::*;

    super::declare! {}
}

mod before_that_of_dfdx {
    #[allow(unused_imports, reason = "all of it is in the other, too")]
    use attn::dfdx::prelude::*;
    use attn::prelude::*;

    super::declare! {}
}

/// A program that depends on dfdx, too, imports both of its preludes, and all of this crate.
mod beside_all {
    use attn::dfdx;
    use attn::prelude::*;
    #[allow(unused_imports, reason = "what is used of it is in the prelude, too")]
    use attn::*;
    #[allow(unused_imports, reason = "all of it is in the other, too")]
    use dfdx::prelude::*;

    super::declare! {}
}

/// Layers imported by name, which take precedence over dfdx's of the prelude.
mod beside_layers {
    use attn::{
        nn::{Embedding, Linear, Residual},
        prelude::*,
        train::{AdamW, cross_entropy},
    };

    #[test]
    fn layers_of_the_prelude_train() {
        type Net = (Embedding<5, 8>, Residual<Linear<8, 8>>, Linear<8, 5>);
        let dev = Cpu::default();
        let mut net = dev.build_module::<Net, f32>();
        let tokens: Tensor<Rank2<1, 3>, usize, _> = dev.tensor([[0, 1, 2]]);
        let logits = net.forward_mut(tokens.clone().traced(net.alloc_grads()));
        let mut gradients = cross_entropy(logits, &tokens, Default::default()).backward();
        AdamW::new(Default::default())
            .update(&mut net, &mut gradients)
            .expect("every parameter has a gradient");
    }
}

/// Uses every name of the prelude that is not dfdx's, and some of those.
macro_rules! uses {
    ($Layer:ident, $Net:ident) => {{
        fn summary<F: Facts>() -> (usize, String) {
            (F::PARAMS, F::summary())
        }

        fn mean<E: Element, D: Backend<E>>(
            net: &$Net<E, D>,
            x: Tensor<Rank3<2, 3, 8>, E, D>,
        ) -> Result<Tensor<Rank0, E, D>, Error<D::Err>> {
            Ok(net.try_forward(x)?.mean())
        }

        let dev: Cpu = AutoDevice::default();
        let layer = dev.build_module::<$Layer, f32>();
        let net = dev.build_module::<$Net, f32>();
        let x: Tensor<Rank3<2, 3, 8>, f32, _> = dev.sample_normal();
        let y: Tensor<Rank3<2, 3, 8>, f32, Cpu, OwnedTape<f32, Cpu>> =
            layer.forward(x.leaky_trace());
        assert_eq!(y.shape().concrete(), [2, 3, 8]);
        let gradients = y.square().mean().backward();
        assert_eq!(
            gradients.get(&layer.q_proj.weight).shape().concrete(),
            [8, 8]
        );
        assert_eq!(summary::<$Layer>().0, $Layer::PARAMS);
        assert!(summary::<$Net>().1.contains("attention"));
        assert!(mean(&net, x).is_ok());
    }};
}
use uses;

#[test]
fn names_of_the_prelude_are_unambiguous() {
    alone::run();
    before_that_of_dfdx::run();
    beside_all::run();
}
