//! Why a model cannot be exported to ONNX: an operation, and what to do. The program has them as errors.

/// The place of an operation, in front of the reason.
pub(crate) fn at(place: &str, reason: &str) -> String {
    format!("`{place}`: {reason}")
}

pub(crate) fn scan(axis: &str) -> String {
    format!(
        "its `scan` over `{axis}` is a loop with a number of steps that only the call knows; export the step as a function of the model, and loop outside"
    )
}

pub(crate) const DYNAMIC_NTK: &str = "the frequencies of `scaling = dynamic_ntk` depend on the length of the sequence; use `ntk`, `yarn` or `llama3`";

pub(crate) fn normalizer(word: &str) -> String {
    format!(
        "`normalizer = {word}` has a threshold that needs all scores of a query in order; use `softmax`"
    )
}

pub(crate) const CAPACITY: &str = "rows beyond the `capacity_factor` of their group are dropped in the order of the call, which is no operator; export it without a capacity";

pub(crate) const MODULE: &str =
    "a `module` is known by its type alone; write its operations in `model!`";

pub(crate) fn loss(operation: &str) -> String {
    format!(
        "`{operation}` is a loss, and the file is for inference; export a function that returns logits"
    )
}

pub(crate) const GATHER: &str = "several new axes of indices beside axes that they share with the value are no operator; gather along one after the other";

pub(crate) const SCATTER_ADD: &str = "sums at indices that are equal are no operator that all runtimes have; use `einsum` with the `one_hot` of the indices";
