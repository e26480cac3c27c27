//! The kernels against [the definition](naive), for all parameters.

mod bits;
mod case;
mod naive;
mod poison;
mod scores;
mod shapes;
mod sparse;
mod tiles;
mod values;
