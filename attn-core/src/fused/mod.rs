//! A layer as one operation on the tape, over slices.
//!
//! The macros take the derivative and emit a forward and a backward function. This module has the types that these use:
//! [`Operation`] is the connection to dfdx, [`Array`] holds values, [`Projection`] the parameters of one product. The computation
//! is in [`kernel`](crate::kernel).

mod affine;
mod arena;
mod array;
mod attention;
mod backward;
mod bounds;
mod budget;
mod coverage;
mod distance_table;
mod finished;
mod footprint;
mod gradient_refs;
mod gradients;
mod interval;
mod operation;
mod projection;
mod quantize;
mod score;
mod slot;
mod steps;
mod target;
mod truth;
mod zone;

pub use affine::Affine;
pub use arena::Numbers;
pub(crate) use arena::{Arena, id_of, ranges_of_trained};
pub use array::{Array, IdArray};
pub use attention::{Beside, BesideArrays, BesideGradients};
pub use backward::{backward, try_backward};
pub use bounds::{AxisBounds, DivisorBounds};
pub use budget::{ChosenPlan, PlanSearch, PlanWork, all_rounds, first_rounds};
pub use distance_table::DistanceTable;
pub(crate) use finished::{FinishedSlots, Watch};
pub use footprint::{Entry, Footprint, Peaks};
pub use gradient_refs::GradientRefs;
pub(crate) use gradient_refs::merge;
pub use gradients::{Gradients, accumulate};
pub use interval::Interval;
pub(crate) use operation::{Derivative, StepSeeds};
pub use operation::{Operand, Operation, Output, PassSeeds};
pub use projection::{
    AffineMap, PackedProjection, Projection, ProjectionBuilder, ProjectionLayer,
    packed_input_backward,
};
pub use quantize::{
    InexactRow, NamedTensor, RoundedWeights, VisitWeights, WeightReport, WeightVisitor,
    visit_weights,
};
pub(crate) use quantize::{
    TensorNumbers, WeightSource, replace_weights, round_weights, tensors_by_kind,
};
pub use score::{ScoreGradient, sum_of_gradients, unflatten};
pub use slot::{Slot, VisitSlot, WantsGradient, any_wanted, rounds_wanted, visit_slots};
pub use steps::{
    Step, StepMut, StepRows, StepRowsMut, Steps, segment_length, segments, some_steps, step,
    step_mut,
};
pub use target::GradTarget;
pub use truth::Truth;
pub use zone::{Cut, Zone};

use crate::{Element, simd::prefer_huge_pages};

/// A vector of zeros, for a tensor to own.
pub fn zeros<E: Element>(len: usize) -> Vec<E> {
    let mut zeros = vec![E::zero(); len];
    prefer_huge_pages(&mut zeros);
    zeros
}

/// An element of a parameter, to compute with on the host.
pub fn number<E: Element>(value: E) -> f64 {
    value.into()
}
