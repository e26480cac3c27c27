//! Vectors of numbers, and the elementary functions over them.
//!
//! An algorithm is written once, as a [`Kernel`] that is generic over [`Vector`]. It runs on the widest instruction set of the
//! machine: AVX-512, AVX2 with FMA, NEON, or plain Rust. AMX is AVX-512 with tiles for products of bf16 and bytes.
//!
//! ```
//! use attn::__private::runtime::simd::slice::{load_filled, store_any};
//! use attn::__private::runtime::simd::{Kernel, Vector, math, run, slice};
//!
//! /// Rows of scores to weights: `exp(x - max)`, not yet divided by their sum.
//! struct Weights<'a>(&'a mut [f32]);
//!
//! impl Kernel for Weights<'_> {
//!     type Element = f32;
//!     type Output = f32;
//!     #[inline(always)]
//!     fn run<V: Vector<Element = f32>>(self) -> f32 {
//!         let max = V::splat(slice::max::<V>(self.0));
//!         let mut sum = V::zero();
//!         for scores in self.0.chunks_mut(V::LANES) {
//!             let weights = math::exp(load_filled::<V>(scores, f32::NEG_INFINITY) - max);
//!             sum += weights;
//!             store_any(weights, scores);
//!         }
//!         sum.reduce_sum()
//!     }
//! }
//!
//! let mut row = [0.0, f32::NEG_INFINITY, 0.0];
//! assert_eq!(run(Weights(&mut row)), 2.0);
//! assert_eq!(row, [1.0, 0.0, 1.0]);
//! ```
//!
//! Every function here promises:
//!
//! - On one machine and one instruction set, the result of an element depends on that element only: not on its index, the length
//!   of the slice, or the number of threads. A tail uses the same vector instructions.
//! - The order of a reduction depends only on the length and the instruction set.
//! - Two instruction sets may differ in the last bits: a reduction has as many partial sums as there are lanes, and the scalar
//!   form rounds a multiply-add twice, because a fused one is a library call on a machine without the instruction.
//!
//! `ATTN_SIMD=scalar|avx2|avx512|amx|neon` forces one (see [`Isa`]); [`Isa::run`] takes one for a single call.

// Plain comments from here on: the structure of this folder.
//
// `vector` has the traits; `scalar`, `avx2`, `avx512` and `neon` implement them; `amx` multiplies tiles of bf16 and bytes; `isa` knows which of these the machine has;
// `dispatch` chooses among them. `math`, `slice` and `zipped` are generic over the trait and know no instruction set; `tables`
// holds the coefficients of `math`, `call` is `slice` for callers that are not kernels themselves. `matrix` holds views that
// threads can share. `product` multiplies them by `gemm`, `tiles` with the right side in the panels of `panels`, `few_rows` where they stand, `pairs` those of
// numbers that `bf16` rounds; `bytes` multiplies integers. `transpose` copies them by the squares of `square`. `prefetch` speaks to the caches, `pages` to the system.
//
// SAFETY, for the whole folder. An instruction of an extension may only run on a machine that has it. The operations of a vector
// are safe functions nevertheless, because code outside this folder cannot get a vector type that the machine lacks: the types
// are private, none is an associated type of anything public, and the functions that pass them as a type parameter have checked the machine before: `Isa::run`,
// and where an extension has products of its own, `pairs` and `amx`.
#![allow(unsafe_code)]

mod bf16;
mod bytes;
mod dispatch;
mod few_rows;
mod isa;
mod matrix;
mod pages;
mod pairs;
mod panels;
mod prefetch;
mod product;
mod scalar;
mod square;
mod tables;
mod tiles;
mod transpose;
mod vector;
mod zipped;

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;

pub mod call;
pub mod math;
pub mod slice;

#[cfg(test)]
mod tests;

pub use bf16::{
    Bf16Rows, Pair, PairLine, halves, halves_mut, pair_rounded_columns, pair_rounded_rows, widened,
};
pub use bytes::{
    BYTE_COLUMNS, BYTE_DEPTHS, BYTE_TILE_ROWS, ByteLine, BytePanels, ByteRows, MOST_BYTE_DEPTHS,
    RowBytes, RowForm, has_byte_tiles, multiply_bytes,
};
pub use dispatch::run;
pub(crate) use few_rows::add_lanes;
pub use few_rows::dots_of_rows;
pub use isa::Isa;
pub use matrix::{Matrix, MatrixMut};
pub(crate) use pages::prefer_huge_pages;
pub use pairs::{PairPanels, PairSums, least_exponent, pair_tile_rows};
pub(crate) use panels::pack_rows;
pub use panels::{Panels, panel_columns, vector_columns};
pub(crate) use prefetch::{prefetch, prefetch_rows};
pub use product::{Threads, WriteMode, product};
pub use square::{Square, transpose_square};
pub use tiles::{Initial, TILE_ROWS, multiply_panels, tile_columns};
pub(crate) use transpose::{transpose, transpose_here};
pub use vector::{Gemm, Kernel, MAX_LANES, Mask, Real, Vector, splat};
pub use zipped::{Source, Target, Values, Zipped};
