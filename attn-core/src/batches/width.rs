//! The sizes of tokens in a file.

/// The numbers of a [`TokenFile`](super::TokenFile), little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenWidth {
    /// Two bytes, for up to 65536 tokens: nanoGPT's files, `np.uint16`.
    U16,
    /// Four bytes, `np.uint32`.
    U32,
}

impl TokenWidth {
    /// The number of bytes of a token.
    pub const fn bytes(self) -> usize {
        match self {
            Self::U16 => 2,
            Self::U32 => 4,
        }
    }

    /// The greatest token.
    pub const fn greatest(self) -> u32 {
        match self {
            Self::U16 => u16::MAX as u32,
            Self::U32 => u32::MAX,
        }
    }
}
