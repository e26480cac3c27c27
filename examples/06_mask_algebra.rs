//! Lesson 6: custom masks, the properties that the compiler proves of them, and their cost. The macro analyses a mask at compile
//! time, and tiles that it leaves empty are never computed.
//!
//! ```text
//! cargo run --release --example 06_mask_algebra
//! ```

use std::time::{Duration, Instant};

use attn::attention;
use attn::dfdx::prelude::*;
use attn::{Coverage, MaskBlocks};

/// A picture of 32 by 32 pixels, row by row, is a sequence of 1024.
const SIDE: usize = 32;
const LEN: usize = SIDE * SIDE;

attention! {
    /// No mask, for comparison.
    struct Dense<heads = 4, d_model = 128>;

    /// Longformer (Beltagy et al. 2020): a window, and a few global positions.
    struct Longformer<heads = 4, d_model = 128, ensure = every_query_attends> {
        fn mask(q_idx, kv_idx) { abs(q_idx - kv_idx) < 64 || kv_idx < 16 || q_idx < 16 }
    }

    /// Neighborhood attention (Hassani et al. 2023): a pixel attends to the 7 by 7 pixels around it.
    struct Neighborhood<heads = 4, d_model = 128, ensure = every_query_attends> {
        fn mask(q_idx, kv_idx) {
            let rows = q_idx / SIDE - kv_idx / SIDE;
            let columns = q_idx % SIDE - kv_idx % SIDE;
            abs(rows) <= 3 && abs(columns) <= 3
        }
    }

    /// One head attends to near positions, one to farther ones. The masks of the header and the body are combined. `ensure` is
    /// proved: without `mask = causal`, the compiler names a query and a key as a counterexample.
    struct NearAndFar<heads = 2, d_model = 128, mask = causal, ensure = causal & every_query_attends> {
        fn mask(h, q_idx, kv_idx) { q_idx - kv_idx < if h == 0 { 64 } else { 512 } }
    }

    /// Block diffusion (Arriola et al. 2025): each block of 128 attends to itself and to all blocks before.
    struct Blocks<heads = 4, d_model = 128> {
        fn mask(q_idx, kv_idx) { kv_idx / 128 <= q_idx / 128 }
    }
}

fn main() {
    let device = Cpu::seed_from_u64(6);
    let x = device.sample_like(&(1, LEN, Const::<128>), rand_distr::StandardNormal);
    macro_rules! time {
        ($layer:ty) => {{
            let layer = device.build_module::<$layer, f32>();
            shortest(|| drop(layer.forward(x.clone())))
        }};
    }
    macro_rules! show {
        ($layer:ident, $dense:expr) => {{
            println!("{}", stringify!($layer));
            let causal = if $layer::IS_CAUSAL { "yes" } else { "no" };
            let attends = if $layer::EVERY_QUERY_ATTENDS {
                "yes"
            } else {
                "no"
            };
            println!("  proved: causal {causal}, every query attends {attends}");
            println!(
                "  {:.1}% of all pairs attend",
                100.0 * $layer::mask_density(LEN, LEN)
            );
            describe(&$layer::mask_blocks(LEN, LEN));
            let share = time!($layer).as_secs_f64() / $dense.as_secs_f64();
            println!("  the whole layer takes {share:.2} of the time without a mask\n");
            println!("{}", $layer::mask_blocks(LEN, LEN));
        }};
    }

    println!(
        "{LEN} queries and as many keys. █ is computed, of ▒ some counts, · is never visited.\n"
    );
    let dense = time!(Dense);
    show!(Longformer, dense);
    show!(Neighborhood, dense);
    show!(NearAndFar, dense);
    show!(Blocks, dense);
}

fn describe(blocks: &MaskBlocks) {
    let [empty, partial, full] =
        [Coverage::Empty, Coverage::Partial, Coverage::Full].map(|known| blocks.count(known));
    println!(
        "  {} by {}: {full} blocks full, {partial} partial, {empty} empty",
        MaskBlocks::QUERIES,
        MaskBlocks::KEYS
    );
}

/// The shortest of a few runs: other load of the machine only makes runs longer.
fn shortest(mut run: impl FnMut()) -> Duration {
    let times = (0..10).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed()
    });
    times.min().unwrap_or_default()
}
