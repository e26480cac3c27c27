//! A model as a table.

/// A layer in the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name of its parameters in a checkpoint.
    pub name: &'static str,
    /// The kind of layer, with its sizes.
    pub layer: &'static str,
    /// The shape of its output.
    pub output: &'static str,
    /// The number of parameters, including those of nested layers.
    pub params: usize,
}

/// The table of the layers of a model, with the number of its parameters, as `torchinfo` prints it.
///
/// ```
/// use attn::__private::runtime::model::{Row, summary};
///
/// let row = Row { name: "linear", layer: "linear 3 -> 4", output: "[batch, 4]", params: 16 };
/// let table = summary("Model", &[row], 16);
/// assert_eq!(table.lines().nth(2), Some("linear  linear 3 -> 4  [batch, 4]          16"));
/// ```
pub fn summary(model: &str, rows: &[Row], params: usize) -> String {
    let widest = |title: &str, of: fn(&Row) -> usize| {
        let widths = rows.iter().map(of);
        widths.max().unwrap_or(0).max(title.len())
    };
    let name = widest(model, |row| row.name.len());
    let layer = widest("layer", |row| row.layer.len());
    let output = widest("output", |row| row.output.len());
    let line = |[a, b, c, d]: [&str; 4]| {
        let line = format!("{a:<name$}  {b:<layer$}  {c:<output$}  {d:>10}");
        line.trim_end().to_owned()
    };
    let rule = "-".repeat(name + layer + output + 16);
    let mut lines = vec![line([model, "layer", "output", "parameters"]), rule.clone()];
    for row in rows {
        lines.push(line([
            row.name,
            row.layer,
            row.output,
            &row.params.to_string(),
        ]));
    }
    lines.extend([rule, line(["total", "", "", &params.to_string()])]);
    lines.join("\n")
}

/// A [`summary`] with the cost of a batch, as `torchinfo` prints it for an input size.
///
/// ```
/// use attn::__private::runtime::model::{Batch, Row, summary, summary_of};
///
/// let row = Row { name: "linear", layer: "linear 3 -> 4", output: "[batch, 4]", params: 16 };
/// let table = summary("Model", &[row], 16);
/// let batch = Batch { axes: &[("batch", 8)], flops: 192, params: 16, activations: 3 << 19 };
/// let lines = "\
/// batch = 8
/// multiply-adds of a forward pass            96
/// parameters                           0.00 MiB
/// activations, forward and backward    1.50 MiB";
/// assert!(summary_of(table, batch).ends_with(lines));
/// ```
pub fn summary_of(table: String, batch: Batch<'_>) -> String {
    let rule = table.lines().nth(1).unwrap_or_default();
    let axes = batch.axes.iter();
    let axes: Vec<_> = axes.map(|(name, len)| format!("{name} = {len}")).collect();
    let mebibytes = |bytes: usize| format!("{:.2} MiB", bytes as f64 / f64::from(1 << 20));
    let parameters = batch.params.saturating_mul(size_of::<f32>());
    let takes = [
        (
            "multiply-adds of a forward pass",
            (batch.flops / 2).to_string(),
        ),
        ("parameters", mebibytes(parameters)),
        (
            "activations, forward and backward",
            mebibytes(batch.activations),
        ),
    ];
    let mut lines = vec![table.as_str(), rule];
    let axes = axes.join(", ");
    lines.extend((!axes.is_empty()).then_some(axes.as_str()));
    let takes = takes.map(|(what, number)| {
        let width = rule.len().saturating_sub(what.len());
        format!("{what}{number:>width$}")
    });
    lines.extend(takes.iter().map(String::as_str));
    lines.join("\n")
}

/// A batch, and its cost in `f32`.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The sizes of the named axes.
    pub axes: &'a [(&'a str, usize)],
    /// The floating-point operations of the matrix products in a forward pass.
    pub flops: u64,
    /// The number of parameters.
    pub params: usize,
    /// The peak bytes of activations in a forward and a backward pass.
    pub activations: usize,
}
