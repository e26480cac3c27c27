//! A heat map of a head as SVG.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use super::{
    Head, Labels, Scale, Theme, VizError,
    colour::{self, Rgb},
    grid::{Grid, share},
    html,
};
use crate::maps::AttentionMap;

/// Weights are rounded to this many levels, each of which is one path. This bounds the size of a drawing.
const LEVELS: usize = 64;
/// The longer side of the matrix, where cells would otherwise be too large or too small.
const SIDE: f64 = 640.0;
const MAX_CELL: f64 = 24.0;
/// Smaller cells have no space for a letter: only some indices are shown.
const LETTER: f64 = 9.0;

/// The options of a drawing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SvgOptions {
    /// The weight with the strongest colour.
    pub scale: Scale,
    /// The background.
    pub theme: Theme,
}

/// A heat map of a head as SVG: queries from top to bottom, keys from left to right. It needs no other file, no style and no script.
///
/// Weights are rounded to 1/63 of the largest. Weights that are not finite are magenta.
///
/// ```
/// use attn::{maps::AttentionMap, viz::{Head, Labels, SvgOptions, svg}};
///
/// let map = AttentionMap::new("attention", [1, 1, 2, 2], vec![1.0, 0.0, 0.5, 0.5]);
/// let drawing = svg(&map, 0, Head::Mean, &Labels::same([["a", "b"]]), SvgOptions::default())?;
/// assert!(drawing.starts_with("<svg xmlns"));
/// # Ok::<_, attn::viz::VizError>(())
/// ```
///
/// # Errors
/// [`VizError`] if there is no such sequence or head, or if there are labels for more than the map has.
pub fn svg(
    map: &AttentionMap,
    sequence: usize,
    head: impl Into<Head>,
    labels: &Labels,
    options: SvgOptions,
) -> Result<String, VizError> {
    let grid = Grid::of(map, sequence, head.into(), labels)?;
    Ok(Drawing::of(&grid, options).svg())
}

struct Drawing<'a> {
    grid: &'a Grid,
    options: SvgOptions,
    colours: Vec<Rgb>,
    /// The side of a cell, and the space for labels to the left and above.
    cell: f64,
    left: f64,
    top: f64,
}

impl<'a> Drawing<'a> {
    fn of(grid: &'a Grid, options: SvgOptions) -> Self {
        let longer = grid.queries.len().max(grid.keys.len()).max(1);
        let cell = (SIDE / longer as f64).min(MAX_CELL);
        let width = |labels: &[String]| {
            let widest = labels.iter().map(|label| shown(label).width()).max();
            // A letter of the font is about 0.6 of its size wide.
            match cell < LETTER {
                true => 40.0,
                false => 0.62 * font(cell) * widest.unwrap_or(0) as f64 + 8.0,
            }
        };
        Self {
            grid,
            options,
            colours: colour::scale(options.theme),
            cell,
            left: width(&grid.queries),
            top: 26.0 + width(&grid.keys).max(12.0),
        }
    }

    fn svg(&self) -> String {
        let rows = self.grid.queries.len();
        let columns = self.grid.keys.len();
        let [paper, ink] = match self.options.theme {
            Theme::Light => ["#ffffff", "#16202b"],
            Theme::Dark => ["#14171c", "#e6ebf0"],
        };
        let matrix = [columns, rows].map(|count| count as f64 * self.cell);
        let width = (self.left + matrix[0] + 12.0).max(320.0);
        let height = self.top + matrix[1] + 40.0;
        let title = html::text(&self.grid.title);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             role=\"img\" font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" fill=\"{ink}\">\n\
             <title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"{paper}\"/>\n\
             <text x=\"8\" y=\"18\" font-size=\"13\">{title}</text>\n"
        );
        if rows * columns == 0 {
            let _ = writeln!(
                svg,
                "<text x=\"8\" y=\"38\" font-size=\"12\">no weights: {rows} queries, {columns} keys</text>"
            );
        } else {
            self.write_labels(&mut svg);
            self.write_weights(&mut svg);
            self.write_legend(&mut svg, height - 24.0);
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// Writes one path for all cells of a colour: lines through runs of neighbours.
    fn write_weights(&self, svg: &mut String) {
        let rows = self.grid.queries.len();
        let columns = self.grid.keys.len();
        let mut paths = vec![String::new(); LEVELS + 1];
        let largest = self.grid.largest(self.options.scale);
        for (row, largest) in largest.into_iter().enumerate() {
            let levels: Vec<usize> = self
                .grid
                .row(row)
                .iter()
                .map(|w| level(*w, largest))
                .collect();
            let mut column = 0;
            for run in levels.chunk_by(|a, b| a == b) {
                let _ = write!(paths[run[0]], "M{column} {row}h{}", run.len());
                column += run.len();
            }
        }
        let left = self.left;
        let top = self.top;
        let cell = self.cell;
        let paper = hex(self.colours[0]);
        let _ = writeln!(
            svg,
            "<g transform=\"translate({left:.2} {top:.2}) scale({cell:.4})\" shape-rendering=\"crispEdges\">\n\
             <rect width=\"{columns}\" height=\"{rows}\" fill=\"{paper}\"/>\n<g transform=\"translate(0 .5)\">"
        );
        // The first level is the background.
        for (level, path) in paths.iter().enumerate().skip(1) {
            if !path.is_empty() {
                let _ = writeln!(
                    svg,
                    "<path stroke=\"{}\" d=\"{path}\"/>",
                    self.colour(level)
                );
            }
        }
        svg.push_str("</g>\n</g>\n");
    }

    fn colour(&self, level: usize) -> String {
        let place = level * (colour::COLOURS - 1) / (LEVELS - 1);
        hex(*self.colours.get(place).unwrap_or(&colour::NOT_FINITE))
    }

    fn write_labels(&self, svg: &mut String) {
        let is_lettered = self.cell >= LETTER;
        let size = if is_lettered { font(self.cell) } else { 10.0 };
        let steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];
        let room = if is_lettered { 0.0 } else { 36.0 };
        let step = steps
            .into_iter()
            .find(|step| *step as f64 * self.cell >= room);
        let step = step.unwrap_or(10_000);
        let text = |index: usize, labels: &[String]| match is_lettered {
            true => html::text(&shown(&labels[index])),
            false => index.to_string(),
        };
        let _ = writeln!(svg, "<g font-size=\"{size:.1}\" text-anchor=\"end\">");
        for query in (0..self.grid.queries.len()).step_by(step) {
            let y = self.top + (query as f64 + 0.5) * self.cell + 0.35 * size;
            let label = text(query, &self.grid.queries);
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{y:.1}\">{label}</text>",
                self.left - 5.0
            );
        }
        svg.push_str("</g>\n");
        let _ = writeln!(svg, "<g font-size=\"{size:.1}\">");
        for key in (0..self.grid.keys.len()).step_by(step) {
            let x = self.left + (key as f64 + 0.5) * self.cell + 0.35 * size;
            let y = self.top - 5.0;
            let label = text(key, &self.grid.keys);
            let _ = writeln!(
                svg,
                "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\">{label}</text>"
            );
        }
        svg.push_str("</g>\n");
    }

    fn write_legend(&self, svg: &mut String, y: f64) {
        let most = match self.options.scale {
            Scale::Query => "the largest of each query",
            Scale::Head => "the largest of the head",
            Scale::One => "1",
        };
        let _ = writeln!(
            svg,
            "<text x=\"8\" y=\"{:.1}\" font-size=\"11\">0</text>",
            y + 11.0
        );
        for step in 0..16 {
            let colour = self.colour(step * (LEVELS - 1) / 15);
            let x = 20 + 6 * step;
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{y:.1}\" width=\"6\" height=\"14\" fill=\"{colour}\"/>"
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"122\" y=\"{:.1}\" font-size=\"11\">{most}</text>",
            y + 11.0
        );
    }
}

/// The path of a weight. The last one is for weights that are not finite.
fn level(weight: f64, largest: f64) -> usize {
    match share(weight, largest) {
        share if share.is_nan() => LEVELS,
        share => (share.clamp(0.0, 1.0) * (LEVELS - 1) as f64).round() as usize,
    }
}

fn font(cell: f64) -> f64 {
    (0.72 * cell).min(12.0)
}

/// A label with a symbol where it is cut off.
fn shown(label: &str) -> String {
    match label.chars().count() {
        0..=16 => label.into(),
        _ => label.chars().take(15).chain(['…']).collect(),
    }
}

fn hex([r, g, b]: Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

#[cfg(test)]
mod tests {
    use super::{super::html::tests::HOSTILE, *};

    fn drawing(shape: [usize; 2], weights: Vec<f32>) -> String {
        let map = AttentionMap::new("a", [1, 1, shape[0], shape[1]], weights);
        svg(&map, 0, 0, &Labels::indices(), SvgOptions::default()).unwrap()
    }

    /// The cells with a stroke of a colour, read back from the paths.
    fn cells(svg: &str, colour: &str) -> Vec<[usize; 2]> {
        let start = format!("<path stroke=\"{colour}\" d=\"");
        let path = svg
            .split_once(&start)
            .map_or("", |(_, rest)| rest.split('"').next().unwrap());
        let mut cells = Vec::new();
        for run in path.split('M').skip(1) {
            let numbers: Vec<usize> = run.split([' ', 'h']).map(|n| n.parse().unwrap()).collect();
            cells.extend((0..numbers[2]).map(|along| [numbers[1], numbers[0] + along]));
        }
        cells
    }

    #[test]
    fn cells_have_the_colours_of_their_weights() {
        let svg = drawing([2, 3], vec![1.0, 1.0, 0.0, 0.0, f32::NAN, 0.5]);
        let colours = colour::scale(Theme::Light);
        assert_eq!(cells(&svg, &hex(colours[255])), [[0, 0], [0, 1], [1, 2]]);
        assert_eq!(cells(&svg, &hex(colour::NOT_FINITE)), [[1, 1]]);
        assert!(svg.contains(&format!(
            "<rect width=\"3\" height=\"2\" fill=\"{}\"/>",
            hex(colours[0])
        )));
        // After a run of two.
        let svg = drawing([1, 4], vec![1.0, 1.0, 0.5, 0.5]);
        assert_eq!(cells(&svg, &hex(colours[32 * 255 / 63])), [[0, 2], [0, 3]]);
        // Relative to the largest of the head, a half is a half.
        let map = AttentionMap::new("a", [1, 1, 1, 2], vec![1.0, 0.5]);
        let options = SvgOptions {
            scale: Scale::One,
            ..Default::default()
        };
        let svg = super::svg(&map, 0, 0, &Labels::indices(), options).unwrap();
        assert_eq!(cells(&svg, &hex(colours[32 * 255 / 63])), [[0, 1]]);
    }

    #[test]
    fn a_drawing_of_noise_of_256_tokens_is_below_a_megabyte() {
        let noise = (0..256 * 256)
            .map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 8) as f32)
            .collect();
        let svg = drawing([256, 256], noise);
        assert!(svg.len() < 1_000_000, "{}", svg.len());
    }

    #[test]
    fn labels_are_escaped() {
        let map = AttentionMap::new(HOSTILE[0], [1, 1, 7, 7], vec![0.5; 49]);
        let svg = svg(
            &map,
            0,
            Head::Mean,
            &Labels::same([HOSTILE]),
            SvgOptions::default(),
        )
        .unwrap();
        assert!(!svg.contains("<script") && !svg.contains("<img") && !svg.contains("onload=a"));
        assert!(svg.contains("&lt;/script&gt;&lt;scrip…"), "{svg}");
    }

    #[test]
    fn maps_of_size_0_and_1_are_drawn() {
        for shape in [[0, 3], [3, 0], [0, 0]] {
            let expected = format!("no weights: {} queries, {} keys", shape[0], shape[1]);
            assert!(drawing(shape, vec![]).contains(&expected));
        }
        let row = drawing([1, 500], vec![0.5; 500]);
        assert!(row.contains("M0 0h500"));
        let column = drawing([500, 1], vec![0.5; 500]);
        assert!(column.contains("M0 499h1"));
    }
}
