//! Two items of one name.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Twice<heads = 2, d_model = 16>;
    struct Twice<heads = 4, d_model = 16>;
}

struct Taken;

attention! {
    struct Taken<heads = 2, d_model = 16>;
}

fn main() {}
