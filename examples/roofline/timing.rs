//! Measured times, and their references.

use std::fmt;
use std::time::{Duration, Instant};

use attn_core::simd::{Matrix, MatrixMut, Threads, WriteMode, product};

/// A case to time.
pub(crate) struct Case {
    pub(crate) name: String,
    /// The operations of its products.
    pub(crate) flops: f64,
    /// The required share of the rate, in percent.
    pub(crate) bar: u32,
    pub(crate) run: Setup,
    /// The same in plain dfdx.
    pub(crate) by_hand: Option<Setup>,
    /// Its products with parameters.
    pub(crate) maps: Vec<Map>,
    /// Whether it includes their derivatives.
    pub(crate) backward: bool,
}

/// Prepares a case, and returns the function to time.
pub(crate) type Setup = Box<dyn FnOnce() -> Box<dyn FnMut()>>;

/// A [`Setup`] from a function that prepares.
pub(crate) fn setup<F: FnMut() + 'static>(prepare: impl FnOnce() -> F + 'static) -> Setup {
    Box::new(|| Box::new(prepare()))
}

/// The time in seconds of the best of some runs: other load of the machine only makes runs longer.
pub(crate) fn best(mut run: impl FnMut()) -> f64 {
    const ENOUGH: Duration = Duration::from_millis(1500);
    run();
    let start = Instant::now();
    let mut best = f64::INFINITY;
    let mut runs = 0;
    while runs < 3 || start.elapsed() < ENOUGH {
        let before = Instant::now();
        run();
        best = best.min(before.elapsed().as_secs_f64());
        runs += 1;
    }
    best
}

/// A linear map of some rows, `[rows, input]` to `[rows, outputs]`.
#[derive(Clone, Copy)]
pub(crate) struct Map {
    pub(crate) rows: usize,
    pub(crate) input: usize,
    pub(crate) outputs: usize,
}

/// The operands of a map's products, row-major without transposed sides, as `gemm` is fastest.
struct Buffers {
    map: Map,
    /// `[rows, input]`, and its gradient.
    x: [Vec<f32>; 2],
    /// `[input, outputs]`, `[outputs, input]`, and the gradient of the latter.
    w: [Vec<f32>; 3],
    /// `[rows, outputs]`, and transposed.
    y: [Vec<f32>; 2],
}

impl Buffers {
    fn new(map: Map) -> Self {
        let numbers = |len| vec![0.5; len];
        Self {
            map,
            x: [(); 2].map(|()| numbers(map.rows * map.input)),
            w: [(); 3].map(|()| numbers(map.input * map.outputs)),
            y: [(); 2].map(|()| numbers(map.rows * map.outputs)),
        }
    }

    fn forward(&mut self) {
        let Map {
            rows,
            input,
            outputs,
        } = self.map;
        multiply(
            &mut self.y[0],
            [rows, input, outputs],
            &self.x[0],
            &self.w[0],
        );
    }

    fn backward(&mut self) {
        let Map {
            rows,
            input,
            outputs,
        } = self.map;
        multiply(
            &mut self.x[1],
            [rows, outputs, input],
            &self.y[0],
            &self.w[1],
        );
        multiply(
            &mut self.w[2],
            [outputs, rows, input],
            &self.y[1],
            &self.x[0],
        );
    }
}

/// `to = a b`, with `a [m, k]` and `b [k, n]`.
fn multiply(to: &mut [f32], [m, k, n]: [usize; 3], a: &[f32], b: &[f32]) {
    let a = Matrix::new(a, m, k);
    let b = Matrix::new(b, k, n);
    product(
        MatrixMut::new(to, m, n),
        WriteMode::Overwrite,
        1.0,
        a,
        b,
        Threads::All,
    );
}

/// Operations per second.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Rate(f64);

impl Rate {
    pub(crate) fn new(operations: f64, seconds: f64) -> Self {
        Self(operations / seconds)
    }

    /// Measures that of a matrix product on this machine.
    pub(crate) fn measure() -> Self {
        let [m, n, k] = [1024, 512, 512];
        let a = vec![0.5_f32; m * k];
        let b = vec![0.25; k * n];
        let mut c = vec![0.0; m * n];
        let mut best = f64::INFINITY;
        for _ in 0..60 {
            let before = Instant::now();
            multiply(&mut c, [m, k, n], &a, &b);
            best = best.min(before.elapsed().as_secs_f64());
        }
        Self::new((2 * m * n * k) as f64, best)
    }

    /// The rate of these maps back to back, and of their derivatives, the last first. Each has its own operands, most of which
    /// are no longer in a cache.
    pub(crate) fn of(maps: &[Map], backward: bool) -> Self {
        let flops = |map: &Map| 2 * map.rows * map.input * map.outputs;
        let passes = if backward { 3 } else { 1 };
        let flops = passes * maps.iter().map(flops).sum::<usize>();
        let mut buffers: Vec<Buffers> = maps.iter().copied().map(Buffers::new).collect();
        let time = best(|| {
            buffers.iter_mut().for_each(Buffers::forward);
            if backward {
                buffers.iter_mut().rev().for_each(Buffers::backward);
            }
        });
        Self(flops as f64 / time)
    }

    pub(crate) fn max(self, other: Self) -> Self {
        if self > other { self } else { other }
    }

    /// The share of this rate that another one is.
    pub(crate) fn share_of(self, other: Self) -> f64 {
        self.share(other.0)
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
