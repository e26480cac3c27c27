//! Ctrl-C: the first one stops training after the current step, the second one ends the process.

use anyhow::{Context, Result};
use std::{
    process,
    sync::atomic::{AtomicBool, Ordering},
};

/// The exit status of a process that Ctrl-C ended: 128 and the number of the signal.
pub(crate) const STATUS: u8 = 130;

static PRESSED: AtomicBool = AtomicBool::new(false);

/// Installs the handler of Ctrl-C.
pub(crate) fn listen() -> Result<()> {
    let handler = || {
        if PRESSED.swap(true, Ordering::Relaxed) {
            process::exit(STATUS.into());
        }
    };
    ctrlc::set_handler(handler).context("cannot listen to Ctrl-C")
}

/// Whether Ctrl-C was pressed.
pub(crate) fn pressed() -> bool {
    PRESSED.load(Ordering::Relaxed)
}
