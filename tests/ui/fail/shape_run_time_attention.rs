//! The shapes of `ops::attend` and `ops::Attend`: axes whose sizes are types must fit each other.

use attn::dfdx::prelude::*;
use attn::ops::{Attend, attend};

fn main() {
    let dev = AutoDevice::default();
    let q: Tensor<Rank4<2, 4, 5, 8>, f32, _> = dev.sample_normal();
    let k: Tensor<Rank4<2, 2, 7, 8>, f32, _> = dev.sample_normal();
    let v: Tensor<Rank4<2, 2, 7, 6>, f32, _> = dev.sample_normal();
    let _: Tensor<Rank4<2, 4, 5, 6>, f32, _> = attend(q.clone(), k.clone(), v.clone());

    let wrong_width: Tensor<Rank4<2, 2, 7, 16>, f32, _> = dev.sample_normal();
    let _ = attend(q.clone(), wrong_width, v.clone());

    let wrong_heads: Tensor<Rank4<2, 1, 7, 6>, f32, _> = dev.sample_normal();
    let _ = attend(q.clone(), k.clone(), wrong_heads);

    let wrong_batch: Tensor<Rank4<3, 2, 7, 8>, f32, _> = dev.sample_normal();
    let _ = attend(q.clone(), wrong_batch, v.clone());

    let transposed: Tensor<Rank4<2, 7, 2, 8>, f32, _> = dev.sample_normal();
    let _ = Attend::new().causal().forward(q.clone(), transposed, v.clone());

    let one_head: Tensor<Rank3<2, 7, 8>, f32, _> = dev.sample_normal();
    let _ = attend(one_head.clone(), one_head.clone(), one_head);

    let keys_of_any_number: Tensor<(Const<2>, Const<2>, usize, Const<8>), f32, _> = dev.zeros_like(&(Const, Const, 7, Const));
    let _ = attend(q.clone(), keys_of_any_number, v.clone());

    let of_another_type: Tensor<Rank4<2, 2, 7, 8>, f64, _> = dev.sample_normal();
    let _ = attend(q.clone(), of_another_type, v.clone());

    let mask: Tensor<Rank1<7>, bool, _> = dev.tensor([true; 7]);
    let _ = Attend::new().mask(&mask).forward(q.clone(), k.clone(), v.clone());

    let mask: Tensor<Rank2<5, 7>, f32, _> = dev.zeros();
    let _ = Attend::new().mask(&mask).forward(q.clone(), k.clone(), v.clone());

    let bias: Tensor<Rank1<7>, f32, _> = dev.zeros();
    let _ = Attend::new().bias(bias).forward(q, k, v);
}
