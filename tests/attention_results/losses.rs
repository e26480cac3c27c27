//! Models that learn through the weights, or through the logarithms of their sums.

use super::*;
use attn::train::AdamW;

model! {
    /// A pointer network: each query points to a token (Vinyals et al. 2015).
    struct Pointer<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, seq] {
        let (_y, weights) = attend(linear::<d, name = from>(x), linear::<d, name = to>(x), x);
        weights
    }
}

/// Every token points to the one behind it, the last one to the first.
#[test]
fn a_pointer_network_learns_to_point() {
    let mut model = Cpu::default().build_module::<Pointer, f32>();
    let mut optimizer = AdamW::new(Default::default());
    let x: Tensor<Rank3<1, 6, 8>, f32, _> = tensor("x", Default::default());
    let behind: Vec<f32> = (0..36)
        .map(|at| if (at / 6 + 1) % 6 == at % 6 { 1.0 } else { 0.0 })
        .collect();
    let target: Tensor<Rank3<1, 6, 6>, f32, _> = Cpu::default().tensor(behind);
    for _ in 0..800 {
        let weights = model.forward_mut(x.clone().traced(model.alloc_grads()));
        // -Σ ln p of what is pointed to.
        let loss = ((weights + 1e-9).ln() * target.clone()).sum() * (-1.0 / 6.0);
        let mut gradients = loss.backward();
        optimizer.update(&mut model, &mut gradients).unwrap();
    }
    let weights = model.forward(x).as_vec();
    for (row, weights) in weights.chunks(6).enumerate() {
        assert!(weights[(row + 1) % 6] > 0.6, "{row}: {weights:?}");
    }
}

model! {
    /// Attention whose sums are kept near 1 (the z-loss of Chowdhery et al. 2022, PaLM).
    struct WithZLoss<d = 8, heads = 2>;
    fn forward(x: [batch, seq, d]) -> ([batch, seq, d], []) {
        let (y, _weights, lse) = attention::<heads, mask = causal>(x);
        (y, mean::<[batch, heads, seq]>(lse * lse))
    }
}

#[test]
fn a_z_loss_shrinks_the_sums() {
    let mut model = Cpu::default().build_module::<WithZLoss, f32>();
    scatter(&mut model);
    let mut optimizer = AdamW::new(Default::default());
    let x: Tensor<(usize, usize, Const<8>), f32, _> = tensor("x", (2, 5, Const));
    let mut losses = Vec::new();
    for _ in 0..100 {
        let (y, z) = model.forward_mut(x.clone().traced(model.alloc_grads()));
        losses.push(z.array());
        let mut gradients = (y.sum() * 0.0 + z).backward();
        optimizer.update(&mut model, &mut gradients).unwrap();
    }
    assert!(losses[99] < 0.8 * losses[0], "{losses:?}");
}
