//! Layers of `linear` and `attend` against `attention`.

use super::*;
use attn::nn::Linear;

model! {
    struct BuiltIn<d = 6, heads = 2>;
    fn forward(x: [batch, seq, d], lens: lens[batch]) -> [batch, seq, d] {
        attention::<heads, d, mask = causal & padding, position = rope, head_dim = 4>(x, padding = lens)
    }
}

model! {
    struct ByHand<d = 6, heads = 2, width = 4>;
    fn forward(x: [batch, seq, d], lens: lens[batch]) -> [batch, seq, d] {
        let q = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<{ heads * width }, name = q_proj>(x));
        let k = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<{ heads * width }, name = k_proj>(x));
        let v = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<{ heads * width }, name = v_proj>(x));
        let y = attend::<mask = causal & padding, position = rope>(q, k, v, padding = lens);
        linear::<d, name = o_proj>(rearrange::<[batch, seq, (heads, width)]>(y))
    }
}

fn copy<const I: usize, const O: usize>(
    from: &Linear<I, O, f64, Cpu>,
    to: &mut Linear<I, O, f64, Cpu>,
) {
    to.weight.copy_from(&from.weight.as_vec());
    to.bias.copy_from(&from.bias.as_vec());
}

#[test]
fn a_layer_by_hand_is_the_built_in_one() {
    let mut built_in = Cpu::default().build_module::<BuiltIn, f64>();
    scatter(&mut built_in);
    let mut by_hand = Cpu::default().build_module::<ByHand, f64>();
    copy(&built_in.attention.q_proj, &mut by_hand.q_proj);
    copy(&built_in.attention.k_proj, &mut by_hand.k_proj);
    copy(&built_in.attention.v_proj, &mut by_hand.v_proj);
    copy(&built_in.attention.o_proj, &mut by_hand.o_proj);
    for (batch, seq) in [(1, 1), (2, 5), (3, 17)] {
        let x: Tensor<(usize, usize, Const<6>), f64, _> = tensor("x", (batch, seq, Const));
        let lens = support::cases::lens_up_to(batch, seq);
        let expected: Outcome = backpropagate(built_in.forward((x.leaky_trace(), lens.clone())))
            .input("x", &x)
            .outcome();
        let found = backpropagate(by_hand.forward((x.leaky_trace(), lens.clone())))
            .input("x", &x)
            .outcome();
        // The same operations on the same numbers.
        assert_same("attention", &found, &expected, 1e-14);
    }
}
