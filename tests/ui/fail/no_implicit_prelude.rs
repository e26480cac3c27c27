//! A module without what Rust has everywhere.

mod bare {
    #![no_implicit_prelude]

    ::attn::attention! {
        pub struct Layer<heads = 2, d_model = 16>;
    }
}

mod whole {
    attn::attention! {
        pub struct Layer<heads = 2, d_model = 16>;
    }
}

fn main() {
    let _ = (bare::Layer::PARAMS, whole::Layer::PARAMS);
}
