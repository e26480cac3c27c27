//! Simulated failures of the disk, and kills of the process.

use std::{
    cell::{Cell, RefCell},
    io,
    path::Path,
    process::{self, Command},
};

/// The effect that replaces an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The disk is full.
    Full,
    /// The process is killed: no later operation runs.
    Kill,
}

thread_local! {
    /// The number of operations before the fault.
    static NEXT: Cell<Option<(usize, Fault)>> = const { Cell::new(None) };
    static DONE: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Lets operation number `count` of this thread and all later ones fail.
pub(crate) fn after(count: usize, fault: Fault) {
    NEXT.set(Some((count, fault)));
}

/// Removes the fault of [`after`].
pub(crate) fn none() {
    NEXT.set(None);
}

/// The operations of this thread since the last call, such as `sync model.safetensors`.
pub(crate) fn operations() -> Vec<String> {
    DONE.take()
}

/// Called before each operation.
pub(crate) fn before(action: &str, path: &Path) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    DONE.with_borrow_mut(|done| done.push(format!("{action} {name}")));
    match NEXT.get() {
        None => Ok(()),
        Some((0, Fault::Full)) => Err(io::ErrorKind::StorageFull.into()),
        Some((0, Fault::Kill)) => kill(),
        Some((count, fault)) => {
            after(count - 1, fault);
            Ok(())
        }
    }
}

fn kill() -> ! {
    if cfg!(unix) {
        let id = process::id().to_string();
        let _ = Command::new("kill").args(["-9", &id]).status();
    }
    process::abort()
}
