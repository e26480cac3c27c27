//! A head as characters in a terminal.

use std::fmt::{self, Display};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{
    Head, Labels, Scale, Theme, VizError, colour,
    grid::{Grid, share},
};
use crate::maps::AttentionMap;

/// The maximum number of lines of a label above the keys, and of columns beside the queries.
const MAX_ABOVE: usize = 8;
const MAX_BESIDE: usize = 16;

/// A head as text: a line for each query, a character for each key.
///
/// ` ` is exactly 0; `·`, `░`, `▒`, `▓`, `█` are up to 1/8, 3/8, 5/8, 7/8 and all of the largest weight, by default that of the
/// query. `-` is negative, `?` is NaN and `∞` infinite. The labels of the keys are above them and read downwards. If one of their
/// letters takes two columns, as a Chinese one does, every key has two columns. If there are more keys than columns, neighbours
/// share one, which shows the largest.
///
/// ```
/// use attn::{maps::AttentionMap, viz::{Labels, terminal}};
///
/// let map = AttentionMap::new("attention", [1, 1, 2, 3], vec![1.0, 0.0, 0.0, 0.1, 0.3, 0.6]);
/// let labels = Labels::cross([["un", "deux"]], [["a", "b", "c"]]);
/// let view = terminal(&map, 0, 0, &labels)?;
/// assert_eq!(view.to_string(), "      abc\n  un  █\ndeux  ░▒█\n");
/// # Ok::<_, attn::viz::VizError>(())
/// ```
///
/// # Errors
/// [`VizError`] if there is no such sequence or head, or if there are labels for more than the map has.
pub fn terminal(
    map: &AttentionMap,
    sequence: usize,
    head: impl Into<Head>,
    labels: &Labels,
) -> Result<Terminal, VizError> {
    Ok(Terminal {
        grid: Grid::of(map, sequence, head.into(), labels)?,
        width: 80,
        scale: Scale::default(),
        colours: None,
    })
}

/// The result of [`terminal`], which implements `Display`.
#[derive(Clone, Debug)]
pub struct Terminal {
    grid: Grid,
    width: usize,
    scale: Scale,
    colours: Option<Theme>,
}

impl Terminal {
    /// Sets the maximum number of columns, by default 80. At least one is for keys.
    pub fn width(self, width: usize) -> Self {
        Self { width, ..self }
    }

    /// Sets the weight that is drawn strongest.
    pub fn scale(self, scale: Scale) -> Self {
        Self { scale, ..self }
    }

    /// Uses 24-bit colours instead of shades, for a terminal of this theme. Whether the terminal supports them is not checked.
    pub fn colours(self, theme: Theme) -> Self {
        let colours = Some(theme);
        Self { colours, ..self }
    }

    fn layout(&self) -> Layout<'_> {
        let queries = self.grid.queries.iter().map(|label| label.width());
        let beside = queries
            .max()
            .unwrap_or(0)
            .min(MAX_BESIDE)
            .min(self.width / 3);
        let columns = self.width.saturating_sub(beside + 2).max(1);
        let keys = self.grid.keys.iter();
        let keys: Vec<_> = keys.map(|label| cut(letters(label), MAX_ABOVE)).collect();
        let widest = keys.iter().flatten().map(|letter| letter.width()).max();
        let cell = widest.unwrap_or(1).max(1);
        let above = match keys.len() * cell <= columns {
            true => Above::Labels { keys, cell },
            false => Above::Shared(keys.len().div_ceil(columns)),
        };
        Layout { beside, above }
    }
}

/// The layout of the drawing.
struct Layout<'a> {
    /// The columns of the labels of queries.
    beside: usize,
    above: Above<'a>,
}

/// The lines above the weights.
enum Above<'a> {
    /// The letters of each key, which has `cell` columns.
    Labels {
        keys: Vec<Vec<&'a str>>,
        cell: usize,
    },
    /// There is no space for labels: this many keys share a column.
    Shared(usize),
}

impl Layout<'_> {
    /// The columns of a cell, and the keys in it.
    fn cell(&self) -> (usize, usize) {
        match self.above {
            Above::Labels { cell, .. } => (cell, 1),
            Above::Shared(keys) => (1, keys),
        }
    }

    /// Writes the labels of the keys downwards, or the number of keys per column.
    fn write_keys(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let beside = self.beside;
        let (keys, cell) = match &self.above {
            Above::Labels { keys, cell } => (keys, *cell),
            Above::Shared(1) => return writeln!(f, "{:beside$}  labels of keys too wide", ""),
            Above::Shared(keys) => return writeln!(f, "{:beside$}  {keys} keys in a column", ""),
        };
        let lines = keys.iter().map(Vec::len).max().unwrap_or(0);
        for line in 0..lines {
            // Labels are aligned with the weights at their ends.
            let letters = keys.iter().map(|label| {
                let at = (line + label.len()).checked_sub(lines);
                padded(at.map_or("", |at| label[at]), cell)
            });
            let letters: String = letters.collect();
            writeln!(f, "{:beside$}  {}", "", letters.trim_end())?;
        }
        Ok(())
    }
}

impl Display for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = self.layout();
        layout.write_keys(f)?;
        let (cell, shared) = layout.cell();
        let colours = self.colours.map(colour::scale);
        let largest = self.grid.largest(self.scale);
        for (query, label) in self.grid.queries.iter().enumerate() {
            let cells = self.grid.row(query).chunks(shared).map(largest_of);
            let cells: String = match &colours {
                None => cells
                    .map(|weight| shade(weight, largest[query]).to_string().repeat(cell))
                    .collect(),
                Some(colours) => cells
                    .map(|weight| coloured(weight, largest[query], colours, cell))
                    .collect(),
            };
            let label = cut_to_columns(label, layout.beside);
            let before = layout.beside.saturating_sub(label.width());
            let line = format!("{:before$}{label}  {cells}", "");
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// The largest of neighbours. A weight that is not finite takes precedence.
fn largest_of(weights: &[f64]) -> f64 {
    let damaged = weights.iter().find(|w| !w.is_finite());
    let largest = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    damaged.copied().unwrap_or(largest)
}

fn shade(weight: f64, largest: f64) -> char {
    match share(weight, largest) {
        _ if weight.is_infinite() => '∞',
        share if share.is_nan() => '?',
        share if share < 0.0 || weight < 0.0 => '-',
        _ if weight == 0.0 => ' ',
        share if share < 0.125 => '·',
        share if share < 0.375 => '░',
        share if share < 0.625 => '▒',
        share if share < 0.875 => '▓',
        _ => '█',
    }
}

fn coloured(weight: f64, largest: f64, colours: &[colour::Rgb], columns: usize) -> String {
    let place = colour::place(share(weight, largest));
    let [r, g, b] = place.map_or(colour::NOT_FINITE, |place| colours[place]);
    let sign = match place {
        None => shade(weight, largest),
        Some(_) => ' ',
    };
    let sign = sign.to_string().repeat(columns);
    format!("\x1b[48;2;{r};{g};{b}m{sign}\x1b[0m")
}

/// The letters of a label, each with its combining characters.
fn letters(label: &str) -> Vec<&str> {
    let mut letters: Vec<&str> = Vec::new();
    let mut start = 0;
    for (at, c) in label.char_indices() {
        if at > start && c.width() != Some(0) {
            letters.push(&label[start..at]);
            start = at;
        }
    }
    if start < label.len() {
        letters.push(&label[start..]);
    }
    letters
}

/// The first letters, with a symbol if some are left out.
fn cut(mut letters: Vec<&str>, most: usize) -> Vec<&str> {
    if letters.len() > most {
        letters.truncate(most.saturating_sub(1));
        letters.extend((most > 0).then_some("…"));
    }
    letters
}

/// The first letters that fit the columns, with a symbol if some are left out.
fn cut_to_columns(label: &str, columns: usize) -> String {
    if label.width() <= columns {
        return label.into();
    }
    let Some(mut left) = columns.checked_sub(1) else {
        return String::new();
    };
    let fitting = letters(label).into_iter().take_while(|letter| {
        let fits = letter.width() <= left;
        left = left.saturating_sub(letter.width());
        fits
    });
    fitting.chain(["…"]).collect()
}

/// A letter padded with blanks.
fn padded(letter: &str, columns: usize) -> String {
    let blanks = columns.saturating_sub(letter.width());
    format!("{letter}{:blanks$}", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(shape: [usize; 2], weights: Vec<f32>) -> AttentionMap {
        AttentionMap::new("a", [1, 1, shape[0], shape[1]], weights)
    }

    #[test]
    fn fractions_have_shades() -> Result<(), VizError> {
        let weights = vec![
            0.0,
            0.1,
            0.2,
            0.5,
            0.7,
            0.9,
            1.0,
            -0.1,
            f32::NAN,
            f32::INFINITY,
        ];
        let view = terminal(&map([1, 10], weights), 0, 0, &Labels::indices())?;
        assert_eq!(view.to_string(), "   0123456789\n0   ·░▒▓██-?∞\n");
        Ok(())
    }

    #[test]
    fn labels_are_read_downwards_and_cut_visibly() -> Result<(), VizError> {
        let labels = Labels::cross(
            [["a very long label of a query"]],
            [["ab", "c", "abcdefghij"]],
        );
        let view = terminal(&map([1, 3], vec![1.0, 0.5, 0.0]), 0, 0, &labels)?;
        let text = view.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 9);
        assert_eq!(lines[0], format!("{:16}    a", ""));
        assert_eq!(lines[6], format!("{:16}  a g", ""));
        assert_eq!(lines[7], format!("{:16}  bc…", ""));
        assert_eq!(lines[8], "a very long lab…  █▒");
        Ok(())
    }

    #[test]
    fn lines_are_at_most_as_wide_as_requested() -> Result<(), VizError> {
        let weights: Vec<f32> = (0..300).map(|i| (i % 100) as f32).collect();
        let map = map([3, 100], weights);
        for width in [4, 10, 40, 103, 200] {
            let text = terminal(&map, 0, 0, &Labels::indices())?
                .width(width)
                .to_string();
            let cells = text.lines().rev().take(3);
            assert!(
                cells.clone().all(|line| line.width() <= width),
                "{width}: {text}"
            );
            // The last column has the largest weight.
            assert!(
                cells.clone().all(|line| line.ends_with('█')),
                "{width}: {text}"
            );
        }
        let text = terminal(&map, 0, 0, &Labels::indices())?
            .width(53)
            .to_string();
        assert!(text.starts_with("   2 keys in a column\n"), "{text}");
        Ok(())
    }

    #[test]
    fn wide_letters_have_wide_cells() -> Result<(), VizError> {
        let labels = Labels::same([["我", "爱", "A"]]);
        let weights = vec![1.0, 0.0, 0.0, 0.5, 1.0, 0.0, 0.0, 0.0, 1.0];
        let view = terminal(&map([3, 3], weights), 0, 0, &labels)?;
        let text = view.to_string();
        assert_eq!(text, "    我爱A\n我  ██\n爱  ▒▒██\n A      ██\n");
        // The columns before the last symbol of each line.
        let columns = |line: &str| line.trim_end_matches(['█', 'A']).width();
        assert_eq!(text.lines().map(columns).collect::<Vec<_>>(), [8, 4, 6, 8]);
        Ok(())
    }

    #[test]
    fn combining_accents_take_no_columns() -> Result<(), VizError> {
        let labels = Labels::cross([["e\u{301}", "b"]], [["a\u{308}b", "c"]]);
        let view = terminal(&map([2, 2], vec![1.0, 0.0, 0.0, 1.0]), 0, 0, &labels)?;
        assert_eq!(view.to_string(), "   a\u{308}\n   bc\ne\u{301}  █\nb   █\n");
        Ok(())
    }

    #[test]
    fn wide_labels_are_cut_to_their_columns() -> Result<(), VizError> {
        let labels = Labels::cross([["这是一个很长的查询标签"]], [["钥"; 6]]);
        let view = terminal(&map([1, 6], vec![1.0; 6]), 0, 0, &labels)?;
        for (width, first, last) in [
            (
                80,
                "                  钥钥钥钥钥钥",
                " 这是一个很长的…  ████████████",
            ),
            (17, "       labels of keys too wide", "这是…  ██████"),
            (9, "     2 keys in a column", "这…  ███"),
        ] {
            let text = view.clone().width(width).to_string();
            assert_eq!(text.lines().next(), Some(first), "{width}");
            assert_eq!(text.lines().last(), Some(last), "{width}");
        }
        Ok(())
    }

    #[test]
    fn colours_are_from_the_scale() -> Result<(), VizError> {
        let view = terminal(&map([1, 2], vec![0.0, 1.0]), 0, 0, &Labels::indices())?;
        let colours = colour::scale(Theme::Dark);
        let cell = |at: usize| {
            let [r, g, b] = colours[at];
            format!("\x1b[48;2;{r};{g};{b}m \x1b[0m")
        };
        let expected = format!("   01\n0  {}{}\n", cell(0), cell(255));
        assert_eq!(view.colours(Theme::Dark).to_string(), expected);
        Ok(())
    }

    #[test]
    fn maps_of_size_0_are_drawn() -> Result<(), VizError> {
        let view = |shape| terminal(&map(shape, vec![]), 0, 0, &Labels::indices());
        assert_eq!(view([0, 2])?.to_string(), "  01\n");
        assert_eq!(view([2, 0])?.to_string(), "0\n1\n");
        assert_eq!(view([2, 0])?.width(0).to_string(), "\n\n");
        Ok(())
    }
}
