//! Initial distributions of parameters, and samples that are compared with them.

/// The initial distribution of a parameter.
#[derive(Clone, Copy, Debug)]
pub enum Start {
    /// Uniform in `[-bound, bound]`.
    Uniform {
        bound: f64,
    },
    /// Normal with mean 0.
    Normal {
        std: f64,
    },
    /// Normal with mean 0, of which numbers beyond two standard deviations are drawn again.
    TruncatedNormal {
        std: f64,
    },
    Constant(f64),
}
use Start::{Constant, Uniform};

pub const ZERO: Start = Constant(0.0);
pub const ONE: Start = Constant(1.0);

/// `torch.nn.init.xavier_uniform_`
pub fn xavier(fan_in: usize, fan_out: usize) -> Start {
    let bound = (6.0 / (fan_in + fan_out) as f64).sqrt();
    Uniform { bound }
}

/// `torch.nn.init.kaiming_uniform_`, with its default gain of √2
pub fn kaiming(fan_in: usize) -> Start {
    let bound = (6.0 / fan_in as f64).sqrt();
    Uniform { bound }
}

/// `torch.nn.init.kaiming_uniform_(a=math.sqrt(5))`, the default of `torch.nn.Linear` and `torch.nn.Bilinear`
pub fn linear(fan_in: usize) -> Start {
    let bound = 1.0 / (fan_in as f64).sqrt();
    Uniform { bound }
}

pub fn normal(std: f64) -> Start {
    Start::Normal { std }
}

/// `torch.nn.init.trunc_normal_(std=std, a=-2 * std, b=2 * std)`
pub fn truncated(std: f64) -> Start {
    Start::TruncatedNormal { std }
}

pub fn uniform(bound: f64) -> Start {
    Uniform { bound }
}

/// Checks that the shorter of rows and columns have length 1 and are perpendicular. Products of numbers below 1 are summed, of which there
/// are less than a hundred, so rounding is far below the tolerance.
#[track_caller]
pub fn assert_orthogonal(name: &str, dims: &[usize], values: &[f64]) {
    let rows = dims[0];
    let cols = values.len() / rows;
    let [count, length, stride, step] = match rows <= cols {
        true => [rows, cols, cols, 1],
        false => [cols, rows, 1, cols],
    };
    let at = |vector: usize, index: usize| values[vector * stride + index * step];
    for a in 0..count {
        for b in 0..count {
            let product: f64 = (0..length).map(|index| at(a, index) * at(b, index)).sum();
            let expected = f64::from(u8::from(a == b));
            assert!(
                (product - expected).abs() < 1e-12,
                "{name}: {a} {b} {product}"
            );
        }
    }
}

/// Checks the first moments of a sample against those of its distribution, up to five standard errors. One in a million correct
/// samples would fail, and the seed is fixed.
#[track_caller]
pub fn assert_starts(name: &str, values: &[f64], start: Start) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let moment = |power| values.iter().map(|v| v.powi(power)).sum::<f64>() / n;
    let assert_near = |what: &str, found: f64, expected: f64, deviation: f64| {
        let off = (found - expected).abs();
        assert!(
            off <= 5.0 * deviation / n.sqrt(),
            "{name}: {what} {found}, expected {expected}"
        );
    };
    match start {
        Constant(constant) => assert!(values.iter().all(|&v| v == constant), "{name}: {values:?}"),
        Uniform { bound } => {
            let largest = values
                .iter()
                .fold(0.0, |largest: f64, v| largest.max(v.abs()));
            assert!(largest <= bound, "{name}: {largest} exceeds {bound}");
            // All n are below (1 - 14 / n) of it with probability e^-14, one in a million.
            assert!(
                largest > bound * (1.0 - 14.0 / n),
                "{name}: {largest} is far from {bound}"
            );
            assert_near("mean", mean, 0.0, bound / 3f64.sqrt());
            // E x² = b²/3, E x⁴ = b⁴/5
            let square = bound * bound;
            assert_near(
                "variance",
                moment(2),
                square / 3.0,
                square * (4f64 / 45.0).sqrt(),
            );
        }
        Start::TruncatedNormal { std } => {
            let largest = values
                .iter()
                .fold(0.0, |largest: f64, v| largest.max(v.abs()));
            assert!(
                largest <= 2.0 * std,
                "{name}: {largest} exceeds two of {std}"
            );
            // The density at both ends is 0.113 / σ. All n are further from them than 124 σ / n with probability e^-14.
            assert!(
                largest > (2.0 - 124.0 / n) * std,
                "{name}: {largest} is far from two of {std}"
            );
            // The variance of a normal variable within two deviations is 0.7737 σ², and E x⁴ is 1.4162 σ⁴.
            assert_near("mean", mean, 0.0, 0.7737_f64.sqrt() * std);
            assert_near(
                "variance",
                moment(2),
                0.773_741 * std.powi(2),
                0.9042 * std.powi(2),
            );
        }
        Start::Normal { std } => {
            assert_near("mean", mean, 0.0, std);
            // E x² = σ², E x⁴ = 3σ⁴, E x⁸ = 105σ⁸
            assert_near(
                "variance",
                moment(2),
                std.powi(2),
                std.powi(2) * 2f64.sqrt(),
            );
            assert_near(
                "fourth moment",
                moment(4),
                3.0 * std.powi(4),
                std.powi(4) * 96f64.sqrt(),
            );
        }
    }
}
