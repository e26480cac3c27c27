//! Normalisation of vectors.

use crate::{
    Element,
    fused::{Array, Footprint, Gradients, Operand, Target, accumulate},
    kernel::{
        Matrix, MatrixMut,
        dropout::Dropped,
        norm::{Gradients as NormGradients, Kind, Norm as Kernel, STATISTICS},
    },
};

/// A layer norm, or one by the root mean square, with its gain and perhaps a bias.
pub struct Norm<E: Element> {
    /// Which of the two.
    pub kind: Kind,
    /// Keeps the divisor away from 0.
    pub epsilon: f64,
    /// What the normalised numbers are multiplied with.
    pub gain: Operand<E>,
    /// What is added then.
    pub bias: Option<Operand<E>>,
}

/// What a [`Norm`] of vectors of this width takes: the statistics, and in its derivative those by gain and bias.
pub const fn norm_footprint(rows: &[usize], width: usize) -> Footprint {
    let statistics = Footprint::array(&[Footprint::array(rows).kept, STATISTICS]);
    Footprint {
        backward: Footprint::back(&[2, width]).backward,
        ..statistics
    }
}

impl<E: Element> Norm<E> {
    fn kernel(&self) -> Kernel<'_, E> {
        Kernel {
            kind: self.kind,
            gain: Some(self.gain.values()),
            bias: self.bias.as_ref().map(Operand::values),
            epsilon: E::of(self.epsilon),
        }
    }

    /// Writes the result, and returns what the derivative needs of it.
    pub fn forward(&self, x: Matrix<'_, E>, y: MatrixMut<'_, E>) -> Array<E> {
        let mut statistics = Array::stale(x.rows(), [STATISTICS]);
        self.kernel().forward(x, y, statistics.numbers_mut());
        statistics
    }

    /// The same of `x + y`, which takes the place of `x`.
    pub fn forward_of_sum<'a>(
        &self,
        x: impl Into<Dropped<&'a mut [E]>>,
        y: impl Into<Dropped<&'a [E]>>,
        to: MatrixMut<'_, E>,
    ) -> Array<E> {
        let mut statistics = Array::stale(to.rows(), [STATISTICS]);
        let (x, y) = (x.into(), y.into());
        self.kernel()
            .forward_of_sum(x, y, to, statistics.numbers_mut());
        statistics
    }

    /// The derivative.
    pub fn backward(
        &self,
        x: Matrix<'_, E>,
        statistics: Array<E>,
        d_y: Matrix<'_, E>,
        d_x: &mut Target<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        let (rows, width) = (x.rows(), x.cols());
        // One gradient of the tape at a time can be written in place.
        let [mut d_gain, mut d_bias] = [(); 2].map(|()| Array::zeros(1, [width]));
        let (numbers, into) = d_x.numbers_mut(gradients);
        let to = NormGradients {
            x: MatrixMut::new(numbers, rows, width),
            into,
            gain: Some(d_gain.numbers_mut()),
            bias: self.bias.is_some().then_some(d_bias.numbers_mut()),
        };
        self.kernel().backward(x, statistics.numbers(), d_y, to);
        accumulate(self.gain.gradient(gradients), d_gain.numbers());
        if let Some(bias) = &self.bias {
            accumulate(bias.gradient(gradients), d_bias.numbers());
        }
    }
}
