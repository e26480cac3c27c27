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
        &[Entry::Take(ACTIVE)],
    )
}

impl<K: kernel::Activation> Middle<K> {
    fn input(&self) -> usize {
        input(self.width, self.gated)
    }

    /// Of `x + bias`.
    fn forward<E: Element>(&self, x: &Array<E>, bias: &[E]) -> Array<E> {
        let mut y = Array::stale(x.all().rows(), [self.width]);
        let forward = if self.gated {
            kernel::gated_forward
        } else {
            kernel::biased_forward
        };
        forward(self.activation, x.all(), bias, y.all_mut());
        y
    }

    /// `x` becomes its gradient, and that of the result becomes the result.
    fn backward<E: Element>(&self, x: &mut Array<E>, bias: &[E], d_y: &mut Array<E>) {
        let backward = if self.gated {
            kernel::gated_backward_in_place
        } else {
            kernel::biased_backward_in_place
        };
        backward(self.activation, x.all_mut(), bias, d_y.all_mut());
    }
}

impl<K: kernel::Activation, E: Element> FeedForward<K, E> {
    /// Writes the result, and returns what comes into the nonlinearity, without its bias: what comes out of it is computed
    /// again.
    pub fn forward(&self, x: Matrix<'_, E>, y: MatrixMut<'_, E>) -> Array<E> {
        let mut hidden = Array::stale(x.rows(), [self.middle.input()]);
        self.up.product(x, hidden.all_mut());
        let active = self.middle.forward(&hidden, &self.up.lacking());
        self.down.forward(active.all(), y);
        hidden
    }

    /// The derivative. The gradient of what came into the nonlinearity takes its place.
    pub fn backward(
        &self,
        x: Matrix<'_, E>,
        mut hidden: Array<E>,
        d_y: Matrix<'_, E>,
        d_x: &mut Target<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        let mut active = Array::stale(d_y.rows(), [self.middle.width]);
        self.down
            .input_gradient(d_y, Into::Overwrite, active.all_mut());
        self.middle
            .backward(&mut hidden, &self.up.lacking(), &mut active);
        self.down.add_gradients(active.all(), d_y, gradients);
        drop(active);
        self.up.backward(x, hidden.all(), d_x, gradients)
    }
}
