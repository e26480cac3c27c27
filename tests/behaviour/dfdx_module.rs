//! A declared layer is a dfdx layer: it is built, composed, converted and cloned like any other.

use attn::{Backend, Element, Error, attention};
use dfdx::{
    optim::{Optimizer, Sgd, SgdConfig},
    prelude::*,
};
use support::tensors::{flat, parameters};

attention! {
    struct Causal<heads = 4, kv_heads = 2, d_model = 8, mask = causal, position = rope, qk_norm = rms>;
    struct Cross<heads = 2, d_model = 8, d_context = 6, qk_norm = rms>;
    struct PaddedCross<heads = 2, d_model = 8, d_context = 6, mask = padding>;
    struct WithDropout<heads = 2, d_model = 8, dropout = 0.5>;
}

type FeedForward = (LayerNorm1D<8>, Linear<8, 16>, FastGeLU, Linear<16, 8>);
type Block = (Residual<(LayerNorm1D<8>, Causal)>, Residual<FeedForward>);

type Batched<const M: usize> = Tensor<(usize, usize, Const<M>), f32, Cpu>;

fn normal<const M: usize>(seed: u64, batch: usize, len: usize) -> Batched<M> {
    Cpu::seed_from_u64(seed).sample_normal_like(&(batch, len, Const))
}

#[test]
fn layers_stand_in_models_with_norms_and_residuals() {
    let block = Cpu::default().build_module::<Block, f32>();
    let x = normal(1, 2, 5);
    let y = block.forward(x.clone());

    let (Residual((norm, causal)), Residual(feed_forward)) = &block;
    let attended = x.clone() + causal.forward(norm.forward(x));
    let expected = attended.clone() + feed_forward.forward(attended);
    assert_eq!(y.as_vec(), expected.as_vec());
}

#[test]
fn layers_may_be_repeated_on_unbatched_input() {
    let model = Cpu::default().build_module::<(Repeated<Block, 2>, Linear<8, 3>), f32>();
    let x: Tensor<(usize, Const<8>), f32, _> = Cpu::default().sample_normal_like(&(5, Const));
    let y: Tensor<(usize, Const<3>), f32, _> = model.forward(x.clone());
    let (Repeated { modules }, linear) = &model;
    let expected = linear.forward(modules[1].forward(modules[0].forward(x)));
    assert_eq!(y.as_vec(), expected.as_vec());
    assert_ne!(parameters(&modules[0]), parameters(&modules[1]));
}

#[test]
fn names_of_a_type_build_the_same_layer() {
    let seeded = || Cpu::seed_from_u64(4);
    let layer: Causal<f32, Cpu> = seeded().build_module::<Causal, f32>();
    let expected = parameters(&layer);
    let others = [
        Causal::<f32, Cpu>::build(&seeded()),
        Causal::<f32, Cpu>::try_build(&seeded()).expect("there is memory"),
        <Causal as BuildOnDevice<Cpu, f32>>::build_on_device(&seeded()),
        seeded()
            .try_build_module::<Causal, f32>()
            .expect("there is memory"),
        seeded().build_module::<Causal<f64>, f32>(),
        seeded().build_module::<(Causal,), f32>().0,
    ];
    for layer in others {
        assert_eq!(parameters(&layer), expected);
    }
    let _: Causal<f64> = seeded().build_module::<Causal, f64>();
}

#[test]
fn cross_attention_is_a_module_of_pairs() {
    let dev = Cpu::default();
    let x = normal::<8>(1, 2, 5);
    let context = normal::<6>(2, 2, 7);
    let model = dev.build_module::<(Cross, ReLU, Linear<8, 3>), f32>();
    let y: Batched<3> = model.forward((x.clone(), context.clone()));
    let expected = model
        .2
        .forward(model.0.forward((x.clone(), context.clone())).relu());
    assert_eq!(y.as_vec(), expected.as_vec());

    let lengths = || dev.tensor_from_vec(vec![7, 3], (2,));
    let model = dev.build_module::<(PaddedCross, Linear<8, 3>), f32>();
    let y: Batched<3> = model.forward((x.clone(), context.clone(), lengths()));
    let expected = model.1.forward(model.0.forward((x, context, lengths())));
    assert_eq!(y.as_vec(), expected.as_vec());
}

#[test]
fn dfdxs_methods_compute_what_its_own_do() {
    let mut causal = Cpu::default().build_module::<Causal, f32>();
    let x = normal(1, 2, 5);
    let expected = causal.forward(x.clone()).as_vec();
    let results = [
        causal.forward_mut(x.clone()),
        Module::forward(&causal, x.clone()),
        Module::try_forward(&causal, x.clone()).expect("there is memory"),
        ModuleMut::forward_mut(&mut causal, x.clone()),
        ModuleMut::try_forward_mut(&mut causal, x).expect("there is memory"),
    ];
    for y in results {
        assert_eq!(y.as_vec(), expected);
    }

    let mut cross = Cpu::default().build_module::<Cross, f32>();
    let inputs = || (normal(1, 2, 5), normal(2, 2, 7));
    let expected = cross.forward(inputs()).as_vec();
    assert_eq!(Module::forward(&cross, inputs()).as_vec(), expected);
    assert_eq!(
        ModuleMut::forward_mut(&mut cross, inputs()).as_vec(),
        expected
    );
}

#[test]
fn dropout_acts_on_layers_in_a_model() {
    type Model = (LayerNorm1D<8>, Residual<WithDropout>, Linear<8, 8>);
    let mut model = Cpu::default().build_module::<Model, f32>();
    let x = normal(1, 2, 5);
    let expected = model.forward(x.clone()).as_vec();
    assert_eq!(model.forward(x.leaky_trace()).as_vec(), expected);
    assert_eq!(model.forward_mut(x.clone()).as_vec(), expected);
    assert_ne!(model.forward_mut(x.leaky_trace()).as_vec(), expected);
}

#[test]
fn layers_convert_to_another_dtype_and_device() {
    let layer = Cpu::default().build_module::<(Causal, Linear<8, 8>), f32>();
    let double: (Causal<f64>, _) = layer.to_dtype::<f64>();
    // Every f32 is an f64.
    assert_eq!(parameters(&double), parameters(&layer));
    let moved: (Causal<f32, Cpu>, _) = layer.to_device(&Cpu::seed_from_u64(9));
    assert_eq!(parameters(&moved), parameters(&layer));
    let x = normal(1, 2, 5);
    assert_eq!(flat(&moved.forward(x.clone())), flat(&layer.forward(x)));
}

#[test]
fn a_clone_computes_the_same_and_is_trained_apart() {
    let layer = Cpu::default().build_module::<Causal, f32>();
    let mut clone = layer.clone();
    assert_eq!(parameters(&clone), parameters(&layer));
    let x = normal(1, 2, 5);
    let before = layer.forward(x.clone()).as_vec();
    assert_eq!(clone.forward(x.clone()).as_vec(), before);

    let y = clone.forward_mut(x.trace(clone.alloc_grads()));
    let gradients = y.square().mean().backward();
    Sgd::new(&clone, SgdConfig::default())
        .update(&mut clone, &gradients)
        .expect("every parameter has a gradient");
    assert_eq!(layer.forward(x.clone()).as_vec(), before);
    assert_ne!(clone.forward(x).as_vec(), before);
}

#[test]
fn debug_output_has_the_name_and_the_fields() {
    let shown = format!("{:?}", Cpu::default().build_module::<Causal, f32>());
    assert!(
        shown.starts_with("Causal { q_proj: Linear { weight: Tensor {"),
        "{shown}"
    );
    for field in ["k_proj: Linear {", "q_norm: Weight {", "o_proj: Linear {"] {
        assert!(shown.contains(field), "{field} in {shown}");
    }
}

/// A user's layer around a declared one, for any dtype and device.
#[derive(Clone, Debug)]
struct Gated<E: Dtype, D: Storage<E>> {
    attention: Causal<E, D>,
    gate: modules::Linear<8, 8, E, D>,
}

impl<E: Element, D: Device<E>> TensorCollection<E, D> for Gated<E, D> {
    type To<E2: Dtype, D2: Device<E2>> = Gated<E2, D2>;

    fn iter_tensors<V: ModuleVisitor<Self, E, D>>(
        visitor: &mut V,
    ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
        let fields = (
            Self::module("attention", |s| &s.attention, |s| &mut s.attention),
            Self::module("gate", |s| &s.gate, |s| &mut s.gate),
        );
        visitor.visit_fields(fields, |(attention, gate)| Gated { attention, gate })
    }
}

type Sequences<E, D, T> = Tensor<(usize, usize, Const<8>), E, D, T>;

impl<E: Element, D: Backend<E>> Gated<E, D> {
    fn try_forward<T: Tape<E, D>>(
        &self,
        x: Sequences<E, D, T>,
    ) -> Result<Sequences<E, D, T>, Error<D::Err>> {
        let gate = self.gate.try_forward(x.with_empty_tape())?.try_sigmoid()?;
        Ok(self.attention.try_forward(x)?.try_mul(gate)?)
    }
}

#[test]
fn user_layers_may_be_generic_over_it() {
    let single = Gated::<f32, Cpu>::build(&Cpu::default());
    assert_eq!(parameters(&single)[0].name, "attention.q_proj.weight");
    let double: Gated<f64, Cpu> = single.to_dtype::<f64>();
    let x = normal(1, 2, 5);
    let in_single = flat(&single.try_forward(x.clone()).expect("it fits"));
    let in_double = flat(&double.try_forward(x.to_dtype::<f64>()).expect("it fits"));
    for (single, double) in in_single.iter().zip(in_double) {
        // Some 50 sums and products of order 1.
        assert!((single - double).abs() < 50.0 * f64::from(f32::EPSILON));
    }
}
