//! Normalisation of queries and keys.

use dfdx::{
    shapes::{Axes3, Axis, Dim, HasShape, Rank1},
    tensor::{Tape, Tensor},
    tensor_ops::{BroadcastTo, Device, MeanTo, SumTo, TryAdd, TryDiv, TryMul},
};

use super::{
    Heads,
    tensors::{is_empty, zeros_after_both},
};
use crate::{Element, kernel::norm::Gain};

/// `x / sqrt(mean(x^2) + epsilon) * gain`, over the width of each head.
///
/// Zhang and Sennrich, "Root mean square layer normalization" (2019), equation 4; on queries and keys as in Qwen 3, and with
/// [`Gain::OnePlus`] as in Gemma 3. PyTorch: `torch.nn.RMSNorm(width, eps=epsilon)`.
pub fn rms_norm<
    B: Dim,
    S: Dim,
    const H: usize,
    const W: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    x: Heads<B, H, S, W, E, D, T>,
    gain: Gain<&Tensor<Rank1<W>, E, D>>,
    epsilon: f64,
) -> Result<Heads<B, H, S, W, E, D, T>, D::Err> {
    let shape = *x.shape();
    let is_offset = matches!(gain, Gain::OnePlus(_));
    let gain = gain.learned().map(|gain| gain.retaped::<T>());
    if is_empty(&shape) {
        return match gain {
            None => Ok(x),
            Some(gain) => zeros_after_both(x, gain, shape),
        };
    }
    let mean = x.retaped::<T>().try_square()?.try_mean::<_, Axis<3>>()?;
    let rms = mean.try_add(E::of(epsilon))?.try_sqrt()?;
    let normed = x.try_div(rms.try_broadcast_like::<_, Axis<3>>(&shape)?)?;
    let gain = match gain {
        None => return Ok(normed),
        Some(gain) if is_offset => gain.try_add(E::of(1.0))?,
        Some(gain) => gain,
    };
    normed.try_mul(gain.try_broadcast_like::<_, Axes3<0, 1, 2>>(&shape)?)
}

/// `x / sqrt(sum(x^2) + epsilon)`, over the width of each head.
///
/// Henry et al., "Query-key normalization for transformers" (2020), which also has a learned or fixed scale of the scores. PyTorch:
/// `torch.nn.functional.normalize(x, dim=-1)`, which bounds the length from below instead of adding an epsilon.
pub fn l2_norm<
    B: Dim,
    S: Dim,
    const H: usize,
    const W: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    x: Heads<B, H, S, W, E, D, T>,
    epsilon: f64,
) -> Result<Heads<B, H, S, W, E, D, T>, D::Err> {
    let shape = *x.shape();
    if is_empty(&shape) {
        return Ok(x);
    }
    let sum = x.retaped::<T>().try_square()?.try_sum::<_, Axis<3>>()?;
    let length = sum.try_add(E::of(epsilon))?.try_sqrt()?;
    x.try_div(length.try_broadcast_like::<_, Axis<3>>(&shape)?)
}

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    use super::*;
    use crate::testing::*;

    const EPSILON: f64 = 1e-6;

    type X<E> = Heads<usize, 2, usize, 3, E, Cpu, NoneTape>;

    fn check<E: Element>([b, s]: [usize; 2], tolerance: f64)
    where
        Cpu: Device<E>,
    {
        let x: X<E> = tensor((b, Const, s, Const), 1);
        let gain: Tensor<Rank1<3>, E, Cpu> = tensor((Const,), 2);
        let rms = rms_norm(x.clone(), Gain::Factor(&gain), EPSILON).unwrap();
        let l2 = l2_norm(x.clone(), EPSILON).unwrap();
        let x = values(&x);
        let gain = values(&gain);
        let squares = |b_, h, s_| {
            let row = at([b, 2, s, 3], [b_, h, s_, 0]);
            x[row..row + 3].iter().map(|x| x * x).sum::<f64>()
        };
        let element = |place| x[at([b, 2, s, 3], place)];
        let expected = naive([b, 2, s, 3], |b, h, s, w| {
            element([b, h, s, w]) / (squares(b, h, s) / 3.0 + 1e-6).sqrt() * gain[w]
        });
        assert_close(&values(&rms), &expected, tolerance);
        let expected = naive([b, 2, s, 3], |b, h, s, w| {
            element([b, h, s, w]) / (squares(b, h, s) + 1e-6).sqrt()
        });
        assert_close(&values(&l2), &expected, tolerance);
    }

    #[test]
    fn norms_divide_vectors_by_their_length() {
        for sizes in [[2, 5], [1, 1], [0, 3], [2, 0]] {
            check::<f64>(sizes, F64);
            check::<f32>(sizes, F32);
        }
    }

    #[test]
    fn norms_have_gradients_of_views() {
        // A permuted view, as the output of `split_heads` is.
        let x: Tensor<(usize, usize, Const<2>, Const<3>), f64, Cpu> =
            tensor((2, 4, Const, Const), 1);
        let gain: Tensor<Rank1<3>, f64, Cpu> = tensor((Const,), 2);
        let view = |x: &Tensor<(usize, usize, Const<2>, Const<3>), f64, Cpu>| -> Traced<_> {
            x.leaky_trace().permute::<_, Axes4<0, 2, 1, 3>>()
        };
        check_gradient(&x, |x| {
            rms_norm(view(x), Gain::Factor(&gain), EPSILON).unwrap()
        });
        check_gradient(&gain, |gain| {
            rms_norm(view(&x), Gain::Factor(gain), EPSILON).unwrap()
        });
        check_gradient(&x, |x| l2_norm(view(x), EPSILON).unwrap());

        let row: Tensor<Rank1<3>, f64, Cpu> = tensor((Const,), 1);
        check_gradient(&row, |x| {
            let x: Traced<(usize, Const<2>, usize, Const<3>)> = x
                .leaky_trace()
                .broadcast_like::<_, Axes3<0, 1, 2>>(&(2, Const, 3, Const));
            rms_norm(x, Gain::Factor(&gain), EPSILON).unwrap()
        });
    }

    #[test]
    fn a_vector_of_zeros_stays_zero_with_a_finite_gradient() {
        let x: X<f64> = Cpu::default().zeros_like(&(1, Const, 1, Const));
        let gain: Tensor<Rank1<3>, f64, Cpu> = tensor((Const,), 2);
        assert_eq!(
            values(&rms_norm(x.clone(), Gain::Factor(&gain), EPSILON).unwrap()),
            [0.0; 6]
        );
        assert_eq!(values(&l2_norm(x.clone(), EPSILON).unwrap()), [0.0; 6]);
        let finite = |g: Vec<f64>| assert!(g.iter().all(|g| g.is_finite() && *g != 0.0));
        finite(gradient(&x, |x| {
            rms_norm(x.leaky_trace(), Gain::Factor(&gain), EPSILON).unwrap()
        }));
        finite(gradient(&x, |x| l2_norm(x.leaky_trace(), EPSILON).unwrap()));
    }

    #[test]
    fn the_gain_gets_a_gradient_from_an_empty_input() {
        let x: X<f64> = tensor((2, Const, 0, Const), 1);
        let gain: Tensor<Rank1<3>, f64, Cpu> = tensor((Const,), 2);
        let gradients =
            backward_of_nothing(rms_norm(x.leaky_trace(), Gain::Factor(&gain), EPSILON).unwrap());
        assert_eq!(values(&gradients.get(&gain)), [0.0; 3]);
    }
}
