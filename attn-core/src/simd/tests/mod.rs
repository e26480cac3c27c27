//! Every instruction set of the machine, against plain loops and the standard library.

mod few_rows;
mod functions;
mod isas;
mod matrices;
mod powers;
mod slices;
mod vectors;

use super::call::{Erf, Exp, Ln, MapInPlace, Sigmoid, Tanh};
use super::slice::Map;
use super::{Isa, Real, Vector, math};

/// Lengths around every number of lanes, and around blocks of four vectors.
const LENGTHS: [usize; 16] = [0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128];
const LONG_LENGTHS: [usize; 3] = [129, 1000, 4099];

fn lengths() -> impl Iterator<Item = usize> {
    LENGTHS.into_iter().chain(LONG_LENGTHS)
}

/// The functions of `math`, with their references.
#[derive(Clone, Copy, Debug)]
enum Function {
    Exp,
    Ln,
    Tanh,
    Erf,
    Sigmoid,
    Floor,
}

impl Function {
    const ALL: [Self; 6] = [
        Self::Exp,
        Self::Ln,
        Self::Tanh,
        Self::Erf,
        Self::Sigmoid,
        Self::Floor,
    ];

    /// The reference in `f64`, within an ulp or two, for numbers of which `least` is the smallest positive normal one.
    fn reference(self, x: f64, least: f64) -> f64 {
        match self {
            Self::Exp | Self::Sigmoid if x.exp() < least => 0.0,
            Self::Exp => x.exp(),
            Self::Ln => x.ln(),
            Self::Tanh => x.tanh(),
            Self::Erf => libm::erf(x),
            Self::Sigmoid if x < 0.0 => x.exp() / (1.0 + x.exp()),
            Self::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Self::Floor => x.floor(),
        }
    }

    fn run<E: Real>(self, isa: Isa, x: &mut [E]) {
        isa.run(MapInPlace(x, self));
    }

    /// The function of one number.
    fn of<E: Real>(self, isa: Isa, x: E) -> E {
        let mut x = [x];
        self.run(isa, &mut x);
        x[0]
    }
}

impl<E: Real> Map<E> for Function {
    #[inline(always)]
    fn apply<V: Vector<Element = E>>(&self, x: V) -> V {
        match self {
            Self::Exp => Exp.apply(x),
            Self::Ln => Ln.apply(x),
            Self::Tanh => Tanh.apply(x),
            Self::Erf => Erf.apply(x),
            Self::Sigmoid => Sigmoid.apply(x),
            Self::Floor => math::floor(x),
        }
    }
}

/// Numbers with many bits and both signs, the same in every run.
fn noise(len: usize) -> Vec<f64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
        })
        .collect()
}
