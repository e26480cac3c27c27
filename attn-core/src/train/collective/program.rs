//! The program that a rank runs.

use std::{
    fs::File,
    hash::{DefaultHasher, Hasher},
    io::{self, Read},
    path::PathBuf,
    sync::OnceLock,
};

/// A hash of the file of this program, computed once; 0 if it cannot be read.
pub(in crate::train) fn program() -> u64 {
    static HASH: OnceLock<u64> = OnceLock::new();
    *HASH.get_or_init(|| hash().unwrap_or(0))
}

fn hash() -> io::Result<u64> {
    // On Linux this is the file that runs, although another one may have its name by now.
    let running = PathBuf::from("/proc/self/exe");
    let path = match running.exists() {
        true => running,
        false => std::env::current_exe()?,
    };
    let mut file = File::open(path)?;
    let mut bytes = vec![0; 1 << 20];
    let mut hasher = DefaultHasher::new();
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(hasher.finish()),
            read => hasher.write(&bytes[..read]),
        }
    }
}
