//! Constants that only rustc can evaluate: the error is at the user's token.

use attn::{attention, dfdx::prelude::*};

const WIDTH: f32 = 16.0;
const SIGNED: i32 = 2;
const TEXT: &str = "0.1";
static STATIC: usize = 2;

fn at_run_time() -> usize {
    2
}

attention! {
    struct Float<heads = 2, d_model = WIDTH>;
    struct Signed<heads = SIGNED, d_model = 16>;
    struct Undefined<heads = UNDEFINED, d_model = 16>;
    struct UndefinedPath<heads = 2, d_model = nowhere::WIDTH>;
    struct Keyword<heads = self, d_model = 16>;
    struct Text<heads = 2, d_model = 16, dropout = TEXT>;
    struct RunTime<heads = at_run_time(), d_model = 16>;
    struct Window<heads = 2, d_model = 16, mask = sliding_window(SIGNED)>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Float Signed Undefined UndefinedPath Keyword Text RunTime Window);
}
