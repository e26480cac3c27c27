//! A small drawing of a mask, for the page of its layer.

use crate::graph::CallData;
use crate::score::eval::{Inputs, Point, Value, holds};
use crate::score::{Data, Expr};

/// Cells to a side.
const CELLS: i64 = 16;

/// The drawing of `predicate`, a row for each query, on a sequence long enough to show its largest number. `None` if a number
/// or a bit of data is not known while compiling.
pub(super) fn of(predicate: &Expr, data: &[CallData]) -> Option<String> {
    let reach = integers(predicate)?.into_iter().max().unwrap_or(0);
    // Two and a half times the largest number in the mask, in whole cells.
    let step = reach.checked_mul(5)?.div_ceil(2 * CELLS as u64).max(1);
    let step = i64::try_from(step).ok()?;
    let len = CELLS.checked_mul(step)?;
    let example = Example { len };
    let mut drawing = String::new();
    for row in 0..CELLS {
        for column in 0..CELLS {
            let corner = (row * step, column * step);
            drawing.push(cell(predicate, corner, step, &example)?);
            drawing.push(' ');
        }
        let trimmed = drawing.trim_end().len();
        drawing.truncate(trimmed);
        drawing.push('\n');
    }
    let scale = if step == 1 {
        format!("{len} queries (rows), {len} keys (columns)")
    } else {
        format!("{len} queries (rows), {len} keys (columns), {step} to a cell; ▒ is a cell in part")
    };
    let data: Vec<_> = data
        .iter()
        .filter_map(|data| match data {
            CallData::Padding => Some(format!("a valid length of {}", example.valid())),
            CallData::Document => Some("three documents".to_owned()),
            CallData::PositionIds | CallData::Declared(_) => None,
        })
        .collect();
    let data = if data.is_empty() {
        String::new()
    } else {
        format!(", for {}", data.join(" and "))
    };
    Some(format!("\n{scale}{data}:\n\n```text\n{drawing}```\n"))
}

/// The integers that are written in `expr`; `None` if rustc is to evaluate one.
fn integers(expr: &Expr) -> Option<Vec<u64>> {
    match expr {
        Expr::Int(size) => Some(vec![size.value?]),
        other => {
            let parts = other.children().into_iter().map(integers);
            Some(parts.collect::<Option<Vec<_>>>()?.concat())
        }
    }
}

/// `■` where all of the cell is attended to, `·` where nothing is, `▒` between; judged by a few points.
fn cell(predicate: &Expr, (row, column): (i64, i64), step: i64, inputs: &Example) -> Option<char> {
    let samples = step.min(4);
    let mut attended = 0;
    for i in 0..samples {
        for j in 0..samples {
            let at = |start: i64, sample: i64| start + sample * (step - 1) / (samples - 1).max(1);
            let point = Point {
                b: 0,
                h: 0,
                q_idx: at(row, i),
                kv_idx: at(column, j),
                q_len: inputs.len,
                kv_len: inputs.len,
                score: 0.0,
                inputs,
            };
            attended += i64::from(holds(predicate, &point)?);
        }
    }
    Some(match attended {
        0 => '·',
        n if n == samples * samples => '■',
        _ => '▒',
    })
}

/// Data for the drawing.
#[derive(Debug)]
struct Example {
    len: i64,
}

impl Example {
    fn valid(&self) -> i64 {
        self.len * 3 / 4
    }
}

impl Inputs for Example {
    fn param(&self, _: &str, _: &[i64]) -> f64 {
        0.0
    }

    /// There is no example of what a body declares.
    fn data(&self, data: &Data, index: &[i64]) -> Option<Value> {
        let token = *index.last()?;
        match data {
            Data::Padding => Some(Value::Bool(token < self.valid())),
            // Three documents of different lengths: breaks at 3/8 and 5/8.
            Data::QueryDocument | Data::KeyDocument => Some(Value::Int(
                i64::from(8 * token >= 3 * self.len) + i64::from(8 * token >= 5 * self.len),
            )),
            Data::Declared { .. } => None,
        }
    }
}
