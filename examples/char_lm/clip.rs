//! Gradient clipping, which dfdx leaves to its users.

use crate::model::Model;
use attn::dfdx::prelude::*;

/// Scales all gradients of `model` by one factor, so that together they are no longer than
/// `most`. With 0 they are left alone.
pub(crate) fn clip_gradients(
    model: &Model,
    gradients: &mut Gradients<f32, Cpu>,
    most: f64,
) -> Result<(), CpuError> {
    if most == 0.0 {
        return Ok(());
    }
    let mut squares = 0.0;
    for_each(model, gradients, |g| {
        squares += g.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>()
    })?;
    let norm = squares.sqrt();
    if norm > most {
        let factor = (most / norm) as f32;
        for_each(model, gradients, |g| {
            g.iter_mut().for_each(|x| *x *= factor)
        })?;
    }
    Ok(())
}

/// Hands the gradient of every parameter to `f`.
fn for_each(
    model: &Model,
    gradients: &mut Gradients<f32, Cpu>,
    f: impl FnMut(&mut [f32]),
) -> Result<(), CpuError> {
    let mut visitor = Visitor { gradients, f };
    TensorCollection::iter_tensors(&mut RecursiveWalker {
        m: model,
        f: &mut visitor,
    })?;
    Ok(())
}

struct Visitor<'a, F> {
    gradients: &'a mut Gradients<f32, Cpu>,
    f: F,
}

impl<F: FnMut(&mut [f32])> TensorVisitor<f32, Cpu> for Visitor<'_, F> {
    type Viewer = ViewTensorRef;
    type Err = CpuError;
    type E2 = f32;
    type D2 = Cpu;

    fn visit<S: Shape>(
        &mut self,
        options: TensorOptions<S, f32, Cpu>,
        parameter: &Tensor<S, f32, Cpu>,
    ) -> Result<Option<Tensor<S, f32, Cpu>>, CpuError> {
        if options.do_gradient_update {
            (self.f)(self.gradients.get_or_alloc_mut(parameter)?);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;

    fn norm(model: &Model, gradients: &mut Gradients<f32, Cpu>) -> Result<f64, CpuError> {
        let mut squares = 0.0;
        for_each(model, gradients, |g| {
            squares += g.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
        })?;
        Ok(squares.sqrt())
    }

    #[test]
    fn only_long_gradients_are_shortened() -> Result<(), CpuError> {
        let model = model::build(&Cpu::seed_from_u64(0))?;
        let mut gradients = model.try_alloc_grads()?;
        for_each(&model, &mut gradients, |g| g.fill(0.01))?;
        let before = norm(&model, &mut gradients)?;
        clip_gradients(&model, &mut gradients, 2.0 * before)?;
        clip_gradients(&model, &mut gradients, 0.0)?;
        assert_eq!(norm(&model, &mut gradients)?, before);
        clip_gradients(&model, &mut gradients, before / 4.0)?;
        // Each gradient is rounded to f32 once.
        assert!((norm(&model, &mut gradients)? / before - 0.25).abs() < 1e-6);
        Ok(())
    }
}
