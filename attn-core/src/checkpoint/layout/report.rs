//! The report of a mapped load.

use std::{
    fmt::{self, Display},
    ops::Range,
};

use super::Plan;
use crate::checkpoint::{TensorType, archive::Expected};

/// The result of [`load_mapped`](crate::checkpoint::Archive::load_mapped) for each tensor of a model.
///
/// PyTorch: what `model.load_state_dict(.., strict=False)` returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// The tensors of the model that were loaded, in the order of the model.
    pub loaded: Vec<String>,
    /// The tensors that keep their initial values: they are [fresh](super::WeightMap::fresh), or do not have the
    /// [prefix](super::WeightMap::under) of the map.
    pub fresh: Vec<(String, TensorType)>,
    /// The [grown](super::WeightMap::grown) tensors: the rows that keep their initial values. The rows before them were loaded.
    pub grown: Vec<(String, Range<usize>, TensorType)>,
}

impl LoadReport {
    /// The report omits numbers beside the tensors, such as the epsilon of a norm.
    pub(super) fn new(plan: &Plan, model: Vec<Expected>) -> Self {
        let mut report = Self::default();
        for tensor in model.into_iter().filter(|tensor| !tensor.optional) {
            let mut grown = plan.grown.iter();
            if let Some((_, rows)) = grown.find(|(name, _)| *name == tensor.name) {
                let all = tensor.described.shape.first().copied().unwrap_or(*rows);
                let rest = (tensor.name.clone(), *rows..all, tensor.described);
                report.grown.push(rest);
                report.loaded.push(tensor.name);
                continue;
            }
            match plan.ours.contains_key(&tensor.name) {
                true => report.loaded.push(tensor.name),
                false if plan.leaves(&tensor.name) => {}
                false => report.fresh.push((tensor.name, tensor.described)),
            }
        }
        report
    }
}

impl Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tensors loaded", self.loaded.len())?;
        for (name, described) in &self.fresh {
            write!(f, "\n  as built: {name}, {described}")?;
        }
        for (name, rows, described) in &self.grown {
            write!(f, "\n  as built: rows {rows:?} of {name}, {described}")?;
        }
        Ok(())
    }
}
