//! The layers beside the rate of a matrix product, and of multiply-adds in registers, on this machine.
//!
//! ```sh
//! cargo run --release --example roofline
//! cargo run --release --example roofline -- --only core
//! ```
//!
//! For every case: the time of the best run, the rate of its products, the share of the rate of a plain matrix product that was
//! measured just before and after, the share of the peak, and the time in plain dfdx divided by ours. For a layer also the share of the rate at which
//! its own products run back to back: with their shapes, and with sides that come from memory.
//!
//! Only products count as work: causal ones at half, those of a window at its share. The backward pass of attention is 2.5 times
//! its forward pass (five products for two), that of a projection twice.

mod by_hand;
mod core;
mod layer;
mod peak;
mod timing;

use clap::Parser;
use timing::{Case, Rate};

/// Times attention beside this machine's rate of matrix products.
#[derive(Parser)]
struct Options {
    /// Run the cases whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Leave out the layers in plain dfdx, which take most of the time.
    #[arg(long)]
    alone: bool,
}

fn main() {
    let options = Options::parse();
    let (peak, rate) = (peak::measure(), Rate::measure());
    println!(
        "multiply-adds in registers, f32, {} threads: {peak}",
        rayon::current_num_threads()
    );
    println!(
        "matrix product of 1024 x 512 x 512: {rate}, {:.0}% of that\n",
        100.0 * peak.share_of(rate)
    );
    println!(
        "{:<46} {:>9} {:>9} {:>7} {:>6} {:>8} {:>15} {:>14}",
        "case", "time", "GFLOP/s", "share", "bar", "of peak", "own products", "times in dfdx"
    );
    let cases = layer::cases().into_iter().chain(core::cases());
    for case in cases.filter(|case| case.name.contains(&options.only)) {
        report(case, !options.alone, peak);
    }
}

fn report(case: Case, by_hand: bool, peak: Rate) {
    let before = Rate::measure();
    let time = timing::best((case.run)());
    let rate = before.max(Rate::measure());
    let flops = case.flops / time;
    let of_its_products = if case.maps.is_empty() {
        String::new()
    } else {
        let rate = Rate::of(&case.maps, case.backward);
        format!("{:.0}%", 100.0 * rate.share(flops))
    };
    let dfdx = match case.by_hand {
        Some(run) if by_hand => format!("{:.1}", timing::best(run()) / time),
        _ => String::new(),
    };
    println!(
        "{:<46} {:>6.2} ms {:>9.1} {:>6.0}% {:>5}% {:>7.0}% {:>15} {:>14}",
        case.name,
        1e3 * time,
        flops / 1e9,
        100.0 * rate.share(flops),
        case.bar,
        100.0 * peak.share(flops),
        of_its_products,
        dfdx
    );
}
