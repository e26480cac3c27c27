//! Numbers as bytes, in the order of the least significant one first.

use crate::{Element, kernel::bf16};

/// The numbers of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Numbers of the model's type.
    Full,
    Bf16,
}

impl Format {
    /// The bytes of so many numbers.
    pub(super) const fn bytes<E>(self, len: usize) -> usize {
        len * match self {
            Self::Full => size_of::<E>(),
            Self::Bf16 => size_of::<bf16::Bf16>(),
        }
    }
}

/// Appends numbers.
pub(super) fn write<E: Element>(numbers: &[E], to: &mut Vec<u8>) {
    E::write_bytes(numbers, to);
}

/// Appends numbers in bf16. What is missing of the ones before is added to them, and what is missing of these kept.
pub(super) fn write_rounded<E: Element>(numbers: &[E], errors: &mut [E], to: &mut Vec<u8>) {
    let start = to.len();
    to.resize(start + Format::Bf16.bytes::<E>(numbers.len()), 0);
    let (places, _) = to[start..].as_chunks_mut();
    bf16::round_with_error(numbers, errors, places);
}

/// The bytes of a message that nobody has read.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// The next bytes; none if there are fewer.
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn word(&mut self) -> Option<u64> {
        let word = self.take(size_of::<u64>())?.try_into().ok()?;
        Some(u64::from_le_bytes(word))
    }

    /// As many numbers as there is place for.
    pub(super) fn read<E: Element>(&mut self, to: &mut [E]) -> Option<()> {
        let bytes = self.take(size_of_val(to))?;
        E::read_bytes(bytes, to, |to, number| *to = number);
        Some(())
    }

    /// The same in this format, added to what is there.
    pub(super) fn add<E: Element>(&mut self, to: &mut [E], format: Format) -> Option<()> {
        let bytes = self.take(format.bytes::<E>(to.len()))?;
        match format {
            Format::Full => E::read_bytes(bytes, to, |to, number| *to += number),
            Format::Bf16 => bf16::add(bytes.as_chunks().0, to),
        }
        Some(())
    }

    pub(super) fn list<E: Element>(&mut self) -> Option<Vec<E>> {
        let len = usize::try_from(self.word()?).ok()?;
        if len.checked_mul(size_of::<E>())? > self.0.len() {
            return None;
        }
        let mut list = vec![E::zero(); len];
        self.read(&mut list)?;
        Some(list)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        let len = usize::try_from(self.word()?).ok()?;
        std::str::from_utf8(self.take(len)?).ok()
    }
}

pub(super) fn write_word(word: u64, to: &mut Vec<u8>) {
    to.extend_from_slice(&word.to_le_bytes());
}

pub(super) fn write_text(text: &str, to: &mut Vec<u8>) {
    write_word(text.len() as u64, to);
    to.extend_from_slice(text.as_bytes());
}

pub(super) fn write_list<E: Element>(list: &[E], to: &mut Vec<u8>) {
    write_word(list.len() as u64, to);
    write(list, to);
}
