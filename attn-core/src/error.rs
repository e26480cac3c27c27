//! Errors at run time, for everything that types cannot check.

use std::fmt::{self, Debug, Display};

/// A mistake in the inputs of a layer, or dfdx's own error.
///
/// The compiler checks shapes that are types. These errors are about sizes that are known only at run time. `Dev` is the
/// error of the device, [`CpuError`](dfdx::tensor::CpuError) for `Cpu`.
///
/// ```
/// use attn::Error;
///
/// let error: Error<&str> = Error::BatchMismatch { layer: "Decoder", what: "context", x: 4, found: 3 };
/// assert_eq!(error.to_string(), "Decoder: the batch of x is 4, that of context is 3");
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error<Dev> {
    /// The batch size of another input differs from that of `x`.
    #[error("{layer}: the batch of x is {x}, that of {what} is {found}")]
    BatchMismatch {
        /// The layer's name.
        layer: &'static str,
        /// The other input: `context`, `valid lengths`, ...
        what: &'static str,
        /// The batch size of `x`.
        x: usize,
        /// The batch size of the other input.
        found: usize,
    },

    /// Two inputs of a model have different sizes for an axis of one name.
    #[error("{model}: axis `{axis}` is {size} in `{input}`, but {found} in `{other}`")]
    AxisMismatch {
        /// The model's name.
        model: &'static str,
        /// The name of the axis.
        axis: &'static str,
        /// The first input with this axis.
        input: &'static str,
        /// The size of the axis in the first input.
        size: usize,
        /// The other input with this axis.
        other: &'static str,
        /// The size of the axis in the other input.
        found: usize,
    },

    /// A valid length is greater than the number of keys.
    #[error(
        "{layer}: the valid length{} is {length}, but there are {keys} keys",
        AtIndex(index)
    )]
    LengthBeyondKeys {
        /// The layer's name.
        layer: &'static str,
        /// The valid length.
        length: usize,
        /// The number of keys.
        keys: usize,
        /// The position of the length: `[batch]`, `[batch, query]`, `[query]`, or `[]` for a single number.
        index: Vec<usize>,
    },

    /// The length of a mask's data, or the number of the values, differs from that of the sequence that it describes.
    #[error("{layer}: the {axis} axis has length {expected}, but {what} cover {found}")]
    LengthsMismatch {
        /// The layer's name.
        layer: &'static str,
        /// The data: `the values`, `valid lengths per query`, `the entries of the key mask`, `document ids`.
        what: &'static str,
        /// The sequence: `query` or `key`.
        axis: &'static str,
        /// The length of that sequence.
        expected: usize,
        /// The length of the data.
        found: usize,
    },

    /// An axis of a body's `data` does not have the declared size.
    #[error("{layer}: axis {axis} of `{data}` has size {found}, but `{name}` is {expected}")]
    DataMismatch {
        /// The layer's name.
        layer: &'static str,
        /// The name of the data.
        data: &'static str,
        /// The number of the axis.
        axis: usize,
        /// The name of that axis: `batch`, `q_len`, `kv_len`.
        name: &'static str,
        /// The size of this axis in the input.
        expected: usize,
        /// The size of the axis in the data.
        found: usize,
    },

    /// An index is too large: a token for the vocabulary, a target for the classes.
    #[error(
        "{operation}: the {what}{} is {index}, but there are {count}: {}",
        AtIndex(place),
        Range(*count)
    )]
    OutOfRange {
        /// The operation that got the index.
        operation: &'static str,
        /// The kind of index: `id`, `target`.
        what: &'static str,
        /// The index.
        index: usize,
        /// The number of valid indices.
        count: usize,
        /// The position of the index in the tensor of indices.
        place: Vec<usize>,
    },

    /// A function of a spec reads a tensor out of bounds.
    #[error(
        "{layer}: at b = {}, h = {}, q_idx = {}, kv_idx = {} `{tensor}` is read at index {index} of axis {axis}, whose size is {size}",
        place[0], place[1], place[2], place[3]
    )]
    OutsideOfTensor {
        /// The layer's name.
        layer: &'static str,
        /// The tensor's name.
        tensor: &'static str,
        /// The axis.
        axis: usize,
        /// The size of the axis.
        size: usize,
        /// The index.
        index: i64,
        /// The position: sequence, head, query and key.
        place: [i64; 4],
    },

    /// A function of a spec divides an integer by 0.
    #[error(
        "{layer}: at b = {}, h = {}, q_idx = {}, kv_idx = {} an integer is divided by `{divisor}`, which is 0",
        place[0], place[1], place[2], place[3]
    )]
    DivisionByZero {
        /// The layer's name.
        layer: &'static str,
        /// The divisor, as the user wrote it.
        divisor: &'static str,
        /// The position: sequence, head, query and key.
        place: [i64; 4],
    },

    /// A sequence is longer than the layer allows.
    #[error("{layer}: the sequence has length {length}, the longest it can take is {max}")]
    TooLong {
        /// The layer's name.
        layer: &'static str,
        /// The length of the sequence.
        length: usize,
        /// The maximum length.
        max: usize,
    },

    /// A sequence does not fill the grid on which its tokens are.
    #[error("{layer}: the {axis} axis has length {length}, but the grid has {}", Places(grid, *prefix))]
    GridMismatch {
        /// The layer's name.
        layer: &'static str,
        /// The sequence: `query` or `key`.
        axis: &'static str,
        /// The length of the sequence.
        length: usize,
        /// The sizes of the grid.
        grid: Vec<usize>,
        /// The number of tokens before the grid.
        prefix: usize,
    },

    /// A session of one sequence is given the inputs of another number of them.
    #[error(
        "{model}: `{axis}` is {sequences}, and a session of one sequence takes 1: `sessions` takes any number"
    )]
    SequencesMismatch {
        /// The model's name.
        model: &'static str,
        /// The axis of the sequences.
        axis: &'static str,
        /// Its size.
        sequences: usize,
    },

    /// An axis cannot be split into parts of a size.
    #[error("{model}: `{axis}` has size {size}, which is no multiple of {of}")]
    Indivisible {
        /// The model's name.
        model: &'static str,
        /// The name of the axis.
        axis: &'static str,
        /// Its size.
        size: usize,
        /// The size of a part.
        of: usize,
    },

    /// An axis is shorter than a part of it that a model reads.
    #[error("{model}: `{axis}` has size {size}, the model reads {least} of it")]
    TooShort {
        /// The model's name.
        model: &'static str,
        /// The name of the axis.
        axis: &'static str,
        /// Its size.
        size: usize,
        /// The least size that it can have.
        least: usize,
    },

    /// A number that must be positive is not, or is infinite or NaN.
    #[error("{operation}: `{what}` must be positive and finite, found {found}")]
    NotPositive {
        /// The operation that got the number.
        operation: &'static str,
        /// The argument.
        what: &'static str,
        /// The number.
        found: f64,
    },

    /// A tensor of these sizes exceeds any memory; or the activations of a pass exceed the available memory, then the only size is their
    /// number of bytes.
    ///
    /// A declared layer or model checks the memory for its activations before it computes anything, if they exceed the free memory of the
    /// pool by 1 GiB or more: those of both passes with a tape, those of the forward pass without. The composed form, single operations and
    /// tensors of dfdx do not check: the process aborts if an allocation fails.
    #[error("{layer}: {} does not fit into memory", Product(sizes))]
    TooLarge {
        /// The layer's name.
        layer: &'static str,
        /// The factors, with their names.
        sizes: Vec<(&'static str, usize)>,
    },

    /// dfdx failed, for example for lack of memory.
    #[error(transparent)]
    Device(Dev),
}

impl<Dev> From<Dev> for Error<Dev> {
    fn from(error: Dev) -> Self {
        Self::Device(error)
    }
}

impl<Dev: Debug + Display> Error<Dev> {
    /// dfdx's error, for functions that cannot return another error, such as dfdx's [`Module`](dfdx::nn::Module) in a tuple of
    /// layers.
    ///
    /// # Panics
    /// On all other errors, with their message.
    #[track_caller]
    pub fn into_device(self) -> Dev {
        match self {
            Self::Device(error) => error,
            mistake => panic!("{mistake}"),
        }
    }
}

/// Returns the value, for the functions that panic instead of returning an error.
///
/// # Panics
/// With the message of the error.
#[track_caller]
pub fn unwrap<T, Dev: Display>(result: Result<T, Error<Dev>>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

/// Shows `batch (4) * heads (8)`.
struct Product<'a>(&'a [(&'static str, usize)]);

/// ` at [1, 2]`, or nothing for a single number.
struct AtIndex<'a>(&'a [usize]);

/// Shows `8 * 8 = 64 places`, or `8 * 8 = 64 places behind 1 token`.
struct Places<'a>(&'a [usize], usize);

impl Display for Places<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(grid, prefix) = self;
        for (position, size) in grid.iter().enumerate() {
            let times = if position == 0 { "" } else { " * " };
            write!(f, "{times}{size}")?;
        }
        let places = grid
            .iter()
            .fold(1, |places: usize, size| places.saturating_mul(*size));
        write!(f, " = {places} places")?;
        match prefix {
            0 => Ok(()),
            1 => f.write_str(" behind 1 token"),
            tokens => write!(f, " behind {tokens} tokens"),
        }
    }
}

impl Display for AtIndex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => Ok(()),
            index => write!(f, " at {index:?}"),
        }
    }
}

/// Shows `0 to 9`: the range of this many indices.
struct Range(usize);

impl Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("none"),
            count => write!(f, "0 to {}", count - 1),
        }
    }
}

impl Display for Product<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (name, size)) in self.0.iter().enumerate() {
            let times = if position == 0 { "" } else { " * " };
            write!(f, "{times}{name} ({size})")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type E = Error<String>;

    #[test]
    fn messages_name_the_layer_and_both_values() {
        let too_long = E::LengthBeyondKeys {
            layer: "L",
            length: 9,
            keys: 5,
            index: vec![1, 3],
        };
        assert_eq!(
            too_long.to_string(),
            "L: the valid length at [1, 3] is 9, but there are 5 keys"
        );

        let mismatch = E::LengthsMismatch {
            layer: "L",
            what: "document ids",
            axis: "query",
            expected: 7,
            found: 6,
        };
        assert_eq!(
            mismatch.to_string(),
            "L: the query axis has length 7, but document ids cover 6"
        );

        let unknown = |count| E::OutOfRange {
            operation: "embedding",
            what: "id",
            index: 7,
            count,
            place: vec![1, 3],
        };
        assert_eq!(
            unknown(5).to_string(),
            "embedding: the id at [1, 3] is 7, but there are 5: 0 to 4"
        );
        assert_eq!(
            unknown(0).to_string(),
            "embedding: the id at [1, 3] is 7, but there are 0: none"
        );

        let large = E::TooLarge {
            layer: "L",
            sizes: vec![("batch", 4), ("query", 1 << 62)],
        };
        assert_eq!(
            large.to_string(),
            "L: batch (4) * query (4611686018427387904) does not fit into memory"
        );
    }

    #[test]
    fn a_device_error_passes_through() {
        fn inner() -> Result<(), String> {
            Err("out of memory".into())
        }
        fn outer() -> Result<(), E> {
            inner()?;
            Ok(())
        }
        let error = outer().expect_err("inner fails");
        assert_eq!(error.to_string(), "out of memory");
        assert_eq!(error.into_device(), "out of memory");
    }

    #[test]
    #[should_panic(expected = "L: the batch of x is 4, that of context is 3")]
    fn other_errors_panic_instead_of_becoming_device_errors() {
        E::BatchMismatch {
            layer: "L",
            what: "context",
            x: 4,
            found: 3,
        }
        .into_device();
    }
}
