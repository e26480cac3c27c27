//! Times, and what they are compared with.

use std::fmt;
use std::time::{Duration, Instant};

use attn_core::simd::{Into, Matrix, MatrixMut, Threads, product};

/// Something to time.
pub(crate) struct Case {
    pub(crate) name: String,
    /// In the products.
    pub(crate) flops: f64,
    /// The share of the rate that is asked for, in percent.
    pub(crate) bar: u32,
    pub(crate) run: Setup,
    /// The same in plain dfdx.
    pub(crate) by_hand: Option<Setup>,
}

/// Prepares what is to be timed.
pub(crate) type Setup = Box<dyn FnOnce() -> Box<dyn FnMut()>>;

/// A [`Setup`] from a function that prepares.
pub(crate) fn setup<F: FnMut() + 'static>(prepare: impl FnOnce() -> F + 'static) -> Setup {
    Box::new(|| Box::new(prepare()))
}

/// The seconds of the best of some runs: what else the machine does only adds to the others.
pub(crate) fn best(mut run: impl FnMut()) -> f64 {
    const ENOUGH: Duration = Duration::from_millis(1500);
    run();
    let (start, mut best) = (Instant::now(), f64::INFINITY);
    let mut runs = 0;
    while runs < 3 || start.elapsed() < ENOUGH {
        let before = Instant::now();
        run();
        best = best.min(before.elapsed().as_secs_f64());
        runs += 1;
    }
    best
}

/// Operations per second of a matrix product.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Rate(f64);

impl Rate {
    /// On this machine, now.
    pub(crate) fn measure() -> Self {
        let [m, n, k] = [1024, 512, 512];
        let (a, b) = (vec![0.5_f32; m * k], vec![0.25; k * n]);
        let mut c = vec![0.0; m * n];
        let mut best = f64::INFINITY;
        for _ in 0..60 {
            let before = Instant::now();
            let (a, b) = (Matrix::new(&a, m, k), Matrix::new(&b, k, n));
            let c = MatrixMut::new(&mut c, m, n);
            product(c, Into::Overwrite, 1.0, a, b, Threads::All);
            best = best.min(before.elapsed().as_secs_f64());
        }
        Self((2 * m * n * k) as f64 / best)
    }

    pub(crate) fn max(self, other: Self) -> Self {
        if self > other { self } else { other }
    }

    pub(crate) fn share(self, flops: f64) -> f64 {
        flops / self.0
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} GFLOP/s", self.0 / 1e9)
    }
}
