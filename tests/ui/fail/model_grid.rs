//! A sequence of a model whose length is known fills its grid.

use attn::{dfdx::prelude::*, model};

const ROWS: usize = 3;

model! {
    struct Known<d_model = 16>;
    fn forward(x: [batch, 65, d_model]) -> [batch, 65, d_model] {
        attention::<heads = 2, grid = [8, 8], mask = neighborhood(3)>(x)
    }
}

model! {
    struct Evaluated<d_model = 16>;
    fn forward(x: [batch, 64, d_model]) -> [batch, 64, d_model] {
        attention::<heads = 2, grid = [ROWS, 8], mask = neighborhood(3)>(x)
    }
}

fn main() {
    let _ = AutoDevice::default().build_module::<Known, f32>();
}
