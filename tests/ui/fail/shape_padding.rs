//! The argument of a `padding` mask.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Encoder<heads = 2, d_model = 16, mask = padding>;
}

fn main() {
    let dev = AutoDevice::default();
    let mut layer = dev.build_module::<Encoder, f32>();
    let x: Tensor<Rank3<2, 4, 16>, f32, _> = dev.sample_normal();

    // No lengths.
    let _ = layer.forward(x.clone());

    // Lengths that are no whole numbers.
    let floats: Tensor<Rank1<2>, f32, _> = dev.zeros();
    let _ = layer.forward((x.clone(), floats));
    let _ = layer.forward((x.clone(), vec![4usize, 2]));
    let _ = layer.forward((x.clone(), [4usize, 2]));

    // A length for a batch, a mask for each head.
    let _ = layer.forward_with_weights((x.clone(), 3usize));
    let for_each_head: Tensor<Rank3<2, 2, 4>, bool, _> = dev.zeros();
    let _ = layer.forward_mut((x.clone(), for_each_head));

    // Of another batch size, or with another type of the batch axis.
    let three: Tensor<Rank1<3>, usize, _> = dev.zeros();
    let _ = layer.forward((x.clone(), three));
    let at_run_time: Tensor<(usize,), usize, _> = dev.zeros_like(&(2,));
    let _ = layer.forward((x.clone(), at_run_time));

    // The other way round.
    let lengths: Tensor<Rank1<2>, usize, _> = dev.zeros();
    let _ = layer.forward((lengths.clone(), x.clone()));

    // A wrong width.
    let wide: Tensor<Rank3<2, 4, 32>, f32, _> = dev.sample_normal();
    let _ = layer.forward((wide, lengths.clone()));

    // Twice.
    let _ = layer.forward((x, lengths.clone(), lengths));
}
