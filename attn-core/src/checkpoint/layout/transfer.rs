//! Copies between a model and a file of another library.

use std::{any::type_name, collections::HashMap, io::Read, path::Path};

use dfdx::{
    nn::tensor_collection::{
        RecursiveWalker, ScalarOptions, TensorCollection, TensorOptions, TensorVisitor,
        ViewTensorMut, ViewTensorName,
    },
    shapes::Shape,
    tensor::Tensor,
    tensor_ops::Device,
};
use num_traits::NumCast;

use super::{LoadReport, Plan, WeightMap, assemble::TensorSource};
use crate::{
    Element,
    checkpoint::{
        Archive, CheckpointError, LoadOptions, Problem,
        archive::{Values, compare},
        number::decode,
        tensors::{expected, for_each},
        write::{Stored, write},
    },
    disk,
};

/// Writes the tensors of a model to a safetensors file in the layout of another library. The file replaces an existing one
/// atomically.
///
/// In PyTorch, `safetensors.torch.load_file(path)` is then a `state_dict`.
///
/// # Errors
/// [`CheckpointError`] with [`Problem::Map`] if the map does not fit the model, for example if our tensors are only a part of one of
/// theirs; or if the operating system returns an error. The file at `path` does not change then.
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

/// The tensors of the file and their bytes.
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
        let Some(sources) = plan.ours.get(&slot.name) else {
            return;
        };
        let ours = (slot.bytes)();
        for source in sources {
            let Some(&at) = at.get(&*source.theirs) else {
                continue;
            };
            let Stored {
                described, bytes, ..
            } = &mut stored[at];
            let width = described.dtype.bitsize() / 8;
            let of_head = source.part.as_ref();
            let of_head = of_head.map(|part| part.gather(&ours, width));
            let ours = of_head.as_ref().unwrap_or(&ours);
            match &source.view {
                None => bytes.clone_from(ours),
                Some(view) => {
                    // The tensors of the model that it consists of are in memory, so its size fits as well.
                    bytes.resize(described.bytes().unwrap_or_default(), 0);
                    view.scatter(ours, bytes, width);
                }
            }
        }
    });
    Ok(stored)
}

impl<R: Read> Archive<R> {
    /// Reads the tensors of a model from a file of another library, by a [map](super) of names and layouts.
    ///
    /// As for [`load`](crate::checkpoint::load), all checks precede the first change of a tensor. The report lists the tensors that were
    /// loaded, and those that keep their initial values because the map [says so](WeightMap::fresh).
    ///
    /// PyTorch: `model.load_state_dict(convert(safetensors.torch.load_file(path)), strict=True)`.
    ///
    /// # Errors
    /// The errors of [`load`](crate::checkpoint::load), with [`Problem::Mismatch`] in the names of the file; [`Problem::Map`] if the map does
    /// not fit the model; [`Problem::Prefix`] if no tensor of the file has the prefix of the map; and [`Problem::NotTied`] if tied tensors
    /// differ.
    #[doc(alias("from_pretrained", "load_state_dict"))]
    pub fn load_mapped<M, E, D>(
        self,
        model: &mut M,
        map: &WeightMap,
        options: LoadOptions,
    ) -> Result<LoadReport, CheckpointError>
    where
        M: TensorCollection<E, D>,
        E: Element,
        D: Device<E>,
    {
        self.with_path(|archive| {
            let expected = expected(model);
            let plan = Plan::new(map, &expected)?;
            let values = archive.read_mapped(&plan, options)?;
            fill(model, &Mapped::new(&plan, &values)?)?;
            Ok(LoadReport::new(&plan, expected))
        })
    }

    fn read_mapped(mut self, plan: &Plan, options: LoadOptions) -> Result<Values, Problem> {
        let tensors = &mut self.header.tensors;
        plan.check_prefix(tensors.keys().map(String::as_str))?;
        tensors.retain(|name, _| !plan.ignores(name));
        let mut mismatch = compare(&plan.expected(), &*tensors, options);
        plan.explain(&mut mismatch);
        self.read_unless(mismatch, options)
    }
}

/// The tensors of a file that passed all checks, by the names of the model.
struct Mapped<'a> {
    plan: &'a Plan,
    values: &'a Values,
}

impl<'a> Mapped<'a> {
    /// # Errors
    /// If the file has tied tensors with different numbers.
    fn new(plan: &'a Plan, values: &'a Values) -> Result<Self, Problem> {
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

    /// The numbers of a tensor of the model, rounded to the type `E`.
    fn numbers<E: Element>(&self, ours: &str) -> Option<Vec<E>> {
        let sources = self.plan.ours.get(ours)?;
        if let [source] = &sources[..]
            && source.part.is_none()
        {
            return self.part(source);
        }
        let parts = sources.iter().map(|source| self.part(source));
        let parts: Vec<Vec<E>> = parts.collect::<Option<_>>()?;
        let mut joined = vec![E::zero(); parts.iter().map(Vec::len).sum()];
        for (source, numbers) in sources.iter().zip(&parts) {
            source.part.as_ref()?.place(numbers, &mut joined);
        }
        Some(joined)
    }

    /// The numbers at a place of the file.
    fn part<E: Element>(&self, source: &TensorSource) -> Option<Vec<E>> {
        let (dtype, bytes) = self.values.bytes(&source.theirs)?;
        Some(match &source.view {
            None => decode(dtype, bytes).map(E::of).collect(),
            Some(view) => {
                let bytes = view.gather(bytes, dtype.bitsize() / 8);
                decode(dtype, &bytes).map(E::of).collect()
            }
        })
    }

    /// A number that dfdx stores beside the tensors.
    fn scalar(&self, ours: &str) -> Option<f64> {
        self.numbers::<f64>(ours)?.first().copied()
    }
}

/// Copies the values into the model, after a dry run without errors.
fn fill<M, E, D>(model: &mut M, values: &Mapped<'_>) -> Result<(), Problem>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
{
    for dry in [true, false] {
        M::iter_tensors(&mut RecursiveWalker {
            m: (&mut *model, String::new()),
            f: &mut Fill { values, dry },
        })?;
    }
    Ok(())
}

struct Fill<'a> {
    values: &'a Mapped<'a>,
    /// Whether this is a dry run.
    dry: bool,
}

impl<E: Element, D: Device<E>> TensorVisitor<E, D> for Fill<'_> {
    type Viewer = (ViewTensorMut, ViewTensorName);
    type Err = Problem;
    type E2 = E;
    type D2 = D;

    fn visit<S: Shape>(
        &mut self,
        _: TensorOptions<S, E, D>,
        (tensor, name): (&mut Tensor<S, E, D>, String),
    ) -> Result<Option<Tensor<S, E, D>>, Problem> {
        if !self.dry
            && let Some(numbers) = self.values.numbers(&name)
        {
            tensor.copy_from(&numbers);
        }
        Ok(None)
    }

    fn visit_scalar<N: NumCast>(
        &mut self,
        _: ScalarOptions<N>,
        (number, name): (&mut N, String),
    ) -> Result<Option<N>, Problem> {
        let Some(value) = self.values.scalar(&name) else {
            return Ok(None);
        };
        let expected = type_name::<N>();
        let read = N::from(value).ok_or(Problem::Scalar {
            name,
            value,
            expected,
        })?;
        if !self.dry {
            *number = read;
        }
        Ok(None)
    }
}
