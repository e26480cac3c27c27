//! A declaration stands where items do, not in place of an expression or of a type.

use attn::attention;

type Alias = attention!(heads = 2, d_model = 16);

fn main() {
    let _layer = attention!(heads = 2, d_model = 16);
}
