//! Items of a body take documentation, and a `param` takes the attributes of a field.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct OfFunction<heads = 2, d_model = 16> {
        #[inline]
        fn score(score) { score }
    }
    struct Conditional<heads = 2, d_model = 16> {
        #[cfg(test)]
        fn mask() { true }
    }
    struct InExpression<heads = 2, d_model = 16> {
        fn score(score) {
            #[allow(unused)]
            let x = score;
            x
        }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; OfFunction Conditional InExpression);
}
