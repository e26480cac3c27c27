//! Times the three matrix products of a linear layer, and the same products by the crate `gemm`, with operands in the layout that is fastest
//! for `gemm`.
//!
//! ```sh
//! cargo run --release --example products             # half a minute
//! cargo run --release --example products -- small    # the products of a small model alone
//! ```
//!
//! A layer `y = x Wᵀ` of `n` rows has three products. Two of them have a transposed side, which `gemm` alone is not given here:
//!
//! | product | shape |
//! | --- | --- |
//! | forward: `x Wᵀ` | `[n, in] [in, out]` |
//! | gradient of the input: `dy W` | `[n, out] [out, in]` |
//! | gradient of the weights: `dyᵀ x` | `[out, n] [n, in]` |
//!
//! Each cell is the rate in GFLOP/s, and that of `gemm` in turns with it.

use std::time::Instant;

use attn_core::kernel::{Dtype, linear, parallel::run_pass};
use attn_core::simd::{Matrix, MatrixMut, Threads, WriteMode, product};
use clap::{Parser, ValueEnum};

/// Times the products of linear layers.
#[derive(Parser)]
struct Args {
    /// The layers whose products are timed.
    #[arg(default_value = "all")]
    layers: Layers,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Layers {
    /// The layers of the small model of `throughput`.
    Small,
    /// The layers of its medium model.
    Medium,
    /// Layers with as many rows, inputs and outputs.
    Square,
    All,
}

/// Rows, inputs and outputs.
const SMALL: [[usize; 3]; 5] = [
    [768, 128, 384],
    [768, 128, 128],
    [768, 128, 512],
    [768, 512, 128],
    [768, 128, 65],
];
const MEDIUM: [[usize; 3]; 5] = [
    [2048, 384, 1152],
    [2048, 384, 384],
    [2048, 384, 1536],
    [2048, 1536, 384],
    [2048, 384, 65],
];
const SQUARE: [[usize; 3]; 6] = [[64; 3], [128; 3], [256; 3], [512; 3], [1024; 3], [2048; 3]];

/// The time that a product is repeated for, in seconds, in each of the rounds.
const TURN: f64 = 2e-3;
const ROUNDS: usize = 30;

fn main() {
    let args = Args::parse();
    let groups = [
        (Layers::Small, &SMALL[..]),
        (Layers::Medium, &MEDIUM),
        (Layers::Square, &SQUARE),
    ];
    println!(
        "                 n x in x out       forward   (gemm)         input   (gemm)       weights   (gemm)"
    );
    for (layers, shapes) in groups {
        if args.layers == layers || args.layers == Layers::All {
            shapes.iter().for_each(|&shape| row(shape));
        }
    }
}

fn row([n, inputs, outputs]: [usize; 3]) {
    let numbers = |len: usize| (0..len).map(|i| (i % 29) as f32 / 29.0 - 0.5);
    let [x, w, y] =
        [n * inputs, inputs * outputs, n * outputs].map(|len| numbers(len).collect::<Vec<_>>());
    let x = Matrix::new(&x, n, inputs);
    let d_y = Matrix::new(&y, n, outputs);
    let w_rows = Matrix::new(&w, outputs, inputs);
    let w_columns = Matrix::new(&w, inputs, outputs);
    let y_wide = Matrix::new(&y, outputs, n);
    let cells = [
        turns(
            n,
            outputs,
            |to| linear::forward(x, w_rows, None, to, Dtype::Model),
            |to| multiply(x, w_columns, to),
        ),
        turns(
            n,
            inputs,
            |to| linear::input_gradient(d_y, w_rows, WriteMode::Overwrite, to, Dtype::Model),
            |to| multiply(d_y, w_rows, to),
        ),
        turns(
            outputs,
            inputs,
            |to| linear::parameter_gradients(d_y, x, WriteMode::Add, Some(to), None, Dtype::Model),
            |to| multiply(y_wide, x, to),
        ),
    ];
    let flops = (2 * n * inputs * outputs) as f64;
    let cell =
        |[ours, gemm]: [f64; 2]| format!("{:8.1} {:8.1}", flops / ours / 1e9, flops / gemm / 1e9);
    let [forward, input, weights] = cells.map(cell);
    let shape = format!("{n} x {inputs} x {outputs}");
    println!("{shape:>29}   {forward}   {input}   {weights}");
}

fn multiply(a: Matrix<'_, f32>, b: Matrix<'_, f32>, to: MatrixMut<'_, f32>) {
    product(to, WriteMode::Overwrite, 1.0, a, b, Threads::All);
}

/// The least time of either, in turns.
fn turns(
    rows: usize,
    cols: usize,
    ours: impl Fn(MatrixMut<'_, f32>) + Sync,
    gemm: impl Fn(MatrixMut<'_, f32>) + Sync,
) -> [f64; 2] {
    let mut to = vec![0.0; rows * cols];
    let mut best = [f64::INFINITY; 2];
    let mut time = |which: &(dyn Fn(MatrixMut<'_, f32>) + Sync)| {
        // As in the pass of a model, threads are awake between products.
        run_pass(usize::MAX, || {
            let begin = Instant::now();
            let mut times = 0;
            while times == 0 || begin.elapsed().as_secs_f64() < TURN {
                which(MatrixMut::new(&mut to, rows, cols));
                times += 1;
            }
            begin.elapsed().as_secs_f64() / f64::from(times)
        })
    };
    for _ in 0..ROUNDS {
        best[0] = time(&ours).min(best[0]);
        best[1] = time(&gemm).min(best[1]);
    }
    best
}
