//! The kernels against [the definition](naive), over everything that can be asked of them.

mod bits;
mod case;
mod naive;
mod poison;
mod scores;
mod shapes;
mod sparse;
mod tiles;
mod values;
