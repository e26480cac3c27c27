//! A layer with a mistake still has the fields and constants that its uses expect.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Misspelled<heads = 2, d_model = 16, qk_norm = rmss, mask = caussal>;
    struct Additive<heads = 2, d_model = 16, score = aditive(4)>;
    struct Cross<heads = 2, d_model = 16, d_context = 8, mask = causal, dropout = 1.0>;
    struct Padded<heads = 2, d_model = 16, mask = paddding, dropout = 1.0>;
}

fn generic<T: Tape<f32, Cpu>>(
    layer: &Misspelled,
    x: Tensor<Rank3<2, 4, 16>, f32, Cpu, T>,
) -> Tensor<Rank3<2, 4, 16>, f32, Cpu, T> {
    layer.forward(x)
}

fn main() {
    let dev = AutoDevice::default();
    let x: Tensor<Rank3<2, 4, 16>, f32, Cpu> = dev.sample_normal();
    let unbatched: Tensor<Rank2<4, 16>, f32, Cpu> = dev.sample_normal();

    let layer = dev.build_module::<Misspelled, f32>();
    let _: &Tensor<Rank1<8>, f32, Cpu> = &layer.q_norm.weight;
    let _ = generic(&layer, x.clone());
    let _: Tensor<Rank2<4, 16>, f32, Cpu> = layer.forward(unbatched);

    let layer = dev.build_module::<Additive, f32>();
    let _: &Tensor<Rank2<2, 4>, f32, Cpu> = &layer.score_proj.weight;

    let layer = dev.build_module::<Cross, f32>();
    let context: Tensor<Rank3<2, 5, 8>, f32, Cpu> = dev.sample_normal();
    let _: Tensor<Rank3<2, 4, 16>, f32, Cpu> = layer.forward((x.clone(), context));
    let _: usize = Cross::D_CONTEXT;

    let layer = dev.build_module::<Padded, f32>();
    let lengths: Tensor<Rank1<2>, usize, Cpu> = dev.zeros();
    let _: Tensor<Rank3<2, 4, 16>, f32, Cpu> = layer.forward((x, &lengths));
}
