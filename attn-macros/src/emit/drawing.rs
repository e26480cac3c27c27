//! A small drawing of a mask, for the page of its layer.

use std::fmt::Write;

use crate::graph::CallData;
use crate::score::eval::{Inputs, Point, Value, holds};
use crate::score::{Data, Expr, Var};
use crate::spec::{Grid, Size};

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

/// Two drawings of `predicate` on a grid: the keys of a query near the corner, and those of one in the middle. Of several frames each
/// shows the one of its query. `None` if a size or a bit of data is not known while compiling.
pub(super) fn on_grid(predicate: &Expr, grid: &Grid) -> Option<String> {
    let [queries, keys] = [Var::QIdx, Var::KvIdx].map(|of| Places::of(grid, of));
    let (queries, keys) = (queries?, keys?);
    let middle = |size: i64| size / 2;
    let pictures = [[0, 1.min(queries.rows - 1), 1.min(queries.cols - 1)], {
        [queries.frames, queries.rows, queries.cols].map(middle)
    }];
    let mut text = String::new();
    for query in pictures {
        let [frame, row, col] = query;
        let picture = keys.picture(predicate, &queries, query)?;
        let of = match queries.frames {
            1 => String::new(),
            _ => format!(", in frame {frame}"),
        };
        let scale = keys.scale();
        let _ = write!(
            text,
            "\nThe keys of the query in row {row} and column {col}{of}, on a grid of {} rows and {} columns{scale}:\n\n```text\n{picture}```\n",
            keys.rows, keys.cols
        );
    }
    Some(text)
}

/// The places of a grid, with known sizes.
struct Places {
    prefix: i64,
    frames: i64,
    rows: i64,
    cols: i64,
}

impl Places {
    fn of(grid: &Grid, of: Var) -> Option<Self> {
        let known = |size: &Size| i64::try_from(size.value?).ok();
        let sizes: Option<Vec<i64>> = grid.sizes(of).iter().map(known).collect();
        let (frames, rows, cols) = match sizes?.as_slice() {
            [rows, cols] => (1, *rows, *cols),
            [frames, rows, cols] => (*frames, *rows, *cols),
            _ => return None,
        };
        let prefix = grid.prefix.as_ref().map_or(Some(0), known)?;
        Some(Places {
            prefix,
            frames,
            rows,
            cols,
        })
    }

    fn len(&self) -> i64 {
        self.prefix + self.frames * self.rows * self.cols
    }

    fn index(&self, [frame, row, col]: [i64; 3]) -> i64 {
        self.prefix + (frame * self.rows + row) * self.cols + col
    }

    /// The places to a cell, along rows and along columns.
    fn steps(&self) -> [i64; 2] {
        [self.rows, self.cols].map(|size| (size + CELLS - 1) / CELLS)
    }

    fn scale(&self) -> String {
        match self.steps() {
            [1, 1] => String::new(),
            [rows, cols] => format!(", {rows} x {cols} to a cell; ▒ is a cell in part"),
        }
    }

    /// The keys of a query, in its frame.
    fn picture(&self, predicate: &Expr, queries: &Places, query: [i64; 3]) -> Option<String> {
        let [rows, cols] = self.steps();
        let inputs = Example {
            len: self.len().max(queries.len()),
        };
        let holds = |row: i64, col: i64| {
            let frame = query[0].min(self.frames - 1);
            let point = Point {
                b: 0,
                h: 0,
                q_idx: queries.index(query),
                kv_idx: self.index([frame, row, col]),
                q_len: queries.len(),
                kv_len: self.len(),
                score: 0.0,
                inputs: &inputs,
            };
            holds(predicate, &point)
        };
        let mut picture = String::new();
        for row in (0..self.rows).step_by(rows as usize) {
            for col in (0..self.cols).step_by(cols as usize) {
                let cell = (row..self.rows.min(row + rows))
                    .flat_map(|row| (col..self.cols.min(col + cols)).map(move |col| (row, col)));
                let cell: Option<Vec<bool>> = cell.map(|(row, col)| holds(row, col)).collect();
                let cell = cell?;
                picture.push(shade(
                    cell.iter().filter(|attends| **attends).count(),
                    cell.len(),
                ));
                picture.push(' ');
            }
            let trimmed = picture.trim_end().len();
            picture.truncate(trimmed);
            picture.push('\n');
        }
        Some(picture)
    }
}

/// `■` if all of the cell is attended to, `·` if nothing is, `▒` between.
fn shade(attended: usize, all: usize) -> char {
    match attended {
        0 => '·',
        n if n == all => '■',
        _ => '▒',
    }
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
            attended += usize::from(holds(predicate, &point)?);
        }
    }
    Some(shade(attended, (samples * samples) as usize))
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
