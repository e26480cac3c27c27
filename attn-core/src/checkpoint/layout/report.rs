//! The tensors that a file and a model had in common, and the others.

use std::fmt::{self, Display};

use super::Plan;
use crate::checkpoint::{TensorType, archive::Expected};

/// The result of [`load_mapped`](crate::checkpoint::Archive::load_mapped) for each tensor of a model.
///
/// PyTorch: what `model.load_state_dict(.., strict=False)` returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// The tensors of the model that have the numbers of the file, in the order of the model.
    pub loaded: Vec<String>,
    /// The tensors that stay as they were built: they are [fresh](super::WeightMap::fresh), or not [under](super::WeightMap::under)
    /// the prefix of the map.
    pub fresh: Vec<(String, TensorType)>,
}

impl LoadReport {
    /// The report leaves out numbers beside the tensors, as the epsilon of a norm.
    pub(super) fn new(plan: &Plan, model: Vec<Expected>) -> Self {
        let mut report = Self::default();
        for tensor in model.into_iter().filter(|tensor| !tensor.optional) {
            match plan.ours.contains_key(&tensor.name) {
                true => report.loaded.push(tensor.name),
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
        Ok(())
    }
}
