//! Losses of the logarithms of sums, where a sequence has no keys.

use super::*;

model! {
    /// The z-loss of Chowdhery et al. (2022), of padded sequences.
    struct ZLoss<d = 4, heads = 2>;
    fn forward(x: [batch, seq, d], lens: lens[batch]) -> ([batch, seq, d], [batch, heads]) {
        let (y, _weights, lse) = attention::<heads, mask = padding>(x, padding = lens);
        let z = if lse > -1e30 { lse * lse } else { 0 };
        (y, mean::<seq>(z, lens))
    }
}

/// `lse` of a sequence without keys is -∞, which adds nothing to the loss, and no gradient, in both forms.
#[test]
fn a_z_loss_of_padded_sequences_is_finite() {
    let mut model = Cpu::default().build_module::<ZLoss, f64>();
    scatter(&mut model);
    let x: Tensor<(usize, usize, Const<4>), f64, _> = tensor("x", (2, 3, Const));
    let lens: Tensor<(usize,), usize, _> = Cpu::default().tensor_from_vec(vec![3, 0], (2,));
    type Results = (Traced<(usize, usize, Const<4>)>, Traced<(usize, Const<2>)>);
    let of = |(y, z): Results| {
        let values = [("output", flat(&y)), ("z", flat(&z))];
        let loss = weighted_sum(y) + weighted_sum(z);
        let ran = support::compare::Backpropagated::of(values, loss);
        ran.input("x", &x).parameters(&model)
    };
    let fused = of(model.forward((x.leaky_trace(), lens.clone())));
    let composed = of(model.composed().forward((x.leaky_trace(), lens.clone())));
    // Sums of three terms, and exponentials.
    assert_same("z-loss", &fused, &composed, 1e-13);
    assert!(fused.get("z")[..2].iter().all(|z| *z > 0.0));
    assert_eq!(fused.get("z")[2..], [0.0; 2]);
    let all = fused.all().flat_map(|(_, numbers)| numbers);
    assert!(all.copied().all(f64::is_finite));
    // The other sequence has what it has alone.
    let first: Tensor<(usize, usize, Const<4>), f64, _> = x.clone().slice((0..1, .., ..)).realize();
    let lens: Tensor<(usize,), usize, _> = Cpu::default().tensor_from_vec(vec![3], (1,));
    let (_, alone) = model.forward((first, lens));
    assert_eq!(alone.as_vec(), fused.get("z")[..2]);
}
