//! The reader of safetensors files: it checks the whole of them before it hands out a number.

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
};

use super::{
    CheckpointError, Difference, Dtype, LoadOptions, Mismatch, Problem, ReadAt, TensorType,
    header::{Header, Located},
    number::{decode, is_float},
    source::{Forward, for_each_piece},
    write::{CHECKSUM, Checksum, Metadata},
};
use crate::Element;

/// A safetensors file with a valid header, or several with an index. Its numbers have not been read yet: those of one tensor are in memory at a
/// time.
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
    /// The file, or the index of several.
    pub(super) path: PathBuf,
    pub(super) tensors: BTreeMap<String, Located>,
    files: Vec<SourceFile<R>>,
}

/// One of the files.
#[derive(Debug)]
struct SourceFile<R> {
    path: PathBuf,
    metadata: Metadata,
    data: R,
    /// Where its numbers begin, and how many bytes they have.
    start: u64,
    bytes: usize,
}

impl Archive<File> {
    /// Reads the header of one file.
    pub(super) fn open_file(path: &Path) -> Result<Self, CheckpointError> {
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

impl<R> Archive<R> {
    /// An archive of no files, by the name of their index.
    pub(super) fn empty(path: &Path) -> Self {
        Self {
            path: path.into(),
            tensors: BTreeMap::new(),
            files: Vec::new(),
        }
    }

    /// Appends the files of another archive, which has other tensors.
    pub(super) fn append(&mut self, other: Self) {
        let before = self.files.len();
        let tensors = other.tensors.into_iter().map(|(name, mut tensor)| {
            tensor.file += before;
            (name, tensor)
        });
        self.tensors.extend(tensors);
        self.files.extend(other.files);
    }

    /// The metadata of the file: of the first one, if there are several.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        static NONE: Metadata = Metadata::new();
        self.files.first().map_or(&NONE, |file| &file.metadata)
    }

    /// The tensors, in the order of their names.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorType)> {
        let tensors = self.tensors.iter();
        tensors.map(|(name, tensor)| (name.as_str(), &tensor.described))
    }
}

impl<R: ReadAt> Archive<R> {
    fn new(path: &Path, data: R, bytes: u64) -> Result<Self, CheckpointError> {
        let header = Header::read(&mut Forward::new(&data, bytes), bytes);
        let (header, start) = header.map_err(|problem| problem.at(path))?;
        Ok(Self {
            path: path.into(),
            tensors: header.tensors,
            files: vec![SourceFile {
                path: path.into(),
                metadata: header.metadata,
                data,
                start,
                bytes: header.data,
            }],
        })
    }

    /// The numbers, if `mismatch` is empty, the files are as their checksums say, and no number is NaN.
    pub(super) fn checked(
        self,
        mismatch: Mismatch,
        options: LoadOptions,
    ) -> Result<Values<R>, CheckpointError> {
        if !mismatch.is_empty() {
            return Err(Problem::Mismatch(mismatch).at(&self.path));
        }
        for file in &self.files {
            file.compare_checksum()?;
        }
        let values = Values(self);
        if !options.allow_nan {
            values.check_nan()?;
        }
        Ok(values)
    }
}

impl<R: ReadAt> SourceFile<R> {
    fn compare_checksum(&self) -> Result<(), CheckpointError> {
        let Some(found) = self.metadata.get(CHECKSUM) else {
            return Ok(());
        };
        let mut sum = Checksum::new(&self.metadata);
        self.read(0, self.bytes, |piece| sum.update(piece))?;
        let expected = sum.finish();
        if *found != expected {
            let found = found.clone();
            return Err(Problem::Checksum { expected, found }.at(&self.path));
        }
        Ok(())
    }

    /// Reads some of its numbers, by the place of the first byte among all of them.
    fn read(
        &self,
        from: usize,
        bytes: usize,
        each: impl FnMut(&[u8]),
    ) -> Result<(), CheckpointError> {
        let read = for_each_piece(&self.data, self.start + from as u64, bytes, each);
        read.map_err(|error| Problem::io("read")(error).at(&self.path))
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

/// The tensors of files that passed all checks.
pub(super) struct Values<R>(Archive<R>);

impl<R: ReadAt> Values<R> {
    /// The numbers of a tensor, rounded to the type `E`.
    pub(super) fn numbers<E: Element>(
        &self,
        name: &str,
    ) -> Result<Option<Vec<E>>, CheckpointError> {
        let Some(tensor) = self.0.tensors.get(name) else {
            return Ok(None);
        };
        let count = tensor.described.shape.iter().product();
        let mut numbers = Vec::with_capacity(count);
        let decode =
            |piece: &[u8]| numbers.extend(decode(tensor.described.dtype, piece).map(E::of));
        self.read(tensor, decode)?;
        Ok(Some(numbers))
    }

    /// The type of the numbers of a tensor, and its bytes.
    pub(super) fn bytes(&self, name: &str) -> Result<Option<(Dtype, Vec<u8>)>, CheckpointError> {
        let Some(tensor) = self.0.tensors.get(name) else {
            return Ok(None);
        };
        let mut bytes = Vec::with_capacity(tensor.bytes.len());
        self.read(tensor, |piece| bytes.extend_from_slice(piece))?;
        Ok(Some((tensor.described.dtype, bytes)))
    }

    fn read(&self, tensor: &Located, each: impl FnMut(&[u8])) -> Result<(), CheckpointError> {
        let file = &self.0.files[tensor.file];
        file.read(tensor.bytes.start, tensor.bytes.len(), each)
    }

    fn check_nan(&self) -> Result<(), CheckpointError> {
        let mut found = Vec::new();
        for (name, tensor) in &self.0.tensors {
            let dtype = tensor.described.dtype;
            let mut count = 0;
            if is_float(dtype) {
                self.read(tensor, |piece| {
                    count += decode(dtype, piece)
                        .filter(|number| number.is_nan())
                        .count();
                })?;
            }
            if count > 0 {
                found.push((name.clone(), count));
            }
        }
        match found.is_empty() {
            true => Ok(()),
            false => Err(Problem::Nan(found).at(&self.0.path)),
        }
    }
}
