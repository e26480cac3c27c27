//! The bytes of a file, read at any place: a file larger than the memory can be checked and loaded.

use std::{
    fs::File,
    io::{self, Read},
};

use crate::disk;

/// How many bytes are in memory at once where a whole file is read. It is a multiple of the size of a number.
pub(super) const AT_ONCE: usize = 1 << 20;

/// Bytes that are read from any place: those of a file, or some in memory.
pub trait ReadAt {
    /// Reads as many bytes as `bytes` has, from this place on.
    ///
    /// # Errors
    /// An error of the system, or [`io::ErrorKind::UnexpectedEof`] if there are fewer.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        disk::read_at(self, bytes, offset)
    }
}

impl ReadAt for &[u8] {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let from = usize::try_from(offset).ok();
        let range = from.and_then(|from| Some(from..from.checked_add(bytes.len())?));
        let found = range.and_then(|range| self.get(range));
        bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// The bytes from the first on, one after the other.
pub(super) struct Forward<'a, R> {
    from: &'a R,
    /// How many bytes there are, and how many have been read.
    bytes: u64,
    read: u64,
}

impl<'a, R> Forward<'a, R> {
    pub(super) fn new(from: &'a R, bytes: u64) -> Self {
        Self {
            from,
            bytes,
            read: 0,
        }
    }
}

impl<R: ReadAt> Read for Forward<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(self.bytes - self.read).unwrap_or(usize::MAX);
        let count = to.len().min(rest);
        self.from.read_exact_at(&mut to[..count], self.read)?;
        self.read += count as u64;
        Ok(count)
    }
}

/// Calls `each` with the bytes of a range, some at a time.
pub(super) fn for_each_piece<R: ReadAt>(
    from: &R,
    mut offset: u64,
    bytes: usize,
    mut each: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut buffer = vec![0; AT_ONCE.min(bytes)];
    let mut rest = bytes;
    while rest > 0 {
        let piece = &mut buffer[..rest.min(AT_ONCE)];
        from.read_exact_at(piece, offset)?;
        each(piece);
        offset += piece.len() as u64;
        rest -= piece.len();
    }
    Ok(())
}
