//! Models with `attend`.

use super::*;
use support::cases::tensor;

support::attends!(exact);
support::attention_results!(exact);

/// A name that nobody reads costs nothing.
#[test]
fn results_that_nobody_reads_take_no_memory() {
    mod plain {
        attn::model! {
            pub struct M<d = 8, heads = 2>;
            fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                let y = attend(linear::<4>(x), linear::<4>(x), x);
                attention::<heads, mask = causal>(y)
            }
        }
    }
    mod named {
        attn::model! {
            pub struct M<d = 8, heads = 2>;
            fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                let (y, _weights, _lse) = attend(linear::<4>(x), linear::<4>(x), x);
                let (y, _weights) = attention::<heads, mask = causal>(y);
                y
            }
        }
    }
    let _alone = alone();
    for [batch, seq] in sizes() {
        let promised = named::M::activation_bytes(batch, seq);
        assert_eq!(promised, plain::M::activation_bytes(batch, seq));
        let mut model = Cpu::default().build_module::<named::M, f32>();
        let x: Tensor<(usize, usize, Const<8>), f32, _> = tensor("x", (batch, seq, Const));
        let taken = peak::<f32, _>(|| model.forward_mut(x.leaky_traced()));
        assert_eq!(taken, promised, "{batch}, {seq}");
    }
}

attn::attention! { struct Layer<heads = 2, d_model = 8, mask = causal, dropout = 0.5>; }

/// A layer that returns its weights takes the memory of these, and where a loss reads them that of a copy for the derivative and of their
/// gradient. Scores are nowhere.
#[test]
fn weights_beside_the_output_are_all_that_has_the_square_of_the_length() {
    let _alone = alone();
    for [batch, len] in sizes() {
        let mut layer = Cpu::default().build_module::<Layer, f32>();
        let x: Tensor<(usize, usize, Const<8>), f32, _> = tensor("x", (batch, len, Const));
        let weights = batch * 2 * len * len * size_of::<f32>();
        let promised = Layer::activation_bytes(batch, len, len);
        let taken = peak::<f32, _>(|| layer.forward_mut_with_weights(x.clone().leaky_traced()));
        assert_eq!(taken, promised + weights, "{batch}, {len}");
        // dfdx cannot sum an empty tensor.
        if weights == 0 {
            continue;
        }
        let taken = peak::<f32, _>(|| {
            let (y, weights) = layer.forward_mut_with_weights(x.leaky_traced());
            y.sum::<Rank0, _>() + weights.square().sum::<Rank0, _>()
        });
        assert_eq!(taken, promised + 3 * weights, "{batch}, {len}, both");
    }
}
