//! Numbers on their way, in both directions.

use std::{collections::HashMap, path::Path};

use dfdx::{nn::TensorCollection, tensor_ops::Device};

use super::{Plan, WeightMap};
use crate::{
    Element,
    checkpoint::{
        CheckpointError, Problem,
        archive::Values,
        model::{expected, for_each},
        number::decode,
        write::{Stored, write},
    },
    disk,
};

/// Writes the tensors of a model to a safetensors file in the layout of another library, which takes the place of the file before
/// at once.
///
/// In PyTorch, `safetensors.torch.load_file(path)` is then a `state_dict`.
///
/// # Errors
/// [`CheckpointError`] with [`Problem::Map`], if the map does not fit the model; a tensor of theirs of which ours are not the
/// whole is such a case. Or if the system refuses. The file at `path` is then what it was before.
#[doc(alias = "save_pretrained")]
pub fn save_mapped<M, E, D>(
    model: &M,
    map: &WeightMap,
    path: impl AsRef<Path>,
) -> Result<(), CheckpointError>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
{
    let path = path.as_ref();
    let tensors = stored(model, map).map_err(|problem| problem.at(path))?;
    disk::replace(path, |file| {
        write(file, map.metadata.clone(), &tensors).map_err(|problem| problem.at(path))
    })
}

/// The tensors of theirs and their bytes.
fn stored<M, E, D>(model: &M, map: &WeightMap) -> Result<Vec<Stored>, Problem>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
{
    let plan = Plan::new(map, &expected(model))?;
    let theirs = plan.theirs.iter().map(|theirs| Stored {
        name: theirs.name.clone(),
        described: theirs.described.clone(),
        bytes: Vec::new(),
    });
    let mut stored: Vec<Stored> = theirs.collect();
    let names = plan.theirs.iter().enumerate();
    let at: HashMap<&str, usize> = names.map(|(at, theirs)| (&*theirs.name, at)).collect();
    for_each(model, |slot| {
        let place = plan.ours.get(&slot.name);
        let Some((place, &at)) = place.and_then(|place| Some((place, at.get(&*place.theirs)?)))
        else {
            return;
        };
        let Stored {
            described, bytes, ..
        } = &mut stored[at];
        match &place.view {
            None => *bytes = (slot.bytes)(),
            Some(view) => {
                // As long as the tensors of the model that it is made of together, so it is no more than there can be.
                bytes.resize(described.bytes().unwrap_or_default(), 0);
                view.scatter(&(slot.bytes)(), bytes, described.dtype.bitsize() / 8);
            }
        }
    });
    Ok(stored)
}

/// The tensors of a model in a file of theirs that has nothing wrong.
pub(in crate::checkpoint) struct Mapped<'a> {
    plan: &'a Plan,
    values: &'a Values,
}

impl<'a> Mapped<'a> {
    /// # Errors
    /// If a file has a tensor under two names, and not the same numbers.
    pub(in crate::checkpoint) fn new(plan: &'a Plan, values: &'a Values) -> Result<Self, Problem> {
        let mapped = Self { plan, values };
        match plan.tied.iter().find(|names| mapped.differ(names)) {
            None => Ok(mapped),
            Some([copy, tensor]) => Err(Problem::NotTied {
                tensor: tensor.clone(),
                copy: copy.clone(),
            }),
        }
    }

    fn differ(&self, [copy, name]: &[String; 2]) -> bool {
        let numbers = |name: &String| {
            let (dtype, bytes) = self.values.bytes(name)?;
            Some(decode(dtype, bytes).map(f64::to_bits))
        };
        match (numbers(copy), numbers(name)) {
            (Some(copy), Some(numbers)) => !copy.eq(numbers),
            _ => false,
        }
    }

    /// The numbers of a tensor of the model. What the type cannot hold is rounded to what it can.
    pub(in crate::checkpoint) fn numbers<E: Element>(&self, ours: &str) -> Option<Vec<E>> {
        let place = self.plan.ours.get(ours)?;
        let (dtype, bytes) = self.values.bytes(&place.theirs)?;
        Some(match &place.view {
            None => decode(dtype, bytes).map(E::of).collect(),
            Some(view) => {
                let bytes = view.gather(bytes, dtype.bitsize() / 8);
                decode(dtype, &bytes).map(E::of).collect()
            }
        })
    }

    /// A number beside the tensors.
    pub(in crate::checkpoint) fn scalar(&self, ours: &str) -> Option<f64> {
        self.numbers::<f64>(ours)?.first().copied()
    }
}
