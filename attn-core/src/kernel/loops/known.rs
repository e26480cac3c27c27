//! The loops that are compiled here, with their derivatives.
//!
//! Generated from the definitions in `attn-macros/src/score/loops.rs`: `INSTA_UPDATE=always cargo test -p attn-macros known_loops`.

use super::{Loop, Read, Write, compiled, p, part};

known! {
    /// `x0`
    Copy, copy([x0]: 1 -> 1) {
        [x0]
    }
    /// `x0 + x1`
    Add, add([x0, x1]: 2 -> 1) {
        [(x0 + x1)]
    }
    /// `x0 - x1`
    Sub, sub([x0, x1]: 2 -> 1) {
        [(x0 - x1)]
    }
    /// The derivative of [`Sub`].
    SubBackward, sub_backward([x0]: 1 -> 1) {
        [(x0 * p::splat::<E, V>(-1.0))]
    }
    /// `x0 * x1`
    Mul, mul([x0, x1]: 2 -> 1) {
        [(x0 * x1)]
    }
    /// The derivative of [`Mul`].
    MulBackward, mul_backward([x0, x1, x2]: 3 -> 2) {
        [(x2 * x1), (x2 * x0)]
    }
    /// `x0 * by`
    Scale { by }, scale([x0]: 1 -> 1) {
        [(x0 * p::splat::<E, V>(by))]
    }
    /// The derivative of [`Scale`].
    ScaleBackward { by }, scale_backward([x0]: 1 -> 1) {
        [(x0 * p::splat::<E, V>(by))]
    }
    /// `x0 + by`
    Shift { by }, shift([x0]: 1 -> 1) {
        [(x0 + p::splat::<E, V>(by))]
    }
    /// `x0 * x0`
    Square, square([x0]: 1 -> 1) {
        [(x0 * x0)]
    }
    /// The derivative of [`Square`].
    SquareBackward, square_backward([x0, x1]: 2 -> 1) {
        [(x1 * (x0 + x0))]
    }
    /// `gelu(x0)`
    Gelu, gelu([x0]: 1 -> 1) {
        [p::activations::value(p::activations::Gelu, x0)]
    }
    /// The derivative of [`Gelu`].
    GeluBackward, gelu_backward([x0, x1]: 2 -> 1) {
        [(x1 * p::activations::slope(p::activations::Gelu, x0))]
    }
    /// `gelu_tanh(x0)`
    GeluTanh, gelu_tanh([x0]: 1 -> 1) {
        [p::activations::value(p::activations::GeluTanh, x0)]
    }
    /// The derivative of [`GeluTanh`].
    GeluTanhBackward, gelu_tanh_backward([x0, x1]: 2 -> 1) {
        [(x1 * p::activations::slope(p::activations::GeluTanh, x0))]
    }
    /// `relu(x0)`
    Relu, relu([x0]: 1 -> 1) {
        [p::activations::value(p::activations::Relu, x0)]
    }
    /// The derivative of [`Relu`].
    ReluBackward, relu_backward([x0, x1]: 2 -> 1) {
        [(x1 * p::activations::slope(p::activations::Relu, x0))]
    }
    /// `relu_squared(x0)`
    ReluSquared, relu_squared([x0]: 1 -> 1) {
        [p::activations::value(p::activations::ReluSquared, x0)]
    }
    /// The derivative of [`ReluSquared`].
    ReluSquaredBackward, relu_squared_backward([x0, x1]: 2 -> 1) {
        [(x1 * p::activations::slope(p::activations::ReluSquared, x0))]
    }
    /// `silu(x0)`
    Silu, silu([x0]: 1 -> 1) {
        [p::activations::value(p::activations::Silu, x0)]
    }
    /// The derivative of [`Silu`].
    SiluBackward, silu_backward([x0, x1]: 2 -> 1) {
        [(x1 * p::activations::slope(p::activations::Silu, x0))]
    }
    /// `sigmoid(x0)`
    Sigmoid, sigmoid([x0]: 1 -> 1) {
        [p::math::sigmoid(x0)]
    }
    /// The derivative of [`Sigmoid`].
    SigmoidBackward, sigmoid_backward([x0, x1]: 2 -> 1) {
        let part_0 = p::math::sigmoid(x0);
        [(x1 * (part_0 * (p::splat::<E, V>(1.0) - part_0)))]
    }
    /// `tanh(x0)`
    Tanh, tanh([x0]: 1 -> 1) {
        [p::math::tanh(x0)]
    }
    /// The derivative of [`Tanh`].
    TanhBackward, tanh_backward([x0, x1]: 2 -> 1) {
        let part_0 = p::math::tanh(x0);
        [(x1 * (p::splat::<E, V>(1.0) - (part_0 * part_0)))]
    }
    /// `gelu(x0) * x1`
    GeluGate, gelu_gate([x0, x1]: 2 -> 1) {
        [(p::activations::value(p::activations::Gelu, x0) * x1)]
    }
    /// The derivative of [`GeluGate`].
    GeluGateBackward, gelu_gate_backward([x0, x1, x2]: 3 -> 2) {
        [
            (x2 * (p::activations::slope(p::activations::Gelu, x0) * x1)),
            (x2 * p::activations::value(p::activations::Gelu, x0)),
        ]
    }
    /// `gelu_tanh(x0) * x1`
    GeluTanhGate, gelu_tanh_gate([x0, x1]: 2 -> 1) {
        [(p::activations::value(p::activations::GeluTanh, x0) * x1)]
    }
    /// The derivative of [`GeluTanhGate`].
    GeluTanhGateBackward, gelu_tanh_gate_backward([x0, x1, x2]: 3 -> 2) {
        [
            (x2 * (p::activations::slope(p::activations::GeluTanh, x0) * x1)),
            (x2 * p::activations::value(p::activations::GeluTanh, x0)),
        ]
    }
    /// `relu(x0) * x1`
    ReluGate, relu_gate([x0, x1]: 2 -> 1) {
        [(p::activations::value(p::activations::Relu, x0) * x1)]
    }
    /// The derivative of [`ReluGate`].
    ReluGateBackward, relu_gate_backward([x0, x1, x2]: 3 -> 2) {
        [
            (x2 * (p::activations::slope(p::activations::Relu, x0) * x1)),
            (x2 * p::activations::value(p::activations::Relu, x0)),
        ]
    }
    /// `silu(x0) * x1`
    SiluGate, silu_gate([x0, x1]: 2 -> 1) {
        [(p::activations::value(p::activations::Silu, x0) * x1)]
    }
    /// The derivative of [`SiluGate`].
    SiluGateBackward, silu_gate_backward([x0, x1, x2]: 3 -> 2) {
        [
            (x2 * (p::activations::slope(p::activations::Silu, x0) * x1)),
            (x2 * p::activations::value(p::activations::Silu, x0)),
        ]
    }
    /// `sigmoid(x0) * x1`
    SigmoidGate, sigmoid_gate([x0, x1]: 2 -> 1) {
        [(p::math::sigmoid(x0) * x1)]
    }
    /// The derivative of [`SigmoidGate`].
    SigmoidGateBackward, sigmoid_gate_backward([x0, x1, x2]: 3 -> 2) {
        let part_0 = p::math::sigmoid(x0);
        [(x2 * ((part_0 * (p::splat::<E, V>(1.0) - part_0)) * x1)), (x2 * part_0)]
    }
    /// `x0 + x1 * by`
    AddScaled { by }, add_scaled([x0, x1]: 2 -> 1) {
        [(x0 + (x1 * p::splat::<E, V>(by)))]
    }
    /// The derivative of [`AddScaled`].
    AddScaledBackward { by }, add_scaled_backward([x0]: 1 -> 1) {
        [(x0 * p::splat::<E, V>(by))]
    }
    /// `x0 + x1 * x2`
    AddProduct, add_product([x0, x1, x2]: 3 -> 1) {
        [(x0 + (x1 * x2))]
    }
    /// The derivative of [`AddProduct`].
    AddProductBackward, add_product_backward([x0, x1, x2]: 3 -> 2) {
        [(x2 * x1), (x2 * x0)]
    }
    /// `x0 * (x1 + 1) + x2`
    Modulate, modulate([x0, x1, x2]: 3 -> 1) {
        [((x0 * (x1 + p::splat::<E, V>(1.0))) + x2)]
    }
    /// The derivative of [`Modulate`].
    ModulateBackward, modulate_backward([x0, x1, x2]: 3 -> 2) {
        [(x2 * (x1 + p::splat::<E, V>(1.0))), (x2 * x0)]
    }
}
