//! Loops of elementwise expressions on slices, for the fused form of a model.

use crate::{
    Element,
    fused::{GradTarget, Gradients, WantsGradient},
    kernel::loops::{self, Loop, Read, Write},
};

/// `to = f(x)` for every element.
pub fn elementwise<'a, E: Element, const N: usize>(
    body: &impl Loop<N, 1>,
    x: [Read<'_, E>; N],
    to: impl Into<Write<'a, E>>,
) {
    loops::compute(body, x, [to.into()]);
}

/// The gradients of the operands, by the loop of the derivative. The last operand of the loop is the gradient of the result.
pub fn elementwise_backward<E: Element, const N: usize, const M: usize>(
    body: &impl Loop<N, M>,
    x: [Read<'_, E>; N],
    to: [&mut GradTarget<'_, E>; M],
    gradients: &mut Gradients<E>,
) {
    if !to.iter().any(|to| to.is_wanted()) {
        return;
    }
    let to = GradTarget::all_of(to, gradients);
    let to = to.map(|(numbers, mode)| Write::with_mode(numbers, mode));
    loops::compute(body, x, to);
}
