//! The limit of the machine: multiply-adds of numbers in registers, on all threads.

use std::hint::black_box;
use std::time::Instant;

use attn_core::simd::{Kernel, Vector, run};

use crate::timing::Rate;

/// The best rate of some runs, so that a thread that begins late does not count.
pub(crate) fn measure() -> Rate {
    const ROUNDS: usize = 1 << 18;
    let rates = (0..30).map(|_| {
        let before = Instant::now();
        let operations = rayon::broadcast(|_| run(MultiplyAdds { rounds: ROUNDS }));
        let operations: usize = operations.into_iter().sum();
        Rate::new(operations as f64, before.elapsed().as_secs_f64())
    });
    rates.fold(Rate::new(0.0, 1.0), Rate::max)
}

/// Multiply-adds in independent chains. Returns the number of operations, two for each lane.
struct MultiplyAdds {
    rounds: usize,
}

impl Kernel for MultiplyAdds {
    type Element = f32;
    type Output = usize;

    /// Enough chains to fill the pipelines: the latency of a multiply-add times how many begin at once, which is 8 to 10 on x86-64, where AVX2
    /// has 16 registers, and 16 on the fastest ARM processors, which have 32.
    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) -> usize {
        match V::LANES {
            4 => self.in_chains::<V, 20>(),
            _ => self.in_chains::<V, 12>(),
        }
    }
}

impl MultiplyAdds {
    #[inline(always)]
    fn in_chains<V: Vector<Element = f32>, const CHAINS: usize>(self) -> usize {
        let rounds = self.rounds;
        let [factor, addend] = black_box([0.5, 0.25]).map(V::splat);
        let mut sums = [addend; CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = sum.mul_add(factor, addend);
            }
        }
        let all = sums.into_iter().fold(V::zero(), |all, sum| all + sum);
        black_box(all.reduce_sum());
        2 * rounds * CHAINS * V::LANES
    }
}
