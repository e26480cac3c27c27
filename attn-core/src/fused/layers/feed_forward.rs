//! Two affine maps and a nonlinearity between them.

use crate::{
    Element,
    fused::{Array, Entry, Footprint, Gradients, Projection, Target},
    kernel::{Matrix, MatrixMut, activation as kernel},
    simd::Into,
};

/// A feed-forward layer, gated or not.
pub struct FeedForward<K, E: Element> {
    /// The first map, or the gate and it.
    pub up: Projection<E>,
    /// What is between the two maps.
    pub middle: Middle<K>,
    /// The second map.
    pub down: Projection<E>,
}

/// A nonlinearity.
#[derive(Clone, Copy, Debug)]
pub struct Middle<K> {
    /// Which one.
    pub activation: K,
    /// Whether the first half of what comes in gates the other.
    pub gated: bool,
    /// How many numbers come out.
    pub width: usize,
}

/// How many numbers come into a nonlinearity out of which `width` come.
const fn input(width: usize, gated: bool) -> usize {
    if gated {
        width.saturating_mul(2)
    } else {
        width
    }
}

/// What a [`FeedForward`] of `rows` vectors takes, with so many numbers between its two maps.
pub const fn feed_forward_footprint(rows: &[usize], width: usize, gated: bool) -> Footprint {
    let rows = Footprint::array(rows).kept;
    let parts = [
        Footprint::array(&[rows, input(width, gated)]),
        Footprint::array(&[rows, width]),
    ];
    const HIDDEN: usize = 0;
    const ACTIVE: usize = 1;
    Footprint::of(
        &parts,
        &[
            Entry::Take(HIDDEN),
            Entry::Take(ACTIVE),
            Entry::Free(ACTIVE),
        ],
        &[Entry::Take(ACTIVE), Entry::Take(HIDDEN)],
    )
}

impl<K: kernel::Activation> Middle<K> {
    fn input(&self) -> usize {
        input(self.width, self.gated)
    }

    fn forward<E: Element>(&self, x: &Array<E>) -> Array<E> {
        let mut y = Array::stale(x.all().rows(), [self.width]);
        if self.gated {
            kernel::gated_forward(self.activation, x.all(), y.all_mut());
        } else {
            kernel::forward(self.activation, x.numbers(), y.numbers_mut());
        }
        y
    }

    fn backward<E: Element>(&self, x: &Array<E>, d_y: &Array<E>) -> Array<E> {
        let mut d_x = Array::like(x.all());
        if self.gated {
            kernel::gated_backward(self.activation, x.all(), d_y.all(), d_x.all_mut());
        } else {
            let to = d_x.numbers_mut();
            kernel::backward(self.activation, x.numbers(), d_y.numbers(), to);
        }
        d_x
    }
}

impl<K: kernel::Activation, E: Element> FeedForward<K, E> {
    /// Writes the result, and returns what comes into the nonlinearity: what comes out of it is computed again.
    pub fn forward(&self, x: Matrix<'_, E>, y: MatrixMut<'_, E>) -> Array<E> {
        let mut hidden = Array::stale(x.rows(), [self.middle.input()]);
        self.up.forward(x, hidden.all_mut());
        self.down.forward(self.middle.forward(&hidden).all(), y);
        hidden
    }

    /// The derivative.
    pub fn backward(
        &self,
        x: Matrix<'_, E>,
        hidden: &Array<E>,
        d_y: Matrix<'_, E>,
        d_x: &mut Target<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        let active = self.middle.forward(hidden);
        self.down.add_gradients(active.all(), d_y, gradients);
        // Where the activations were, their gradient.
        let mut d_active = active;
        self.down
            .input_gradient(d_y, Into::Overwrite, d_active.all_mut());
        let d_hidden = self.middle.backward(hidden, &d_active);
        drop(d_active);
        self.up.backward(x, d_hidden.all(), d_x, gradients)
    }
}
