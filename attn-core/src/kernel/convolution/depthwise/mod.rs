//! Convolutions with a group for each channel of the input. A group has one channel of the input and `multiplier` channels of the output, so
//! its products have a depth of 1: vectors are along what stands side by side, the channels or the places.

mod first;
mod last;

use super::{Channels, Convolution, Start};
use crate::kernel::Pooled;

pub(super) fn forward<E: Pooled>(
    x: &[E],
    w: &[E],
    of: &Convolution,
    start: Start<'_, E>,
    y: &mut [E],
) {
    if y.is_empty() {
        return;
    }
    match of.layout {
        Channels::Last => last::forward(x, w, of, start, y),
        Channels::First => first::forward(x, w, of, start, y),
    }
}

pub(super) fn input_gradient<E: Pooled>(
    d_y: &[E],
    w: &[E],
    of: &Convolution,
    start: Start<'_, E>,
    d_x: &mut [E],
) {
    if d_x.is_empty() {
        return;
    }
    match of.layout {
        Channels::Last => last::input_gradient(d_y, w, of, start, d_x),
        Channels::First => first::input_gradient(d_y, w, of, start, d_x),
    }
}

pub(super) fn add_weight_gradient<E: Pooled>(x: &[E], d_y: &[E], of: &Convolution, d_w: &mut [E]) {
    if d_y.is_empty() || d_w.is_empty() {
        return;
    }
    match of.layout {
        Channels::Last => last::add_weight_gradient(x, d_y, of, d_w),
        Channels::First => first::add_weight_gradient(x, d_y, of, d_w),
    }
}
