//! Copies between a model and a file of another library.

use std::{any::type_name, collections::HashMap, path::Path};

use dfdx::{
    nn::tensor_collection::{
        RecursiveWalker, ScalarOptions, TensorCollection, TensorOptions, TensorVisitor,
        ViewTensorMut, ViewTensorName,
    },
    shapes::{HasShape, Shape},
    tensor::Tensor,
    tensor_ops::Device,
};
use num_traits::NumCast;

use super::{
    LoadReport, Plan, WeightMap,
    assemble::{FileTensor, TensorSource},
};
use crate::{
    Element,
    checkpoint::{
        Archive, CheckpointError, LoadOptions, Problem, ReadAt,
        archive::{Expected, Values, compare},
        index,
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
    let plan = Plan::new(map, &expected(model)).map_err(|problem| problem.at(path))?;
    let tensors = stored(model, &plan, &plan.theirs);
    disk::replace(path, |file| {
        write(file, map.metadata.clone(), &tensors).map_err(|problem| problem.at(path))
    })
}

/// Writes the tensors of a model to a folder in the layout of another library: to `model.safetensors`, or if that had more than `most` bytes
/// of numbers, to several files such as `model-00001-of-00003.safetensors` with the index `model.safetensors.index.json`. The tensors of one
/// file are in memory at a time.
///
/// [`Archive::open`] reads the folder, as does `from_pretrained` in Python. A save that is killed leaves no index.
///
/// ```
/// use attn::{
///     checkpoint::{Archive, LoadOptions, layout::{Rule, WeightMap, save_mapped_in_shards}},
///     nn::Linear,
/// };
/// use attn::dfdx::prelude::{Linear as _, *};
///
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path().join("model");
/// let dev = Cpu::default();
/// let model = dev.build_module::<(Linear<3, 2>, Linear<3, 5>), f32>();
/// let map = WeightMap::new([Rule::new("*", "layers.*")]);
/// save_mapped_in_shards(&model, &map, &folder, 50)?;
/// assert!(folder.join("model-00002-of-00003.safetensors").is_file());
///
/// let mut copy = dev.build_module::<(Linear<3, 2>, Linear<3, 5>), f32>();
/// Archive::open(&folder)?.load_mapped(&mut copy, &map, LoadOptions::default())?;
/// assert_eq!(copy.1.weight.array(), model.1.weight.array());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// In `transformers` this is `model.save_pretrained(folder, max_shard_size=most)`.
///
/// # Errors
/// As [`save_mapped`]; and [`Problem::OtherWeights`] if the folder has weights in one file and several are to be written, or the other way round.
#[doc(alias("save_pretrained", "max_shard_size"))]
pub fn save_mapped_in_shards<M, E, D>(
    model: &M,
    map: &WeightMap,
    folder: impl AsRef<Path>,
    most: u64,
) -> Result<(), CheckpointError>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
{
    let folder = folder.as_ref();
    let plan = Plan::new(map, &expected(model)).map_err(|problem| problem.at(folder))?;
    let tensors = plan.theirs.iter();
    let tensors = tensors.map(|theirs| (&*theirs.name, theirs.described.bytes().unwrap_or(0)));
    let tensors: Vec<_> = tensors.collect();
    index::save(folder, &tensors, most, &map.metadata, |range| {
        stored(model, &plan, &plan.theirs[range])
    })
}

/// Tensors of the file and their bytes.
fn stored<M, E, D>(model: &M, plan: &Plan, theirs: &[FileTensor]) -> Vec<Stored>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
{
    let names = theirs.iter().enumerate();
    let at: HashMap<&str, usize> = names.map(|(at, theirs)| (&*theirs.name, at)).collect();
    let theirs = theirs.iter().map(|theirs| Stored {
        name: theirs.name.clone(),
        described: theirs.described.clone(),
        bytes: Vec::new(),
    });
    let mut stored: Vec<Stored> = theirs.collect();
    for_each(model, |slot| {
        let sources = plan.ours.get(&slot.name).into_iter().flatten();
        let places = sources.filter_map(|source| Some((source, *at.get(&*source.theirs)?)));
        let mut places = places.peekable();
        if places.peek().is_none() {
            return;
        }
        let ours = (slot.bytes)();
        for (source, at) in places {
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
    stored
}

impl<R: ReadAt> Archive<R> {
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
        let path = self.path.clone();
        let expected = expected(model);
        let (plan, values) = self.planned(&expected, map, options)?;
        fill(model, &Mapped::new(&plan, &values, &path)?)?;
        Ok(LoadReport::new(&plan, expected))
    }

    /// Whether [`load_mapped`](Self::load_mapped) would load the tensors.
    pub(in crate::checkpoint) fn check_mapped<M, E, D>(
        self,
        model: &M,
        map: &WeightMap,
        options: LoadOptions,
    ) -> Result<(), CheckpointError>
    where
        M: TensorCollection<E, D>,
        E: Element,
        D: Device<E>,
    {
        self.planned(&expected(model), map, options).map(|_| ())
    }

    fn planned(
        self,
        expected: &[Expected],
        map: &WeightMap,
        options: LoadOptions,
    ) -> Result<(Plan, Values<R>), CheckpointError> {
        let mut plan = Plan::new(map, expected).map_err(|problem| problem.at(&self.path))?;
        plan.grow(|theirs| Some(&self.tensors.get(theirs)?.described));
        let values = self.read_mapped(&plan, options)?;
        Ok((plan, values))
    }

    fn read_mapped(
        mut self,
        plan: &Plan,
        options: LoadOptions,
    ) -> Result<Values<R>, CheckpointError> {
        let prefix = plan.check_prefix(self.tensors.keys().map(String::as_str));
        prefix.map_err(|problem| problem.at(&self.path))?;
        self.tensors.retain(|name, _| !plan.ignores(name));
        let mut mismatch = compare(&plan.expected(), &self.tensors, options);
        plan.explain(&mut mismatch);
        self.checked(mismatch, options)
    }
}

/// The tensors of files that passed all checks, by the names of the model.
struct Mapped<'a, R> {
    plan: &'a Plan,
    values: &'a Values<R>,
    path: &'a Path,
}

impl<'a, R: ReadAt> Mapped<'a, R> {
    /// # Errors
    /// If the files have tied tensors with different numbers.
    fn new(plan: &'a Plan, values: &'a Values<R>, path: &'a Path) -> Result<Self, CheckpointError> {
        for [copy, tensor] in &plan.tied {
            if differ(values, copy, tensor)? {
                let [copy, tensor] = [copy, tensor].map(Clone::clone);
                return Err(Problem::NotTied { tensor, copy }.at(path));
            }
        }
        Ok(Self { plan, values, path })
    }

    /// The numbers of a tensor of the model, rounded to the type `E`.
    fn numbers<E: Element>(&self, ours: &str) -> Result<Option<Vec<E>>, CheckpointError> {
        let Some(sources) = self.plan.ours.get(ours) else {
            return Ok(None);
        };
        if let [source] = &sources[..]
            && source.part.is_none()
        {
            return self.part(source);
        }
        let mut parts: Vec<Vec<E>> = Vec::new();
        for source in sources {
            match self.part(source)? {
                Some(numbers) => parts.push(numbers),
                None => return Ok(None),
            }
        }
        let mut joined = vec![E::zero(); parts.iter().map(Vec::len).sum()];
        for (source, numbers) in sources.iter().zip(&parts) {
            if let Some(part) = &source.part {
                part.place(numbers, &mut joined);
            }
        }
        Ok(Some(joined))
    }

    /// The numbers at a place of the file.
    fn part<E: Element>(&self, source: &TensorSource) -> Result<Option<Vec<E>>, CheckpointError> {
        let Some(view) = &source.view else {
            return self.values.numbers(&source.theirs);
        };
        let found = self.values.bytes(&source.theirs)?;
        Ok(found.map(|(dtype, bytes)| {
            let bytes = view.gather(&bytes, dtype.bitsize() / 8);
            decode(dtype, &bytes).map(E::of).collect()
        }))
    }

    /// A number that dfdx stores beside the tensors.
    fn scalar(&self, ours: &str) -> Result<Option<f64>, CheckpointError> {
        let numbers = self.numbers::<f64>(ours)?;
        Ok(numbers.and_then(|numbers| numbers.first().copied()))
    }
}

/// Whether two tensors of the files have different numbers.
fn differ<R: ReadAt>(values: &Values<R>, one: &str, other: &str) -> Result<bool, CheckpointError> {
    let [one, other] = [values.numbers::<f64>(one)?, values.numbers(other)?];
    let (Some(one), Some(other)) = (one, other) else {
        return Ok(false);
    };
    let bits = |numbers: Vec<f64>| numbers.into_iter().map(f64::to_bits);
    Ok(!bits(one).eq(bits(other)))
}

/// Copies the values into the model, after a dry run without errors.
fn fill<M, E, D, R>(model: &mut M, values: &Mapped<'_, R>) -> Result<(), CheckpointError>
where
    R: ReadAt,
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

struct Fill<'a, R> {
    values: &'a Mapped<'a, R>,
    /// Whether this is a dry run.
    dry: bool,
}

impl<E: Element, D: Device<E>, R: ReadAt> TensorVisitor<E, D> for Fill<'_, R> {
    type Viewer = (ViewTensorMut, ViewTensorName);
    type Err = CheckpointError;
    type E2 = E;
    type D2 = D;

    fn visit<S: Shape>(
        &mut self,
        _: TensorOptions<S, E, D>,
        (tensor, name): (&mut Tensor<S, E, D>, String),
    ) -> Result<Option<Tensor<S, E, D>>, CheckpointError> {
        if !self.dry
            && let Some(numbers) = self.values.numbers(&name)?
        {
            let mut numbers = numbers;
            // The file may have fewer rows.
            if numbers.len() < tensor.shape().num_elements() {
                numbers.extend_from_slice(&tensor.as_vec()[numbers.len()..]);
            }
            tensor.copy_from(&numbers);
        }
        Ok(None)
    }

    fn visit_scalar<N: NumCast>(
        &mut self,
        _: ScalarOptions<N>,
        (number, name): (&mut N, String),
    ) -> Result<Option<N>, CheckpointError> {
        let Some(value) = self.values.scalar(&name)? else {
            return Ok(None);
        };
        let expected = type_name::<N>();
        let read = N::from(value).ok_or_else(|| {
            let problem = Problem::Scalar {
                name,
                value,
                expected,
            };
            problem.at(self.values.path)
        })?;
        if !self.dry {
            *number = read;
        }
        Ok(None)
    }
}
