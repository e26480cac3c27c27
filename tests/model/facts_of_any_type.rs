//! `Facts`: facts of a layer or a model, for every element type and every device.

use attn::{Facts, attention, dfdx::prelude::*, model};

attention! {
    struct Layer<heads = 2, d_model = 8, mask = causal>;
}

model! {
    struct Net<vocab = 9, d_model = 8>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d_model>(tokens);
        linear::<vocab>(attention::<heads = 2, mask = causal>(x))
    }
}

/// Code that is generic over the layer and its element type.
fn described<M: Facts<Sizes = [usize; N]>, const N: usize>(
    sizes: [usize; N],
) -> (usize, usize, u64) {
    assert_eq!(M::AXES.len(), N);
    (M::PARAMS, M::summary().lines().count(), M::flops(sizes))
}

#[test]
fn facts_of_all_elements_are_those_of_the_default_type() {
    assert_eq!(Net::<f64>::PARAMS, Net::PARAMS);
    assert_eq!(Net::<f64>::summary(), Net::summary());
    assert_eq!(Net::<f64>::flops([3, 5]), Net::flops(3, 5));
    assert_eq!(Layer::<f64>::flops([3, 5, 5]), Layer::flops(3, 5, 5));
    assert_eq!(Layer::<f64>::PARAMS, 4 * (8 * 8 + 8));
}

#[test]
fn generic_code_asks_for_facts() {
    let built = described::<Net<f64, Cpu>, 2>([3, 5]);
    assert_eq!((built.0, built.2), (Net::PARAMS, Net::flops(3, 5)));
    let built = described::<Layer<f64, Cpu>, 3>([3, 5, 5]);
    assert_eq!((built.0, built.2), (Layer::PARAMS, Layer::flops(3, 5, 5)));
    assert_eq!(<Net as Facts>::AXES, ["batch", "seq"]);
    assert!(<Layer<f64, Cpu> as Facts>::summary().contains("[batch, q_len, 8]"));
}
