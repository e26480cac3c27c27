//! A chart of the losses of a run.

use plotters::{
    coord::{
        Shift,
        combinators::IntoLogRange,
        ranged1d::{AsRangedCoord, Ranged, ValueFormatter},
        types::RangedCoordf64,
    },
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::VizError;

const SIZE: (u32, u32) = (920, 460);
const TRAIN: RGBColor = RGBColor(0x1f, 0x5f, 0xa8);
const VALIDATION: RGBColor = RGBColor(0xb0, 0x4a, 0x00);
const BASELINE: RGBColor = RGBColor(0x5c, 0x66, 0x72);
const INK: RGBColor = RGBColor(0x16, 0x20, 0x2b);
/// A line is downsampled to at most twice this number of points.
const MAX_POINTS: usize = 700;
/// Larger numbers are not drawn: they are not plausible losses, and the axis labels have no space for them.
const MAX_LOSS: f64 = 1e30;

/// A chart of losses: training loss, raw and smoothed, validation loss, and baselines.
///
/// ```
/// use attn::viz::LossChart;
///
/// let svg = LossChart::new("A short run")
///     .train([(1, 4.2), (2, 3.1), (3, 2.6)])
///     .validation([(0, 4.3), (3, 2.7)])
///     .baseline("unigram", 2.9)
///     .svg()?;
/// assert!(svg.contains("unigram"));
/// # Ok::<_, attn::viz::VizError>(())
/// ```
///
/// Losses that are not finite are left out. On a logarithmic axis, so are losses that are not positive. The chart states how many
/// were left out. A long run is drawn by the minimum and maximum of neighbouring losses. The same losses always give the same
/// bytes.
#[derive(Clone, Debug)]
pub struct LossChart {
    title: String,
    train: Vec<(u64, f64)>,
    validation: Vec<(u64, f64)>,
    baselines: Vec<(String, f64)>,
    smoothing: Option<f64>,
    logarithmic: bool,
}

impl LossChart {
    /// A chart without losses.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            train: Vec::new(),
            validation: Vec::new(),
            baselines: Vec::new(),
            smoothing: None,
            logarithmic: false,
        }
    }

    /// Adds the training losses, by step.
    pub fn train(mut self, losses: impl IntoIterator<Item = (u64, f64)>) -> Self {
        self.train.extend(losses);
        self
    }

    /// Adds the validation losses, by step.
    pub fn validation(mut self, losses: impl IntoIterator<Item = (u64, f64)>) -> Self {
        self.validation.extend(losses);
        self
    }

    /// Adds a baseline: a line with a name.
    pub fn baseline(mut self, name: impl Into<String>, loss: f64) -> Self {
        self.baselines.push((name.into(), loss));
        self
    }

    /// Sets the weight of the past in the smoothed loss, from 0 (none) to below 1. By default it is a mean over about a fiftieth
    /// of the run. The first losses have the bias correction of Adam's means, so that the line does not start at 0.
    pub fn smoothing(self, smoothing: f64) -> Self {
        let smoothing = Some(smoothing);
        Self { smoothing, ..self }
    }

    /// Makes the axis logarithmic.
    pub fn logarithmic(self) -> Self {
        let logarithmic = true;
        Self {
            logarithmic,
            ..self
        }
    }

    /// The chart as SVG.
    ///
    /// # Errors
    /// [`VizError`] if the smoothing is out of range.
    pub fn svg(&self) -> Result<String, VizError> {
        let smoothing = self.share_of_past();
        if !(0.0..1.0).contains(&smoothing) {
            let reason = format!("smoothing is {smoothing}, but must be at least 0 and below 1");
            return Err(VizError::Chart { reason });
        }
        let mut svg = String::new();
        self.draw(&mut svg).map_err(|error| VizError::Chart {
            reason: error.to_string(),
        })?;
        Ok(svg)
    }

    fn draw(&self, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let lines = Lines::of(self);
        let mut title = self.title.clone();
        if lines.left_out > 0 {
            title += &format!(" ({} losses cannot be drawn)", lines.left_out);
        }
        let area = area.titled(&title, ("sans-serif", 18).into_font().color(&INK))?;
        let (from, to) = lines.losses;
        match self.logarithmic {
            true => lines.draw(&area, (from..to).log_scale()),
            false => lines.draw(&area, from..to),
        }?;
        area.present()?;
        Ok(())
    }

    fn share_of_past(&self) -> f64 {
        let fiftieth = self.train.len() as f64 / 50.0;
        self.smoothing.unwrap_or(1.0 - 1.0 / fiftieth.max(1.0))
    }

    fn can_be_drawn(&self, loss: f64) -> bool {
        let least = if self.logarithmic {
            1.0 / MAX_LOSS
        } else {
            -MAX_LOSS
        };
        (least..=MAX_LOSS).contains(&loss)
    }
}

/// The values that are drawn, all of them finite.
struct Lines<'a> {
    chart: &'a LossChart,
    /// The losses that can be drawn.
    train: Vec<(f64, f64)>,
    validation: Vec<(f64, f64)>,
    baselines: Vec<(&'a str, f64)>,
    left_out: usize,
    last: f64,
    /// The range of the axis.
    losses: (f64, f64),
}

impl<'a> Lines<'a> {
    fn of(chart: &'a LossChart) -> Self {
        let drawn = |losses: &[(u64, f64)]| -> Vec<(f64, f64)> {
            let drawn = losses.iter().filter(|(_, loss)| chart.can_be_drawn(*loss));
            drawn.map(|(step, loss)| (*step as f64, *loss)).collect()
        };
        let train = drawn(&chart.train);
        let validation = drawn(&chart.validation);
        let baselines = chart
            .baselines
            .iter()
            .filter(|(_, loss)| chart.can_be_drawn(*loss));
        let baselines: Vec<(&str, f64)> = baselines.map(|(name, loss)| (&**name, *loss)).collect();
        let given = chart.train.len() + chart.validation.len() + chart.baselines.len();
        let points = || train.iter().chain(&validation);
        let all = points().map(|p| p.1).chain(baselines.iter().map(|b| b.1));
        Self {
            left_out: given - train.len() - validation.len() - baselines.len(),
            last: points().fold(1.0, |last, p| p.0.max(last)),
            losses: axis(all, chart.logarithmic),
            chart,
            train,
            validation,
            baselines,
        }
    }

    fn draw<Y>(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        losses: impl AsRangedCoord<CoordDescType = Y, Value = f64>,
    ) -> Result<(), Box<dyn std::error::Error>>
    where
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .margin_right(24)
            .x_label_area_size(42)
            .y_label_area_size(58)
            .build_cartesian_2d::<std::ops::Range<f64>, _>(0.0..self.last, losses)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BASELINE.mix(0.2))
            .axis_style(BASELINE)
            .label_style(("sans-serif", 13).into_font().color(&INK))
            .axis_desc_style(("sans-serif", 14).into_font().color(&INK))
            .x_desc("step")
            .y_desc("loss")
            .x_label_formatter(&|step| format!("{step:.0}"))
            .y_label_formatter(&|loss| tick(*loss))
            .draw()?;
        self.draw_baselines(&mut chart)?;
        self.draw_losses(&mut chart)?;
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .border_style(BASELINE.mix(0.3))
            .label_font(("sans-serif", 13).into_font().color(&INK))
            .draw()?;
        Ok(())
    }

    fn draw_losses<Y>(&self, chart: &mut Plot<'_, '_, Y>) -> Result<(), Box<dyn std::error::Error>>
    where
        Y: Ranged<ValueType = f64>,
    {
        let raw = downsampled(&self.train);
        chart.draw_series(LineSeries::new(raw, TRAIN.mix(0.25)))?;
        let smooth = downsampled(&smoothed(&self.train, self.chart.share_of_past()));
        let line = chart.draw_series(LineSeries::new(smooth, TRAIN.stroke_width(2)))?;
        if !self.train.is_empty() {
            line.label("training, smoothed")
                .legend(|at| legend(at, TRAIN));
        }
        chart.draw_series(LineSeries::new(
            self.validation.iter().copied(),
            VALIDATION.stroke_width(2),
        ))?;
        let points = self
            .validation
            .iter()
            .map(|at| Circle::new(*at, 3, VALIDATION.filled()));
        let points = chart.draw_series(points)?;
        if !self.validation.is_empty() {
            points
                .label("validation")
                .legend(|at| legend(at, VALIDATION));
        }
        Ok(())
    }

    fn draw_baselines<Y>(
        &self,
        chart: &mut Plot<'_, '_, Y>,
    ) -> Result<(), Box<dyn std::error::Error>>
    where
        Y: Ranged<ValueType = f64>,
    {
        for (name, loss) in &self.baselines {
            let ends = [(0.0, *loss), (self.last, *loss)];
            chart.draw_series(DashedLineSeries::new(ends, 6, 4, BASELINE.into()))?;
            let style = ("sans-serif", 13).into_font().color(&BASELINE);
            let style = style.pos(Pos::new(HPos::Right, VPos::Bottom));
            let label = format!("{name} {}", tick(*loss));
            chart.draw_series([Text::new(label, (self.last, *loss), style)])?;
        }
        Ok(())
    }
}

type Plot<'a, 'b, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, Y>>;

fn legend((x, y): (i32, i32), colour: RGBColor) -> PathElement<(i32, i32)> {
    PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2))
}

/// The range from the minimum to the maximum, with a margin. It is never too small for tick labels.
fn axis(losses: impl Iterator<Item = f64>, logarithmic: bool) -> (f64, f64) {
    let (least, largest) = losses.fold((f64::MAX, f64::MIN), |(a, b), loss| {
        (a.min(loss), b.max(loss))
    });
    if least > largest {
        return if logarithmic { (0.1, 1.0) } else { (0.0, 1.0) };
    }
    if logarithmic {
        let room = (largest / least).powf(0.05).max(1.05);
        return (least / room, largest * room);
    }
    let most = least.abs().max(largest.abs());
    let room = (0.05 * (largest - least)).max(0.01 * most).max(1e-9);
    (least - room, largest + room)
}

/// Exponential moving means with bias correction.
fn smoothed(losses: &[(f64, f64)], share: f64) -> Vec<(f64, f64)> {
    let mut sum = 0.0;
    let mut weight = 0.0;
    let means = losses.iter().map(|(step, loss)| {
        sum = share * sum + (1.0 - share) * loss;
        weight = share * weight + (1.0 - share);
        (*step, sum / weight)
    });
    means.collect()
}

/// The minimum and maximum of groups of neighbours, in order, if there are too many points.
fn downsampled(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= 2 * MAX_POINTS {
        return points.to_vec();
    }
    let chunks = points.chunks(points.len().div_ceil(MAX_POINTS));
    let ends = chunks.flat_map(|chunk| {
        let by_loss = |a: &usize, b: &usize| chunk[*a].1.total_cmp(&chunk[*b].1);
        let least = (0..chunk.len()).min_by(by_loss).unwrap_or(0);
        let largest = (0..chunk.len()).max_by(by_loss).unwrap_or(0);
        [chunk[least.min(largest)], chunk[least.max(largest)]]
    });
    ends.collect()
}

/// The label of a tick.
fn tick(loss: f64) -> String {
    match loss.abs() {
        0.0 => "0".into(),
        size if !(1e-3..1e5).contains(&size) => format!("{loss:.1e}"),
        size if size >= 100.0 => format!("{loss:.0}"),
        size if size >= 0.1 => format!("{loss:.2}"),
        _ => format!("{loss:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(losses: &[f64]) -> LossChart {
        let steps = 1..;
        LossChart::new("a run").train(steps.zip(losses.iter().copied()))
    }

    #[test]
    fn a_chart_is_deterministic_and_names_all_parts() -> Result<(), VizError> {
        let chart = chart(&[3.0, 2.0, 1.5])
            .validation([(3, 1.75)])
            .baseline("bi<gram>", 2.5);
        let svg = chart.svg()?;
        assert_eq!(svg, chart.svg()?);
        for part in [
            "a run",
            "step",
            "loss",
            "training, smoothed",
            "validation",
            "bi&lt;gram&gt; 2.50",
        ] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
        assert!(svg.starts_with("<svg") && !svg.contains("<gram"));
        Ok(())
    }

    #[test]
    fn smoothing_is_a_bias_corrected_moving_mean() {
        let found = smoothed(&[(1.0, 4.0), (2.0, 2.0), (3.0, 1.0)], 0.5);
        // 4; (4/4 + 2/2) / (3/4); (4/8 + 2/4 + 1/2) / (7/8)
        let expected = [4.0, 8.0 / 3.0, 12.0 / 7.0];
        for ((_, found), expected) in found.into_iter().zip(expected) {
            // The error of a rounding or two.
            assert!((found - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn a_long_run_keeps_its_extremes_in_few_points() -> Result<(), VizError> {
        let mut losses: Vec<(f64, f64)> = (0..100_000)
            .map(|i| (f64::from(i), (f64::from(i) * 0.1).sin()))
            .collect();
        losses[54_321].1 = 9.0;
        losses[77_777].1 = -9.0;
        let thin = downsampled(&losses);
        assert!(thin.len() <= 2 * MAX_POINTS);
        assert!(thin.contains(&losses[54_321]) && thin.contains(&losses[77_777]));
        assert!(thin.is_sorted_by(|a, b| a.0 <= b.0));
        let svg = LossChart::new("")
            .train(losses.iter().map(|(step, loss)| (*step as u64, *loss)))
            .svg()?;
        assert!(svg.len() < 100_000, "{}", svg.len());
        Ok(())
    }

    #[test]
    fn losses_that_cannot_be_drawn_are_left_out_and_counted() -> Result<(), VizError> {
        let losses = [1.0, f64::NAN, f64::INFINITY, 1e300, -2.0];
        assert!(
            chart(&losses)
                .svg()?
                .contains("a run (3 losses cannot be drawn)")
        );
        assert!(
            chart(&losses)
                .logarithmic()
                .svg()?
                .contains("a run (4 losses cannot be drawn)")
        );
        assert!(!chart(&[1.0]).svg()?.contains("cannot"));
        Ok(())
    }

    #[test]
    fn losses_without_a_range_have_an_axis() -> Result<(), VizError> {
        let close = 1.0 + f64::EPSILON;
        for losses in [
            &[][..],
            &[0.0],
            &[0.0, 0.0],
            &[1.0, close],
            &[-1e30, 1e30],
            &[1e-300, 1.0],
        ] {
            assert!(chart(losses).svg()?.contains("</svg>"), "{losses:?}");
            assert!(
                chart(losses).logarithmic().svg()?.contains("</svg>"),
                "{losses:?}"
            );
        }
        let late = LossChart::new("").train([(u64::MAX, 1.0)]).svg()?;
        assert!(late.contains("</svg>"));
        Ok(())
    }

    #[test]
    fn smoothing_must_be_in_range() {
        for smoothing in [-0.1, 1.0, f64::NAN] {
            let refused = chart(&[1.0]).smoothing(smoothing).svg().err();
            assert!(
                refused
                    .is_some_and(|e| e.to_string().contains(&format!("smoothing is {smoothing}")))
            );
        }
        assert!(chart(&[1.0]).smoothing(0.0).svg().is_ok());
        assert_eq!(
            [1, 50, 100, 5000].map(|n| chart(&vec![1.0; n]).share_of_past()),
            [0.0, 0.0, 0.5, 0.99]
        );
    }
}
