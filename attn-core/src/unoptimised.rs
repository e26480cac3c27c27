//! What a program says whose kernels were compiled without optimisation.

use std::{io::Write, sync::Once};

/// Printed on stderr when the first derivative is recorded.
const NOTICE: &str = "\
attn: kernels without optimisation run some 90 times slower. Optimise what your program depends on, in its Cargo.toml:

    [profile.dev.package.\"*\"]
    opt-level = 3
";

/// Says so once, if it is so.
pub(crate) fn warn_once() {
    static SAID: Once = Once::new();
    if cfg!(unoptimised) {
        // A closed stderr is no reason to stop.
        SAID.call_once(|| drop(std::io::stderr().write_all(NOTICE.as_bytes())));
    }
}
