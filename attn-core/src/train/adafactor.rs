//! Adafactor.

use std::collections::BTreeMap;

use super::algorithm::{Algorithm, InvalidSetting, List, ListSize, Update, decay_of};
use super::{Optimizer, ParameterInfo};
use crate::{Element, kernel::optim as kernel};

/// The settings of [`Adafactor`]. The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdafactorConfig {
    /// The largest length of a step, relative to the root mean square of the parameter: 0 or more.
    pub lr: f64,
    /// The power of the step count that is the share of a new square in the means: at most 0.
    pub beta2_decay: f64,
    /// Squares of gradients below the square of this number count as that: 0 or more. `None` is the distance from 1 to the next number
    /// of the element type.
    pub epsilon: Option<f64>,
    /// A parameter with a smaller root mean square takes steps as if it had this one: 0 or more.
    pub smallest: f64,
    /// The largest root mean square of the direction of a step: more than 0.
    pub clip: f64,
    /// The weight decay: a step with the learning rate 1 would subtract this fraction of a parameter. 0 or more.
    /// Only the matrices of linear maps [decay by default](super::ParameterInfo::decays_by_default): no biases, gains, learned positions, and
    /// tables of embeddings. [`Optimizer::decaying`] changes that.
    pub weight_decay: f64,
}

impl Default for AdafactorConfig {
    fn default() -> Self {
        Self {
            lr: 1e-2,
            beta2_decay: -0.8,
            epsilon: None,
            smallest: 1e-3,
            clip: 1.0,
            weight_decay: 0.0,
        }
    }
}

/// Adafactor: of the squares of the gradients of a matrix, it keeps the means of the rows and of the columns. For the gradient `G` of
/// a parameter `P`, with the share `n = t^beta2_decay` of a new square, step `t` is
///
/// ```text
/// r = (1 - n) r + n mean(G², by rows)        c = (1 - n) c + n mean(G², by columns)
/// D = G / max(sqrt(r cᵀ / mean(r)), ε)
/// P = P - lr λ P - min(lr, 1 / sqrt(t)) max(smallest, rms(P)) D / max(1, rms(D) / clip)
/// ```
///
/// A tensor of more axes is a stack of matrices. Of a vector all squares are kept. Shazeer and Stern, "Adafactor: adaptive learning
/// rates with sublinear memory cost" (2018), algorithms 4 and 5. PyTorch: `torch.optim.Adafactor`.
///
/// ```
/// use attn::{dfdx::prelude::*, nn::Linear, train::Adafactor};
///
/// let dev = Cpu::default();
/// let mut model = dev.build_module::<Linear<64, 256>, f32>();
/// let mut optimizer = Adafactor::new(Default::default());
/// let x: Tensor<Rank2<8, 64>, f32, _> = dev.sample_normal();
/// let mut gradients = model.forward(x.traced(model.alloc_grads())).square().mean().backward();
/// optimizer.update(&mut model, &mut gradients)?;
/// // Of the 256 rows and 64 columns of the weight, and of the bias.
/// let kept: usize = optimizer.state.lists.values().map(Vec::len).sum();
/// assert_eq!(kept, 256 + 64 + 256);
/// # Ok::<(), attn::train::UpdateError<CpuError>>(())
/// ```
pub type Adafactor<E> = Optimizer<E, AdafactorConfig>;

const fn optional(name: &'static str, size: ListSize) -> List {
    List {
        size,
        always: false,
        ..List::of_elements(name)
    }
}

impl Algorithm for AdafactorConfig {
    const NAME: &'static str = "Adafactor";
    const LISTS: &'static [List] = &[
        optional("rows", ListSize::Rows),
        optional("cols", ListSize::Cols),
        optional("square", ListSize::Elements),
    ];

    fn lr(&self, step: u64) -> Option<f64> {
        Some(self.lr.min(1.0 / (step as f64).sqrt()))
    }

    fn check(&self) -> Result<(), InvalidSetting> {
        InvalidSetting::check_not_negative("lr", self.lr)?;
        InvalidSetting::check_not_negative("epsilon", self.epsilon.unwrap_or(0.0))?;
        InvalidSetting::check_not_negative("smallest", self.smallest)?;
        InvalidSetting::check_not_negative("weight_decay", self.weight_decay)?;
        let invalid = |name, found, expected| {
            Err(InvalidSetting {
                name,
                found,
                expected,
            })
        };
        if !(f64::MIN..=0.0).contains(&self.beta2_decay) {
            return invalid("beta2_decay", self.beta2_decay, "finite and at most 0");
        }
        if self.clip.is_nan() || self.clip <= 0.0 {
            return invalid("clip", self.clip, "more than 0");
        }
        Ok(())
    }

    fn keeps(&self, list: &List, parameter: &ParameterInfo<'_>) -> bool {
        let has_factors = parameter.dims.len() >= 2;
        has_factors == (list.size != ListSize::Elements)
    }

    fn begin(&self, _: u64, _: &mut BTreeMap<String, f64>) -> Result<(), &'static str> {
        Ok(())
    }

    fn update<E: Element>(&self, update: Update<'_, E>) {
        let epsilon: f64 = E::epsilon().into();
        let settings = kernel::Adafactor {
            lr: self.lr,
            beta2_decay: self.beta2_decay,
            epsilon: self.epsilon.unwrap_or(epsilon),
            smallest: self.smallest,
            clip: self.clip,
            weight_decay: decay_of(&update, self.weight_decay),
            step: update.count,
        };
        let [rows, cols, square] = Update::lists(update.lists);
        let squares = match update.info.dims {
            [.., _, width] => kernel::Squares::Factors {
                rows,
                cols,
                width: *width,
            },
            _ => kernel::Squares::All(square),
        };
        kernel::adafactor_step(update.parameter, update.gradient, squares, &settings);
    }
}
