//! A call declares something.

use attn::attention;

attention! {}

fn main() {}
