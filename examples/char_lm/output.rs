//! Standard output, whose reader may go while training goes on, as `head` does in `char_lm | head`.

use std::io::{ErrorKind, Result, Write, stdout};

/// Standard output. What its reader no longer takes is dropped.
pub(crate) struct Output;

impl Write for Output {
    fn write(&mut self, text: &[u8]) -> Result<usize> {
        dropped(stdout().write(text), text.len())
    }

    fn flush(&mut self) -> Result<()> {
        dropped(stdout().flush(), ())
    }
}

/// `otherwise` if there is no reader.
fn dropped<T>(result: Result<T>, otherwise: T) -> Result<T> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(otherwise),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Error;

    #[test]
    fn a_reader_that_has_gone_is_no_error_and_a_full_disk_is() {
        let failed = |kind| dropped(Err(Error::from(kind)), 3).ok();
        assert_eq!(failed(ErrorKind::BrokenPipe), Some(3));
        assert_eq!(failed(ErrorKind::StorageFull), None);
        assert_eq!(dropped(Ok(2), 3).ok(), Some(2));
    }
}
