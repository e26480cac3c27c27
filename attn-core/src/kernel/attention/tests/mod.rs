//! The kernels against [the definition](naive), for all parameters.

mod bands;
mod bits;
mod case;
mod naive;
mod poison;
mod rounded;
mod scores;
mod shapes;
mod sparse;
mod talking;
mod tiles;
mod values;
