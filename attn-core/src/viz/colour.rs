//! The colour scale: from a fraction of the largest weight to a colour.
//!
//! Both scales are paths through OKLab (Ottosson 2020, <https://bottosson.github.io/posts/oklab/>), a perceptually uniform space.
//! A path has constant speed, so equal steps of a weight look equally large. Rainbow scales have bright bands, which look like
//! borders in the weights; these do not. Lightness decreases monotonically (on white paper) or increases (on black), so the order
//! of weights is visible without distinguishing hues, and in print.

/// Red, green, blue, as sRGB.
pub(super) type Rgb = [u8; 3];

/// The colour of a weight that is not finite.
pub(super) const NOT_FINITE: Rgb = [0xd4, 0x1f, 0x8c];

/// The background of a drawing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// Black on white; large weights are dark.
    #[default]
    Light,
    /// White on black; large weights are bright.
    Dark,
}

/// The number of colours of a scale.
pub(super) const COLOURS: usize = 256;

/// `[lightness, chroma, hue in degrees]`, within sRGB on the whole path.
const ON_LIGHT: [[f64; 3]; 4] = [
    [0.98, 0.005, 200.0],
    [0.80, 0.09, 195.0],
    [0.56, 0.13, 250.0],
    [0.27, 0.11, 285.0],
];
const ON_DARK: [[f64; 3]; 4] = [
    [0.22, 0.012, 270.0],
    [0.45, 0.13, 280.0],
    [0.70, 0.11, 195.0],
    [0.96, 0.10, 110.0],
];

/// All colours of a scale, from weight 0 to the largest.
pub(super) fn scale(theme: Theme) -> Vec<Rgb> {
    (0..COLOURS)
        .map(|index| srgb(path(theme, index as f64 / (COLOURS - 1) as f64)))
        .collect()
}

/// The index in a scale for a fraction of the largest weight, clamped to the scale, or `None` for NaN.
pub(super) fn place(share: f64) -> Option<usize> {
    let last = (COLOURS - 1) as f64;
    (!share.is_nan()).then(|| (share.clamp(0.0, 1.0) * last).round() as usize)
}

/// A point of the path in OKLab, at a fraction of its length.
fn path(theme: Theme, share: f64) -> [f64; 3] {
    let stops = match theme {
        Theme::Light => ON_LIGHT,
        Theme::Dark => ON_DARK,
    };
    let points = stops.map(|[lightness, chroma, hue]| {
        let hue = hue.to_radians();
        [lightness, chroma * hue.cos(), chroma * hue.sin()]
    });
    let parts: Vec<f64> = points.windows(2).map(|p| distance(p[0], p[1])).collect();
    let mut left = share * parts.iter().sum::<f64>();
    let mut at = 0;
    while at + 1 < parts.len() && left > parts[at] {
        left -= parts[at];
        at += 1;
    }
    let along = (left / parts[at]).min(1.0);
    let [from, to] = [points[at], points[at + 1]];
    [0, 1, 2].map(|i| from[i] + (to[i] - from[i]) * along)
}

fn distance(a: [f64; 3], b: [f64; 3]) -> f64 {
    let squares = (0..3).map(|i| (a[i] - b[i]).powi(2));
    squares.sum::<f64>().sqrt()
}

fn srgb(oklab: [f64; 3]) -> Rgb {
    linear(oklab).map(|light| {
        let light = light.clamp(0.0, 1.0);
        let encoded = match light <= 0.003_130_8 {
            true => 12.92 * light,
            false => 1.055 * light.powf(1.0 / 2.4) - 0.055,
        };
        (encoded * 255.0).round() as u8
    })
}

/// Linear red, green and blue of a colour in OKLab.
fn linear([lightness, a, b]: [f64; 3]) -> [f64; 3] {
    let l = (lightness + 0.396_337_777_4 * a + 0.215_803_757_3 * b).powi(3);
    let m = (lightness - 0.105_561_345_8 * a - 0.063_854_172_8 * b).powi(3);
    let s = (lightness - 0.089_484_177_5 * a - 1.291_485_548_0 * b).powi(3);
    [
        4.076_741_662_1 * l - 3.307_711_591_3 * m + 0.230_969_929_2 * s,
        -1.268_438_004_6 * l + 2.609_757_401_1 * m - 0.341_319_396_5 * s,
        -0.004_196_086_3 * l - 0.703_418_614_7 * m + 1.707_614_701_0 * s,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_perceptually_uniform_and_lightness_is_monotonic() {
        for (theme, direction) in [(Theme::Light, -1.0), (Theme::Dark, 1.0)] {
            let points: Vec<_> = (0..=100).map(|i| path(theme, i as f64 / 100.0)).collect();
            let steps = points.windows(2).map(|p| distance(p[0], p[1]));
            let (least, most) = steps.fold((f64::MAX, 0.0), |(least, most): (f64, f64), step| {
                (least.min(step), most.max(step))
            });
            // Two of the hundred steps include a corner of the path, where the straight line is shorter.
            assert!(least > 0.85 * most, "{theme:?}: {least} to {most}");
            assert!(
                points
                    .windows(2)
                    .all(|p| (p[1][0] - p[0][0]) * direction > 0.0)
            );
        }
    }

    #[test]
    fn colours_are_within_srgb() {
        for theme in [Theme::Light, Theme::Dark] {
            let shares = (0..=1000).map(|i| f64::from(i) / 1000.0);
            let mut lights = shares.flat_map(|share| linear(path(theme, share)));
            assert!(lights.all(|light| (0.0..=1.0).contains(&light)));
        }
    }

    #[test]
    fn white_black_and_red_convert_from_oklab() {
        // The published matrices have ten digits.
        assert_eq!(srgb([1.0, 0.0, 0.0]), [255; 3]);
        assert_eq!(srgb([0.0, 0.0, 0.0]), [0; 3]);
        // The red of sRGB, as its author gives it: L 0.628, a 0.225, b 0.126.
        assert_eq!(srgb([0.627_955, 0.224_863, 0.125_846]), [255, 0, 0]);
    }

    #[test]
    fn fractions_are_clamped_to_the_scale() {
        assert_eq!([0.0, 0.5, 1.0].map(place), [Some(0), Some(128), Some(255)]);
        assert_eq!([-1.0, f64::INFINITY].map(place), [Some(0), Some(255)]);
        assert_eq!(place(f64::NAN), None);
        assert_eq!(scale(Theme::Dark).len(), COLOURS);
    }
}
