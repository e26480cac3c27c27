//! Constants of the header that are no sizes, and choices while compiling.

use attn::model;

const LAYERS: usize = 2;

model! {
    struct Unused<d = 8, dropout = 0.1, bias = true>;
    fn forward(x: [batch, d]) -> [batch, d] {
        gelu(x)
    }
}

model! {
    struct Kinds<d = 8, scale = 0.5, bias = true>;
    fn forward(x: [batch, scale]) -> [batch, d] {
        let y = linear::<scale>(x);
        let y = bias * y;
        let y = linear::<d, bias = scale>(y);
        dropout::<bias>(y)
    }
}

model! {
    struct Conditions<d = 8, scale = 0.5>;
    fn forward(x: [batch, d]) -> [batch, d] {
        let mut y = x;
        if { LAYERS } > 2 {
            y = gelu(y);
        }
        if x < 0 {
            y = gelu(y);
        }
        if scale {
            y = gelu(y);
        }
        if pre_norm {
            y = layer_norm(y);
        }
        if x { y } else { x }
    }
}

model! {
    struct Branches<d = 8, bias = true>;
    fn forward(x: [batch, d]) -> [batch, d] {
        if bias {
            let z = gelu(x);
        }
        if bias { let z = gelu(x); z } else { x }
        z
    }
}

fn main() {}
