//! The kernels against [the definition](naive), over everything that can be asked of them.

mod case;
mod naive;
mod values;
