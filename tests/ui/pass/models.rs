//! Layers in models as dfdx composes them.

use attn::{
    Backend, Element, attention,
    dfdx::{
        nn::modules,
        optim::{Adam, AdamConfig},
        prelude::*,
    },
};

attention! {
    struct Causal<heads = 2, d_model = 8, mask = causal, dropout = 0.1>;
    struct Cross<heads = 2, d_model = 8, d_context = 4>;
    struct Padded<heads = 2, d_model = 8, mask = padding>;
}

type Block = (
    Residual<(LayerNorm1D<8>, Causal)>,
    Residual<(LayerNorm1D<8>, Linear<8, 16>, ReLU, Linear<16, 8>)>,
);
type Model = (Embedding<10, 8>, Repeated<Block, 2>, Linear<8, 10>);

/// A user's own module around a layer, for every element type and device.
#[derive(Clone, Debug)]
struct Decoder<E: Dtype, D: Device<E>> {
    attends: Cross<E, D>,
    then: modules::Linear<8, 4, E, D>,
}

type Inputs<B, Q, K, E, D> = (
    Tensor<(B, Q, Const<8>), E, D>,
    Tensor<(B, K, Const<4>), E, D>,
);

impl<B: Dim, Q: Dim, K: Dim, E: Element, D: Backend<E>> Module<Inputs<B, Q, K, E, D>>
    for Decoder<E, D>
{
    type Output = Tensor<(B, Q, Const<4>), E, D>;
    type Error = D::Err;

    fn try_forward(&self, input: Inputs<B, Q, K, E, D>) -> Result<Self::Output, D::Err> {
        let attended = Module::try_forward(&self.attends, input)?;
        self.then.try_forward(attended)
    }
}

/// The layer by its traits alone.
fn through_bounds<X, M>(module: &mut M, x: X) -> <M as Module<X>>::Output
where
    X: Clone,
    M: Module<X> + ModuleMut<X, Output = <M as Module<X>>::Output>,
{
    let _ = Module::forward(module, x.clone());
    ModuleMut::forward_mut(module, x)
}

#[test]
fn layers_stand_in_models() {
    let dev = AutoDevice::default();
    let mut model = dev.build_module::<Model, f32>();
    let mut optimizer = Adam::new(&model, AdamConfig::default());
    let tokens: Tensor<(usize, Const<4>), usize, _> = dev.zeros_like(&(3, Const));
    let before = model.1[1].0.0.1.v_proj.weight.array();
    let logits = model.forward_mut(tokens.traced(model.alloc_grads()));
    let gradients = logits.square().mean().backward();
    optimizer.update(&mut model, &gradients).unwrap();
    assert_ne!(before, model.1[1].0.0.1.v_proj.weight.array());

    let decoder = Decoder {
        attends: dev.build_module::<Cross, f32>(),
        then: dev.build_module::<Linear<8, 4>, f32>(),
    };
    let x: Tensor<Rank3<2, 3, 8>, f32, _> = dev.sample_normal();
    let context: Tensor<Rank3<2, 5, 4>, f32, _> = dev.sample_normal();
    let y = decoder.clone().forward((x.clone(), context));
    assert_eq!(y.shape().concrete(), [2, 3, 4]);

    let lengths: Tensor<Rank1<2>, usize, _> = dev.tensor([3, 1]);
    let mut padded = dev.build_module::<(Padded, Causal), f32>();
    let y = through_bounds(&mut padded, (x, lengths));
    assert_eq!(y.shape().concrete(), [2, 3, 8]);
}
