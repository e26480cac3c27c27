//! The chart of the prediction, as SVG.

use std::error::Error;

use plotters::{coord::combinators::IntoLogRange, prelude::*};

const SIZE: (u32, u32) = (1100, 540);
/// The rows of the labels of lines.
const ROWS: i32 = 5;
/// Their height.
const LABELS: u32 = 114;
const INK: RGBColor = RGBColor(0x16, 0x20, 0x2b);
const GRID: RGBColor = RGBColor(0x5c, 0x66, 0x72);

/// Efficiencies by the number of ranks.
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) colour: RGBColor,
    pub(crate) is_dashed: bool,
    pub(crate) points: Vec<(usize, f64)>,
}

/// The lines of a model.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) lines: Vec<Line>,
}

/// Draws the panels side by side, above the labels of their lines, which are the same in all.
pub(crate) fn svg(panels: &[Panel]) -> Result<String, Box<dyn Error + Send + Sync>> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let (plots, labels) = area.split_vertically(SIZE.1 - LABELS);
        let areas = plots.split_evenly((1, panels.len()));
        for (area, panel) in areas.iter().zip(panels) {
            panel.draw(area)?;
        }
        let lines = panels.first().map_or(&[][..], |panel| &panel.lines);
        for (index, line) in (0..).zip(lines) {
            line.draw_label(
                &labels,
                (62 + 540 * (index / ROWS), 14 + 20 * (index % ROWS)),
            )?;
        }
        area.present()?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

impl Line {
    fn draw_label(
        &self,
        area: &Area<'_>,
        (x, y): (i32, i32),
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let strokes = match self.is_dashed {
            true => vec![(x, x + 8), (x + 14, x + 22)],
            false => vec![(x, x + 22)],
        };
        for (from, to) in strokes {
            let stroke = PathElement::new([(from, y), (to, y)], self.colour.stroke_width(2));
            area.draw(&stroke)?;
        }
        let style = ("sans-serif", 13).into_font().color(&INK);
        area.draw(&Text::new(self.label.clone(), (x + 30, y - 6), style))?;
        Ok(())
    }
}

impl Panel {
    fn draw(&self, area: &Area<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        let area = area.titled(&self.title, ("sans-serif", 17).into_font().color(&INK))?;
        let ranks = self.lines.iter().flat_map(|line| &line.points);
        let ranks = ranks.map(|(ranks, _)| *ranks as f64);
        let (least, largest) = ranks.fold((f64::INFINITY, 2.0_f64), |(least, largest), ranks| {
            (least.min(ranks), largest.max(ranks))
        });
        let mut chart = ChartBuilder::on(&area)
            .margin(10)
            .margin_right(24)
            .x_label_area_size(42)
            .y_label_area_size(52)
            .build_cartesian_2d((least..largest).log_scale().base(2.0), 0.0..105.0)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.mix(0.2))
            .axis_style(GRID)
            .label_style(("sans-serif", 13).into_font().color(&INK))
            .x_desc("ranks")
            .y_desc("efficiency, %")
            .x_label_formatter(&|ranks| format!("{ranks:.0}"))
            .y_label_formatter(&|percent| format!("{percent:.0}"))
            .draw()?;
        for line in &self.lines {
            let points = line
                .points
                .iter()
                .map(|(ranks, share)| (*ranks as f64, 100.0 * share));
            let style = line.colour.stroke_width(2);
            match line.is_dashed {
                true => chart.draw_series(DashedLineSeries::new(points, 6, 4, style))?,
                false => chart.draw_series(LineSeries::new(points, style))?,
            };
        }
        Ok(())
    }
}
