//! The lists of `longrope` have a number for each pair.

use attn::attention;

const FACTOR: f64 = 1.5;
const FACTORS: [f64; 4] = [1.0, 2.0, 3.0, 4.0];
const NEGATIVE: &[f64] = &[1.0, -2.0, 3.0, 4.0];

attention! {
    struct Pairs<heads = 1, d_model = 8, position = rope(scaling = longrope([1.0, 2.0, 3.0], FACTORS, 4, 8))>;
    struct PairsConst<heads = 1, d_model = 8, position = rope(dims = 6, scaling = longrope([1.0, 2.0, 3.0], &FACTORS, 4, 8))>;
    struct Zero<heads = 1, d_model = 8, position = rope(scaling = longrope([1.0, 0.0, 3.0, 1.0], FACTORS, 4, 8))>;
    struct NoList<heads = 1, d_model = 8, position = rope(scaling = longrope(2.0, FACTORS, 4, 8))>;
    struct NoArray<heads = 1, d_model = 8, position = rope(scaling = longrope(FACTOR, FACTORS, 4, 8))>;
    struct Negative<heads = 1, d_model = 8, position = rope(scaling = longrope(NEGATIVE, FACTORS, 4, 8))>;
    struct Lacking<heads = 1, d_model = 8, position = rope(scaling = longrope(FACTORS))>;
}

fn main() {}
