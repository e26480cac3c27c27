//! The reader of a safetensors file: it checks the whole file before it reads a number.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use super::{
    CheckpointError, Difference, Dtype, LoadOptions, Mismatch, Problem, TensorType,
    header::{Header, Located},
    number::{decode, is_float},
    write::{CHECKSUM, checksum},
};
use crate::Element;

/// A safetensors file with a valid header. Its numbers have not been read yet.
///
/// ```
/// use attn::{dfdx::prelude::*, checkpoint::{Archive, LoadOptions, save}};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("linear.safetensors");
/// let dev = Cpu::default();
/// save(&dev.build_module::<Linear<3, 2>, f32>(), &path)?;
///
/// let archive = Archive::open(&path)?;
/// let tensors: Vec<String> = archive.tensors().map(|(name, tensor)| format!("{name}: {tensor}")).collect();
/// assert_eq!(tensors, ["bias: F32 [2]", "weight: F32 [2, 3]"]);
///
/// let mut model = dev.build_module::<Linear<3, 2>, f32>();
/// archive.load(&mut model, LoadOptions::default())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Archive<R> {
    pub(super) path: PathBuf,
    pub(super) header: Header,
    data: R,
}

impl Archive<File> {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// [`CheckpointError`] if the file cannot be read, if its length is not the one in its header, if a name occurs twice, or if the
    /// type of a tensor is invalid. No allocation is larger than the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let path = path.as_ref();
        let open = || {
            let file = File::open(path).map_err(Problem::io("open"))?;
            let bytes = file.metadata().map_err(Problem::io("read"))?.len();
            Ok((file, bytes))
        };
        let (file, bytes) = open().map_err(|problem: Problem| problem.at(path))?;
        Self::new(path, file, bytes)
    }
}

impl<'a> Archive<&'a [u8]> {
    /// The same as [`open`](Archive::open), for a file in memory. Errors call it `name`.
    ///
    /// # Errors
    /// As [`open`](Archive::open).
    pub fn from_bytes(name: impl AsRef<Path>, bytes: &'a [u8]) -> Result<Self, CheckpointError> {
        Self::new(name.as_ref(), bytes, bytes.len() as u64)
    }
}

impl<R: Read> Archive<R> {
    fn new(path: &Path, mut data: R, bytes: u64) -> Result<Self, CheckpointError> {
        let header = Header::read(&mut data, bytes).map_err(|problem| problem.at(path))?;
        Ok(Self {
            path: path.into(),
            header,
            data,
        })
    }

    /// The metadata of the file.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.header.metadata
    }

    /// The tensors, in the order of their names.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorType)> {
        let tensors = self.header.tensors.iter();
        tensors.map(|(name, tensor)| (name.as_str(), &tensor.described))
    }

    /// Calls `read` with the file. An error gets the path of the file.
    pub(super) fn with_path<T>(
        mut self,
        read: impl FnOnce(Self) -> Result<T, Problem>,
    ) -> Result<T, CheckpointError> {
        let path = std::mem::take(&mut self.path);
        read(self).map_err(|problem| problem.at(&path))
    }

    /// Reads the numbers if `mismatch` is empty, and compares their checksum.
    pub(super) fn read_unless(
        mut self,
        mismatch: Mismatch,
        options: LoadOptions,
    ) -> Result<Values, Problem> {
        if !mismatch.is_empty() {
            return Err(Problem::Mismatch(mismatch));
        }
        let mut data = vec![0; self.header.data];
        let read = self.data.read_exact(&mut data);
        read.map_err(Problem::io("read"))?;
        let values = Values {
            header: self.header,
            data,
        };
        values.check(options)?;
        Ok(values)
    }
}

/// A tensor that a file should have.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) name: String,
    pub(super) described: TensorType,
    /// Whether the file may omit it.
    pub(super) optional: bool,
}

/// The differences between the tensors of a file and those that it should have.
pub(super) fn compare<'a>(
    expected: &[Expected],
    found: impl IntoIterator<Item = (&'a String, &'a Located)>,
    options: LoadOptions,
) -> Mismatch {
    let mut mismatch = Mismatch::default();
    let mut extra: BTreeMap<_, _> = found.into_iter().collect();
    for Expected {
        name,
        described,
        optional,
    } in expected
    {
        match extra.remove(name) {
            Some(found) if fits(&found.described, described, options) => {}
            Some(found) => mismatch.different.push(Difference {
                tensor: name.clone(),
                expected: described.clone(),
                found: found.described.clone(),
            }),
            None if *optional => {}
            None => mismatch.missing.push((name.clone(), described.clone())),
        }
    }
    let extra = extra.into_iter();
    mismatch.extra = extra
        .map(|(name, found)| (name.clone(), found.described.clone()))
        .collect();
    mismatch
}

fn fits(found: &TensorType, expected: &TensorType, options: LoadOptions) -> bool {
    let same = found.dtype == expected.dtype || options.convert && is_float(found.dtype);
    same && found.shape == expected.shape
}

/// The tensors of a file that passed all checks.
pub(super) struct Values {
    header: Header,
    data: Vec<u8>,
}

impl Values {
    /// The numbers of a tensor, rounded to the type `E`.
    pub(super) fn numbers<E: Element>(&self, name: &str) -> Option<Vec<E>> {
        let tensor = self.header.tensors.get(name)?;
        Some(self.decode(tensor).map(E::of).collect())
    }

    /// The type of the numbers of a tensor, and its size in bytes.
    pub(super) fn bytes(&self, name: &str) -> Option<(Dtype, &[u8])> {
        let tensor = self.header.tensors.get(name)?;
        Some((tensor.described.dtype, &self.data[tensor.bytes.clone()]))
    }

    fn decode(&self, tensor: &Located) -> impl Iterator<Item = f64> {
        decode(tensor.described.dtype, &self.data[tensor.bytes.clone()])
    }

    fn check(&self, options: LoadOptions) -> Result<(), Problem> {
        if let Some(found) = self.header.metadata.get(CHECKSUM) {
            let expected = checksum(&self.header.metadata, [self.data.as_slice()]);
            if *found != expected {
                let found = found.clone();
                return Err(Problem::Checksum { expected, found });
            }
        }
        if options.allow_nan {
            return Ok(());
        }
        let counts = self.header.tensors.iter().map(|(name, tensor)| {
            let nans = self.decode(tensor).filter(|number| number.is_nan());
            (name.clone(), nans.count())
        });
        let nans: Vec<_> = counts.filter(|&(_, count)| count > 0).collect();
        if nans.is_empty() {
            Ok(())
        } else {
            Err(Problem::Nan(nans))
        }
    }
}
