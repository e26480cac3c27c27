//! Whatever the bytes of a file are, it is loaded, or there is an error that names it: no panic, and no memory for more
//! than there is.
//!
//! `cargo +nightly fuzz run checkpoint -- -rss_limit_mb=256`, or, without cargo-fuzz and coverage, `RUSTC_BOOTSTRAP=1 cargo
//! run --release` in this folder.
#![no_main]

use attn_core::checkpoint::{Archive, CheckpointError, LoadOptions};
use attn_core::train::AdamWConfig;
use dfdx::prelude::*;
use libfuzzer_sys::fuzz_target;

type Model = (Linear<3, 2>, LayerNorm1D<2>);

fuzz_target!(|bytes: &[u8]| {
    for convert in [false, true] {
        for allow_nan in [false, true] {
            let options = LoadOptions { convert, allow_nan };
            if let Err(error) = load(bytes, options) {
                assert!(error.to_string().starts_with("bytes: "));
            }
        }
    }
});

fn load(bytes: &[u8], options: LoadOptions) -> Result<(), CheckpointError> {
    let mut model = Cpu::default().build_module::<Model, f32>();
    Archive::from_bytes("bytes", bytes)?.load(&mut model, options)?;
    Archive::from_bytes("bytes", bytes)?.load_optimizer::<_, _, _, AdamWConfig>(&model, options)?;
    Ok(())
}
