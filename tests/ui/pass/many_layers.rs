//! A model may have more layers outside of a `repeat` than rustc's limit for recursion, which is 128.

use attn::{dfdx::prelude::*, model};

/// Ten times as many statements.
macro_rules! ten_times {
    ([$x:ident] $($statement:tt)*) => {
        model! {
            struct Deep;

            fn forward($x: [batch, 4]) -> [batch, 4] {
                let mut $x = $x;
                $($statement)* $($statement)* $($statement)* $($statement)* $($statement)*
                $($statement)* $($statement)* $($statement)* $($statement)* $($statement)*
                $x
            }
        }
    };
}

ten_times! { [x]
    x = x + linear::<4>(x);
    x = layer_norm(x);
    x = linear::<4>(x);
    x = rms_norm(x);
    x = linear::<4>(x);
    x = layer_norm(x);
    x = linear::<4>(x);
    x = x + linear::<4>(x);
    x = layer_norm(x);
    x = linear::<4>(x);
    x = rms_norm(x);
    x = linear::<4>(x);
    x = layer_norm(x);
    x = linear::<4>(x);
    x = linear::<4>(x);
}

#[test]
fn layers_are_more_than_the_recursion_limit() {
    let dev = AutoDevice::default();
    let model = dev.build_module::<Deep, f32>();
    let x: Tensor<Rank2<3, 4>, f32, _> = dev.sample_normal();
    let gradients = model.forward(x.leaky_trace()).sum().backward();
    assert_eq!(Deep::PARAMS, 90 * 20 + 40 * 8 + 20 * 4);
    // Both ends of the model are among the fields.
    assert!(
        gradients
            .get(&model.linear.bias)
            .as_vec()
            .iter()
            .any(|d| *d != 0.0)
    );
    assert!(
        gradients
            .get(&model.linear_90.bias)
            .as_vec()
            .iter()
            .any(|d| *d != 0.0)
    );
}
