//! Sizes that only the call has.

use super::*;
use attn::attention;
use support::cases::tensor;

attention! {
    struct Layer<heads = 2, d_model = 8, d_context = 6, d_values = 5>;
}

fn message([batch, len]: [usize; 2], [other, values_len]: [usize; 2]) -> String {
    let layer = Cpu::default().build_module::<Layer, f64>();
    let x: Tensor<(usize, usize, Const<8>), f64, _> = tensor("x", (2, 3, Const));
    let context: Tensor<(usize, usize, Const<6>), f64, _> = tensor("context", (batch, len, Const));
    let values: Tensor<(usize, usize, Const<5>), f64, _> =
        tensor("values", (other, values_len, Const));
    let result = layer.try_forward((x, context, values));
    result
        .err()
        .map_or_else(String::new, |error| error.to_string())
}

#[test]
fn there_is_a_value_for_every_key() {
    assert_eq!(message([2, 4], [2, 4]), "");
    assert_eq!(
        message([2, 4], [2, 5]),
        "Layer: the key axis has length 4, but the values cover 5"
    );
    assert_eq!(
        message([2, 4], [1, 4]),
        "Layer: the batch of x is 2, that of values is 1"
    );
    assert_eq!(
        message([1, 4], [1, 4]),
        "Layer: the batch of x is 2, that of context is 1"
    );
}
