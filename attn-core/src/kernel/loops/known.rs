//! The loops that are compiled here, with their derivatives.
//!
//! Generated from the definitions in `attn-macros/src/score/loops.rs`: `INSTA_UPDATE=always cargo test -p attn-macros known_loops`.

use super::{Loop, Read, Write, compiled, p, part};

known! {
    /// `x0`
    Copy, copy_loop([x0]: 1 -> 1) {
        [x0]
    }
    /// `x0 + x1`
    Add, add_loop([x0, x1]: 2 -> 1) {
        [(x0 + x1)]
    }
    /// `x0 - x1`
    Sub, sub_loop([x0, x1]: 2 -> 1) {
        [(x0 - x1)]
    }
    /// The derivative of [`Sub`].
    SubBackward, sub_backward_loop([x0]: 1 -> 1) {
        [(x0 * p::splat::<E, V>(-1.0))]
    }
    /// `x0 * x1`
    Mul, mul_loop([x0, x1]: 2 -> 1) {
        [(x0 * x1)]
    }
    /// The derivative of [`Mul`].
    MulBackward, mul_backward_loop([x0, x1, x2]: 3 -> 2) {
        [(x2 * x1), (x2 * x0)]
    }
    /// `x0 * by`
    Scale { by }, scale_loop([x0]: 1 -> 1) {
        [(x0 * p::splat::<E, V>(by))]
    }
    /// The derivative of [`Scale`].
    ScaleBackward { by }, scale_backward_loop([x0]: 1 -> 1) {
        [(x0 * p::splat::<E, V>(by))]
    }
    /// `x0 + by`
    Shift { by }, shift_loop([x0]: 1 -> 1) {
        [(x0 + p::splat::<E, V>(by))]
    }
    /// `x0 * x0`
    Square, square_loop([x0]: 1 -> 1) {
        [(x0 * x0)]
    }
    /// The derivative of [`Square`].
    SquareBackward, square_backward_loop([x0, x1]: 2 -> 1) {
        [(x1 * (x0 + x0))]
    }
    /// `x0 / x1`
    Div, div_loop([x0, x1]: 2 -> 1) {
        [(x0 / x1)]
    }
    /// The derivative of [`Div`].
    DivBackward, div_backward_loop([x0, x1, x2]: 3 -> 2) {
        let part_0 = p::splat::<E, V>(1.0) / x1;
        [(x2 * part_0), (x2 * (p::splat::<E, V>(-1.0) * ((x0 / x1) * part_0)))]
    }
    /// `by / x0`
    Reciprocal { by }, reciprocal_loop([x0]: 1 -> 1) {
        [(p::splat::<E, V>(by) / x0)]
    }
    /// The derivative of [`Reciprocal`].
    ReciprocalBackward { by }, reciprocal_backward_loop([x0, x1]: 2 -> 1) {
        [(x1 * (p::splat::<E, V>(-1.0) * (p::splat::<E, V>(by) / (x0 * x0))))]
    }
    /// `exp(x0)`
    Exp, exp_loop([x0]: 1 -> 1) {
        [p::math::exp(x0)]
    }
    /// The derivative of [`Exp`].
    ExpBackward, exp_backward_loop([x0, x1]: 2 -> 1) {
        [(x1 * p::math::exp(x0))]
    }
    /// `ln(x0)`
    Ln, ln_loop([x0]: 1 -> 1) {
        [p::math::ln(x0)]
    }
    /// The derivative of [`Ln`].
    LnBackward, ln_backward_loop([x0, x1]: 2 -> 1) {
        [(x1 * (p::splat::<E, V>(1.0) / x0))]
    }
    /// `sqrt(x0)`
    Sqrt, sqrt_loop([x0]: 1 -> 1) {
        [p::Vector::sqrt(x0)]
    }
    /// The derivative of [`Sqrt`].
    SqrtBackward, sqrt_backward_loop([x0, x1]: 2 -> 1) {
        [(x1 * (p::splat::<E, V>(0.5) / p::Vector::sqrt(x0)))]
    }
    /// `sin(x0)`
    Sin, sin_loop([x0]: 1 -> 1) {
        [p::math::sin(x0)]
    }
    /// The derivative of [`Sin`].
    SinBackward, sin_backward_loop([x0, x1]: 2 -> 1) {
        [(x1 * p::math::cos(x0))]
    }
    /// `cos(x0)`
    Cos, cos_loop([x0]: 1 -> 1) {
        [p::math::cos(x0)]
    }
    /// The derivative of [`Cos`].
    CosBackward, cos_backward_loop([x0, x1]: 2 -> 1) {
        [(x1 * (p::splat::<E, V>(-1.0) * p::math::sin(x0)))]
    }
    /// `abs(x0)`
    Abs, abs_loop([x0]: 1 -> 1) {
        [p::Vector::abs(x0)]
    }
    /// The derivative of [`Abs`].
    AbsBackward, abs_backward_loop([x0, x1]: 2 -> 1) {
        [
            (x1
                * V::select(
                    p::Vector::lt(x0, p::splat::<E, V>(0.0)),
                    p::splat::<E, V>(-1.0),
                    V::select(
                        p::Vector::lt(p::splat::<E, V>(0.0), x0),
                        p::splat::<E, V>(1.0),
                        p::splat::<E, V>(0.0),
                    ),
                )),
        ]
    }
    /// `floor(x0)`
    Floor, floor_loop([x0]: 1 -> 1) {
        [p::math::floor(x0)]
    }
    /// `min(x0, x1)`
    Min, min_loop([x0, x1]: 2 -> 1) {
        [p::Vector::min(x0, x1)]
    }
    /// The derivative of [`Min`].
    MinBackward, min_backward_loop([x0, x1, x2]: 3 -> 2) {
        let part_0 = V::select(
            p::Vector::lt(x0, x1),
            p::splat::<E, V>(1.0),
            V::select(p::Vector::lt(x1, x0), p::splat::<E, V>(1.0), p::splat::<E, V>(0.5)),
        );
        [
            (x2
                * (V::select(
                    p::Vector::lt(x1, x0),
                    p::splat::<E, V>(0.0),
                    p::splat::<E, V>(1.0),
                ) * part_0)),
            (x2
                * (V::select(
                    p::Vector::lt(x0, x1),
                    p::splat::<E, V>(0.0),
                    p::splat::<E, V>(1.0),
                ) * part_0)),
        ]
    }
    /// `max(x0, x1)`
    Max, max_loop([x0, x1]: 2 -> 1) {
        [p::Vector::max(x0, x1)]
    }
    /// The derivative of [`Max`].
    MaxBackward, max_backward_loop([x0, x1, x2]: 3 -> 2) {
        let part_0 = V::select(
            p::Vector::lt(x1, x0),
            p::splat::<E, V>(1.0),
            V::select(p::Vector::lt(x0, x1), p::splat::<E, V>(1.0), p::splat::<E, V>(0.5)),
        );
        [
            (x2
                * (V::select(
                    p::Vector::lt(x0, x1),
                    p::splat::<E, V>(0.0),
                    p::splat::<E, V>(1.0),
                ) * part_0)),
            (x2
                * (V::select(
                    p::Vector::lt(x1, x0),
                    p::splat::<E, V>(0.0),
                    p::splat::<E, V>(1.0),
                ) * part_0)),
        ]
    }
    /// `gelu(x0)`
    Gelu, gelu_loop([x0]: 1 -> 1) {
        [p::activations::value(p::activations::Gelu, x0)]
    }
    /// The derivative of [`Gelu`].
    GeluBackward, gelu_backward_loop([x0, x1]: 2 -> 1) {
        [(x1 * p::activations::slope(p::activations::Gelu, x0))]
    }
    /// `gelu_tanh(x0)`
    GeluTanh, gelu_tanh_loop([x0]: 1 -> 1) {
        [p::activations::value(p::activations::GeluTanh, x0)]
    }
    /// The derivative of [`GeluTanh`].
    GeluTanhBackward, gelu_tanh_backward_loop([x0, x1]: 2 -> 1) {
        [(x1 * p::activations::slope(p::activations::GeluTanh, x0))]
    }
    /// `relu(x0)`
    Relu, relu_loop([x0]: 1 -> 1) {
        [p::activations::value(p::activations::Relu, x0)]
    }
    /// The derivative of [`Relu`].
    ReluBackward, relu_backward_loop([x0, x1]: 2 -> 1) {
        [(x1 * p::activations::slope(p::activations::Relu, x0))]
    }
    /// `relu_squared(x0)`
    ReluSquared, relu_squared_loop([x0]: 1 -> 1) {
        [p::activations::value(p::activations::ReluSquared, x0)]
    }
    /// The derivative of [`ReluSquared`].
    ReluSquaredBackward, relu_squared_backward_loop([x0, x1]: 2 -> 1) {
        [(x1 * p::activations::slope(p::activations::ReluSquared, x0))]
    }
    /// `silu(x0)`
    Silu, silu_loop([x0]: 1 -> 1) {
        [p::activations::value(p::activations::Silu, x0)]
    }
    /// The derivative of [`Silu`].
    SiluBackward, silu_backward_loop([x0, x1]: 2 -> 1) {
        [(x1 * p::activations::slope(p::activations::Silu, x0))]
    }
    /// `sigmoid(x0)`
    Sigmoid, sigmoid_loop([x0]: 1 -> 1) {
        [p::math::sigmoid(x0)]
    }
    /// The derivative of [`Sigmoid`].
    SigmoidBackward, sigmoid_backward_loop([x0, x1]: 2 -> 1) {
        let part_0 = p::math::sigmoid(x0);
        [(x1 * (part_0 * (p::splat::<E, V>(1.0) - part_0)))]
    }
    /// `tanh(x0)`
    Tanh, tanh_loop([x0]: 1 -> 1) {
        [p::math::tanh(x0)]
    }
    /// The derivative of [`Tanh`].
    TanhBackward, tanh_backward_loop([x0, x1]: 2 -> 1) {
        let part_0 = p::math::tanh(x0);
        [(x1 * (p::splat::<E, V>(1.0) - (part_0 * part_0)))]
    }
    /// `gelu(x0) * x1`
    GeluGate, gelu_gate_loop([x0, x1]: 2 -> 1) {
        [(p::activations::value(p::activations::Gelu, x0) * x1)]
    }
    /// The derivative of [`GeluGate`].
    GeluGateBackward, gelu_gate_backward_loop([x0, x1, x2]: 3 -> 2) {
        [
            (x2 * (p::activations::slope(p::activations::Gelu, x0) * x1)),
            (x2 * p::activations::value(p::activations::Gelu, x0)),
        ]
    }
    /// `gelu_tanh(x0) * x1`
    GeluTanhGate, gelu_tanh_gate_loop([x0, x1]: 2 -> 1) {
        [(p::activations::value(p::activations::GeluTanh, x0) * x1)]
    }
    /// The derivative of [`GeluTanhGate`].
    GeluTanhGateBackward, gelu_tanh_gate_backward_loop([x0, x1, x2]: 3 -> 2) {
        [
            (x2 * (p::activations::slope(p::activations::GeluTanh, x0) * x1)),
            (x2 * p::activations::value(p::activations::GeluTanh, x0)),
        ]
    }
    /// `relu(x0) * x1`
    ReluGate, relu_gate_loop([x0, x1]: 2 -> 1) {
        [(p::activations::value(p::activations::Relu, x0) * x1)]
    }
    /// The derivative of [`ReluGate`].
    ReluGateBackward, relu_gate_backward_loop([x0, x1, x2]: 3 -> 2) {
        [
            (x2 * (p::activations::slope(p::activations::Relu, x0) * x1)),
            (x2 * p::activations::value(p::activations::Relu, x0)),
        ]
    }
    /// `silu(x0) * x1`
    SiluGate, silu_gate_loop([x0, x1]: 2 -> 1) {
        [(p::activations::value(p::activations::Silu, x0) * x1)]
    }
    /// The derivative of [`SiluGate`].
    SiluGateBackward, silu_gate_backward_loop([x0, x1, x2]: 3 -> 2) {
        [
            (x2 * (p::activations::slope(p::activations::Silu, x0) * x1)),
            (x2 * p::activations::value(p::activations::Silu, x0)),
        ]
    }
    /// `sigmoid(x0) * x1`
    SigmoidGate, sigmoid_gate_loop([x0, x1]: 2 -> 1) {
        [(p::math::sigmoid(x0) * x1)]
    }
    /// The derivative of [`SigmoidGate`].
    SigmoidGateBackward, sigmoid_gate_backward_loop([x0, x1, x2]: 3 -> 2) {
        let part_0 = p::math::sigmoid(x0);
        [(x2 * ((part_0 * (p::splat::<E, V>(1.0) - part_0)) * x1)), (x2 * part_0)]
    }
    /// `x0 + x1 * by`
    AddScaled { by }, add_scaled_loop([x0, x1]: 2 -> 1) {
        [(x0 + (x1 * p::splat::<E, V>(by)))]
    }
    /// The derivative of [`AddScaled`].
    AddScaledBackward { by }, add_scaled_backward_loop([x0]: 1 -> 1) {
        [(x0 * p::splat::<E, V>(by))]
    }
    /// `x0 + x1 * x2`
    AddProduct, add_product_loop([x0, x1, x2]: 3 -> 1) {
        [(x0 + (x1 * x2))]
    }
    /// The derivative of [`AddProduct`].
    AddProductBackward, add_product_backward_loop([x0, x1, x2]: 3 -> 2) {
        [(x2 * x1), (x2 * x0)]
    }
    /// `x0 * (x1 + 1) + x2`
    Modulate, modulate_loop([x0, x1, x2]: 3 -> 1) {
        [((x0 * (x1 + p::splat::<E, V>(1.0))) + x2)]
    }
    /// The derivative of [`Modulate`].
    ModulateBackward, modulate_backward_loop([x0, x1, x2]: 3 -> 2) {
        [(x2 * (x1 + p::splat::<E, V>(1.0))), (x2 * x0)]
    }
}
