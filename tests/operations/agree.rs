//! Every operation: the result and the gradients of a model against its composed form, in both element types, and against central
//! differences.

use super::*;
use attn::{Backend, Element, model};
use support::compare::assert_same;

pub(super) use super::claim::{agree, tolerance};

support::operations!(agree);
support::layer_options!(agree);

/// dfdx cannot sum an empty tensor, so there is no gradient to compare.
#[test]
fn empty_batches_agree() {
    model! {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d]) -> [batch, d] {
            let x = x + attention::<2, d>(layer_norm(x));
            let y = gelu(rms_norm(2 * x));
            mean_pool(x + feed_forward::<8>(y))
        }
    }
    let model = Cpu::default().build_module::<M, f32>();
    for axes in [(0, 3), (2, 0)] {
        let y = model.forward(tensor::<_, f32>("x", (axes.0, axes.1, Const::<6>)));
        assert_eq!(y.shape().concrete(), [axes.0, 6]);
        assert!(tensors::flat(&y).iter().all(|y| *y == 0.0));
    }
}
