//! A declaration is an item, not an expression or a type.

use attn::attention;

type Alias = attention!(heads = 2, d_model = 16);

fn main() {
    let _layer = attention!(heads = 2, d_model = 16);
}
