//! A variable that only rustc can tell from a constant.

use attn::attention;

fn main() {
    let window = 4;
    attention! { struct Window<heads = 2, d_model = 16, mask = sliding_window(window)>; }
    let _ = window;
}
