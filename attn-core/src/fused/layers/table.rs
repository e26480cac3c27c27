//! A vector per id.

use crate::{
    Element,
    fused::{Gradients, Operand, Target, known},
    kernel::{Matrix, MatrixMut, embedding, linear},
};

/// The table of an embedding, `[count, width]`; also the weight of a linear map to as many numbers as it has rows.
pub struct Table<E: Element>(pub Operand<E>);

impl<E: Element> Table<E> {
    /// Row `ids[i]` becomes row `i` of the result.
    ///
    /// # Panics
    /// If an id has no row: they are checked before.
    pub fn forward(&self, ids: &[usize], to: MatrixMut<'_, E>) {
        known(embedding::forward(ids, self.0.matrix(), to));
    }

    /// The derivative of [`forward`](Self::forward).
    pub fn backward(&self, ids: &[usize], d_y: Matrix<'_, E>, gradients: &mut Gradients<E>) {
        let to = self.0.gradient_matrix(gradients);
        known(embedding::backward(ids, d_y, to));
    }

    /// The first `len` rows, for each of the sequences of the result.
    ///
    /// # Panics
    /// If there are fewer: the length is checked before.
    pub fn forward_positions(&self, len: usize, to: MatrixMut<'_, E>) {
        self.forward(&positions(len, to.rows()), to);
    }

    /// The derivative of [`forward_positions`](Self::forward_positions).
    pub fn backward_positions(&self, len: usize, d_y: Matrix<'_, E>, gradients: &mut Gradients<E>) {
        self.backward(&positions(len, d_y.rows()), d_y, gradients)
    }

    /// `y = x Wᵀ`
    ///
    /// Press and Wolf, "Using the output embedding to improve language models" (2016).
    pub fn project(&self, x: Matrix<'_, E>, y: MatrixMut<'_, E>) {
        linear::forward(x, self.0.matrix(), None, y);
    }

    /// The derivative of [`project`](Self::project).
    pub fn project_backward(
        &self,
        x: Matrix<'_, E>,
        d_y: Matrix<'_, E>,
        d_x: &mut Target<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        linear::add_gradients(d_y, x, self.0.gradient_matrix(gradients), None);
        let (numbers, into) = d_x.numbers_mut(gradients);
        let to = MatrixMut::new(numbers, x.rows(), x.cols());
        linear::input_gradient(d_y, self.0.matrix(), into, to);
    }
}

/// The positions of the tokens of sequences, one sequence after the other.
fn positions(len: usize, tokens: usize) -> Vec<usize> {
    (0..tokens).map(|token| token % len).collect()
}
