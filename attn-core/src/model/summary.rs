//! A model as a table.

/// A layer in the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name by which its parameters are saved.
    pub name: &'static str,
    /// What it is, with its sizes.
    pub layer: &'static str,
    /// The shape of what comes out.
    pub output: &'static str,
    /// How many numbers it learns, those of layers inside of it included.
    pub params: usize,
}

/// The layers of a model one below the other, and the number of its parameters. As `torchinfo` shows a module.
///
/// ```
/// use attn_core::model::{Row, summary};
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
