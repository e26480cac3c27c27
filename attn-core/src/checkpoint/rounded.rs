//! The rounded weights of a session as a safetensors file.

use std::path::Path;

use safetensors::Dtype;

use super::{
    Archive, CheckpointError, LoadOptions, Problem, ReadAt, TensorType,
    archive::{Expected, Values, compare},
    number::{dtype_of, encode},
    write::{Metadata, Stored, write},
};
use crate::{
    Element, disk,
    fused::{
        InexactRow, NamedTensor, RoundedWeights, TensorNumbers, WeightSource, replace_weights,
        tensors_by_kind,
    },
    generate::{Session, Sessions, WeightFormat},
    kernel::{Matrix, quantized::QuantizedMatrix},
};

/// The keys of the metadata: the format, and the rows of the report.
const FORMAT: &str = "weights";
const INEXACT: &str = "inexact_rows";

/// The formats.
const FORMATS: [WeightFormat; 2] = [WeightFormat::Int8, WeightFormat::Bf16];

/// The name of a format in the metadata.
fn name_of(format: WeightFormat) -> &'static str {
    match format {
        WeightFormat::Int8 => "int8",
        WeightFormat::Bf16 => "bf16",
    }
}

impl<E: Element> Session<E> {
    /// Writes the rounded [`weights`](Self::weights) to a safetensors file, which replaces an existing one atomically:
    /// [`load_weights`](Self::load_weights) reads it.
    ///
    /// Tensors have the names and shapes of the model. In [`WeightFormat::Int8`] the rounded ones are of `I8`, and `x.weight` has its scales in
    /// `x.weight_scale`, of `F32`, with one column: `weight * weight_scale` is the matrix. In [`WeightFormat::Bf16`] they are of `BF16`. The others
    /// are what they are in the model, and the metadata have the rows of the [report](Self::weight_report).
    ///
    /// PyTorch: `safetensors.torch.save_file(model.state_dict(), path)` of a quantized model; `compressed-tensors` has the same names.
    ///
    /// # Errors
    /// [`Problem::NotRounded`] if the weights are those of the model; otherwise as [`save`](super::save).
    #[doc(alias("save_file", "save_pretrained", "state_dict"))]
    pub fn save_weights(&self, path: impl AsRef<Path>) -> Result<(), CheckpointError> {
        self.sessions().save_weights(path)
    }

    /// Replaces the weights by those of a file that [`save_weights`](Self::save_weights) wrote: the session computes with the same bits as the one that
    /// was saved. Of the model, it needs the declaration alone. What was computed from the inputs that the session was given when it began stays
    /// that of the model.
    ///
    /// All checks precede the first change of a weight, and are those of [`load`](super::load).
    ///
    /// ```
    /// use attn::{generate::WeightFormat::Int8, prelude::*};
    ///
    /// model! {
    ///     struct Gpt<vocab = 65, d_model = 16>;
    ///
    ///     fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
    ///         let x = embedding::<vocab, d_model>(tokens);
    ///         linear::<vocab>(x + attention::<heads = 2, mask = causal>(layer_norm(x)))
    ///     }
    /// }
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("int8.safetensors");
    /// let dev = Cpu::default();
    /// let trained = dev.build_module::<Gpt, f32>();
    /// let mut session = trained.session(16)?.weights(Int8)?;
    /// session.save_weights(&path)?;
    ///
    /// let other = dev.build_module::<Gpt, f32>();
    /// let mut loaded = other.session(16)?.load_weights(&path)?;
    /// assert_eq!(loaded.prefill(&[0, 1, 2])?, session.prefill(&[0, 1, 2])?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// PyTorch: `model.load_state_dict(safetensors.torch.load_file(path))` of a quantized model.
    ///
    /// # Errors
    /// [`Problem::NotRounded`] if the file has no rounded weights, [`Problem::Mismatch`] with all tensors that are missing, extra or different,
    /// [`Problem::Nan`] with those that have rows which were not finite, [`Problem::Session`] if the weights are rounded already, if a fork has
    /// them, too, or if there are tokens, whose keys and values are of the weights so far, or a problem of the file itself.
    #[doc(alias("load_file", "from_pretrained", "load_state_dict"))]
    pub fn load_weights(self, path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        self.try_map(|sessions| sessions.load_weights(path))
    }
}

impl<E: Element> Sessions<E> {
    /// Writes the rounded [`weights`](Self::weights) to a safetensors file: [`Session::save_weights`].
    ///
    /// # Errors
    /// As [`Session::save_weights`].
    pub fn save_weights(&self, path: impl AsRef<Path>) -> Result<(), CheckpointError> {
        let path = path.as_ref();
        let Some(rounded) = self.rounded() else {
            return Err(Problem::NotRounded.at(path));
        };
        let (metadata, tensors) = (metadata(rounded), stored(rounded));
        disk::replace(path, |file| {
            write(file, metadata, &tensors).map_err(|problem| problem.at(path))
        })
    }

    /// Replaces the weights by those of a file: [`Session::load_weights`].
    ///
    /// # Errors
    /// As [`Session::load_weights`].
    pub fn load_weights(mut self, path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let path = path.as_ref();
        let archive = Archive::open(path)?;
        let rounded = {
            let refused = |error| Problem::Session(error).at(path);
            self.check_no_tokens().map_err(refused)?;
            let (weights, tensors) = self.parameters().map_err(refused)?;
            let format = archive.metadata().get(FORMAT);
            let format = FORMATS
                .into_iter()
                .find(|of| Some(name_of(*of)) == format.map(String::as_str));
            let format = format.ok_or_else(|| Problem::NotRounded.at(path))?;
            let inexact = inexact_rows(archive.metadata()).map_err(|problem| problem.at(path))?;
            let by_kind = tensors_by_kind(weights, tensors, format).into_iter();
            let expected = by_kind.flat_map(|(tensor, is_rounded)| {
                expected::<E>(tensor, is_rounded.then_some(format))
            });
            let expected: Vec<_> = expected.collect();
            let options = LoadOptions::default();
            let mismatch = compare(&expected, &archive.tensors, options);
            let mut file = RoundedFile {
                format,
                values: archive.checked(mismatch, options)?,
            };
            let mut rounded = replace_weights(weights, tensors, format, &mut file)?;
            rounded.report.inexact = inexact;
            rounded
        };
        Ok(self.with_rounded(rounded))
    }
}

/// The name of the scales of a tensor.
fn name_of_scales(tensor: &str) -> String {
    format!("{tensor}_scale")
}

/// The types of a tensor, and of its scales if it has some.
fn types<E: Element>(
    dims: &[usize],
    format: Option<WeightFormat>,
) -> (TensorType, Option<TensorType>) {
    let of = |dtype, shape: &[usize]| TensorType {
        dtype,
        shape: shape.into(),
    };
    match format {
        None => (of(dtype_of::<E>(), dims), None),
        Some(WeightFormat::Bf16) => (of(Dtype::BF16, dims), None),
        Some(WeightFormat::Int8) => {
            let mut rows = dims.to_vec();
            rows.pop();
            rows.push(1);
            (of(Dtype::I8, dims), Some(of(Dtype::F32, &rows)))
        }
    }
}

fn expected<E: Element>(
    tensor: NamedTensor,
    format: Option<WeightFormat>,
) -> impl Iterator<Item = Expected> {
    let of = |name, described| Expected {
        name,
        described,
        optional: false,
    };
    let NamedTensor { name, dims, .. } = tensor;
    let (described, scales) = types::<E>(&dims, format);
    let scales = scales.map(|scales| of(name_of_scales(&name), scales));
    [of(name, described)].into_iter().chain(scales)
}

fn stored<E: Element>(rounded: &RoundedWeights<E>) -> Vec<Stored> {
    let mut all = Vec::new();
    for tensor in &rounded.tensors {
        let numbers = tensor.numbers();
        let (bytes, scales, format) = match numbers {
            TensorNumbers::Exact(numbers) => (encode(numbers), None, None),
            TensorNumbers::Rounded(matrix, rows) => (
                matrix.to_bytes(rows.clone()),
                matrix.scales(rows),
                Some(rounded.report.format),
            ),
        };
        let (described, of_scales) = types::<E>(&tensor.dims, format);
        let name = tensor.name.clone();
        let scales = scales.zip(of_scales).map(|(scales, described)| Stored {
            name: name_of_scales(&name),
            described,
            bytes: encode(scales),
        });
        all.push(Stored {
            name,
            described,
            bytes,
        });
        all.extend(scales);
    }
    all
}

fn metadata<E: Element>(rounded: &RoundedWeights<E>) -> Metadata {
    let report = &rounded.report;
    let name = name_of(report.format);
    let rows = report.inexact.iter();
    let rows: Vec<_> = rows
        .map(|InexactRow { tensor, row, error }| format!("{tensor} {row} {error}"))
        .collect();
    Metadata::from([
        (FORMAT.into(), name.into()),
        (INEXACT.into(), rows.join("\n")),
    ])
}

/// The rows of the report, if the metadata have some.
fn inexact_rows(metadata: &Metadata) -> Result<Vec<InexactRow>, Problem> {
    let lines = metadata
        .get(INEXACT)
        .into_iter()
        .flat_map(|text| text.lines());
    let rows = lines.map(|line| {
        let mut words = line.rsplitn(3, ' ');
        let row = (|| {
            let error = words.next()?.parse().ok()?;
            let row = words.next()?.parse().ok()?;
            Some(InexactRow::new(words.next()?.into(), row, error))
        })();
        row.ok_or_else(|| Problem::Number {
            key: INEXACT.into(),
            found: line.into(),
        })
    });
    rows.collect()
}

/// The weights of a file that passed all checks.
struct RoundedFile<R> {
    format: WeightFormat,
    values: Values<R>,
}

impl<E: Element, R: ReadAt> WeightSource<E> for RoundedFile<R> {
    type Error = CheckpointError;

    fn matrix(
        &mut self,
        tensors: &[NamedTensor],
        numbers: Matrix<'_, E>,
    ) -> Result<QuantizedMatrix, CheckpointError> {
        let (mut bytes, mut scales) = (Vec::new(), Vec::new());
        for NamedTensor { name, .. } in tensors {
            let found = self.values.bytes(name)?;
            bytes.extend(found.into_iter().flat_map(|(_, bytes)| bytes));
            if self.format == WeightFormat::Int8 {
                let found = self.values.numbers::<f32>(&name_of_scales(name))?;
                scales.extend(found.into_iter().flatten());
            }
        }
        let extents = [numbers.rows(), numbers.cols()];
        Ok(QuantizedMatrix::of_bytes(
            self.format,
            extents,
            scales,
            bytes,
        ))
    }

    fn exact(&mut self, tensor: &NamedTensor, numbers: &mut [E]) -> Result<(), CheckpointError> {
        if let Some(found) = self.values.numbers(&tensor.name)? {
            numbers.copy_from_slice(&found);
        }
        Ok(())
    }
}
