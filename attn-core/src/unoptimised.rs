//! The notice of a program whose kernels were compiled without optimisation.

use std::{io::Write, sync::Once};

/// Printed on stderr when the first derivative is recorded.
const NOTICE: &str = "\
attn: kernels without optimisation run some 90 times slower. Optimise what your program depends on, in its Cargo.toml:

    [profile.dev.package.\"*\"]
    opt-level = 3
";

/// Prints the notice once, in a build without optimisation.
pub(crate) fn warn_once() {
    static SAID: Once = Once::new();
    if cfg!(unoptimised) {
        // A closed stderr must not stop the program.
        SAID.call_once(|| drop(std::io::stderr().write_all(NOTICE.as_bytes())));
    }
}
