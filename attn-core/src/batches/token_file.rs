//! Tokens in a file.

use std::{
    fs::File,
    hash::{DefaultHasher, Hasher},
    io,
    path::{Path, PathBuf},
};

use super::{DataError, TokenWidth};
use crate::disk;

/// A text as tokens, which are read from any place.
pub trait Tokens {
    /// The number of tokens.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the tokens from the place `at` on.
    ///
    /// # Errors
    /// [`DataError::Io`] if a file cannot be read.
    ///
    /// # Panics
    /// If there are fewer tokens from there on.
    fn read(&self, at: usize, to: &mut [usize]) -> Result<(), DataError>;

    /// The file that they are in.
    fn path(&self) -> Option<&Path> {
        None
    }
}

impl Tokens for [usize] {
    fn len(&self) -> usize {
        <[usize]>::len(self)
    }

    fn read(&self, at: usize, to: &mut [usize]) -> Result<(), DataError> {
        to.copy_from_slice(&self[at..][..to.len()]);
        Ok(())
    }
}

impl Tokens for Vec<usize> {
    fn len(&self) -> usize {
        <[usize]>::len(self)
    }

    fn read(&self, at: usize, to: &mut [usize]) -> Result<(), DataError> {
        self.as_slice().read(at, to)
    }
}

impl<T: Tokens + ?Sized> Tokens for &T {
    fn len(&self) -> usize {
        T::len(self)
    }

    fn read(&self, at: usize, to: &mut [usize]) -> Result<(), DataError> {
        T::read(self, at, to)
    }

    fn path(&self) -> Option<&Path> {
        T::path(self)
    }
}

/// A file of tokens, which stays on the disk: numbers one after the other, without a header, as the `train.bin` of nanoGPT. Its memory does
/// not depend on the length of the file. PyTorch: `np.memmap("train.bin", dtype=np.uint16, mode="r")`.
///
/// ```
/// use attn::{batches::{RandomBlocks, TokenFile, TokenWidth}, dfdx::prelude::*};
///
/// let path = std::env::temp_dir().join("attn_token_file.bin");
/// TokenFile::write(&path, TokenWidth::U16, (0..1000).map(|i| i % 50))?;
///
/// let text = TokenFile::open(&path, TokenWidth::U16)?;
/// let batches = RandomBlocks::new(&text, (4, 16), 1337, &Cpu::default())?;
/// for batch in batches.take(2) {
///     assert_eq!(*batch?.targets.shape(), (4, 16));
/// }
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TokenFile {
    file: File,
    path: PathBuf,
    width: TokenWidth,
    len: usize,
}

/// The number of tokens that are read or written at a time.
const AT_ONCE: usize = 1 << 14;

impl TokenFile {
    /// Opens a file, whose numbers have this width.
    ///
    /// # Errors
    /// [`DataError::Io`], [`DataError::Empty`], and [`DataError::PartialToken`] if the length of the file is not a multiple of the width.
    pub fn open(path: impl Into<PathBuf>, width: TokenWidth) -> Result<Self, DataError> {
        let path = path.into();
        let failed = |error| DataError::Io {
            path: path.clone(),
            action: "open",
            error,
        };
        let file = File::open(&path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return Err(failed(io::Error::other("it is not a regular file")));
        }
        let bytes = found.len();
        let size = width.bytes() as u64;
        if bytes == 0 {
            return Err(DataError::Empty { path });
        }
        if bytes % size != 0 {
            return Err(DataError::PartialToken { path, bytes, width });
        }
        let Ok(len) = usize::try_from(bytes / size) else {
            return Err(DataError::TooLarge { path, bytes });
        };
        Ok(Self {
            file,
            path,
            width,
            len,
        })
    }

    /// Writes a file, and returns the number of its tokens. A file that was there is replaced when all tokens are written. PyTorch:
    /// `np.array(tokens, dtype=np.uint16).tofile(path)`.
    ///
    /// # Errors
    /// [`DataError::Io`], and [`DataError::Token`] if a token does not fit into the width: the old file is still there then.
    pub fn write(
        path: impl AsRef<Path>,
        width: TokenWidth,
        tokens: impl IntoIterator<Item = usize>,
    ) -> Result<usize, DataError> {
        let path = path.as_ref();
        let failed = |error| DataError::Io {
            path: path.into(),
            action: "write",
            error,
        };
        let mut count = 0;
        disk::replace(path, |file| {
            let mut bytes = Vec::with_capacity(AT_ONCE * width.bytes());
            for token in tokens {
                match width {
                    TokenWidth::U16 => u16::try_from(token).map(|n| bytes.extend(n.to_le_bytes())),
                    TokenWidth::U32 => u32::try_from(token).map(|n| bytes.extend(n.to_le_bytes())),
                }
                .map_err(|_| DataError::Token {
                    path: path.into(),
                    index: count,
                    token,
                    width,
                })?;
                count += 1;
                if bytes.len() >= AT_ONCE * width.bytes() {
                    file.write_all(&bytes).map_err(failed)?;
                    bytes.clear();
                }
            }
            file.write_all(&bytes).map_err(failed)
        })?;
        Ok(count)
    }

    /// The size of its numbers.
    pub fn width(&self) -> TokenWidth {
        self.width
    }

    /// A hash of the width and of all tokens, which takes about a second for each gigabyte and little memory: for
    /// [`Fit::agree`](crate::train::Fit::agree), by which ranks check before the first step that their machines have the same files. It is
    /// the same on all machines that run this program, and may be another one in the next version: it is not for files.
    ///
    /// ```
    /// use attn::{batches::{TokenFile, TokenWidth}, prelude::*, train::{AdamWConfig, FitConfig}};
    /// # model! {
    /// #     struct Net<d = 2>;
    /// #     fn forward(x: [batch, d]) -> [batch, 1] { linear::<1>(x) }
    /// #     fn loss(x: [batch, d]) -> [] { mean::<[batch, 1]>(forward(x)) }
    /// # }
    /// # let mut trainer = Cpu::default().build_module::<Net, f32>().trainer(AdamWConfig::default());
    /// # let path = std::env::temp_dir().join("attn_checksum.bin");
    /// # TokenFile::write(&path, TokenWidth::U16, 0..1000)?;
    /// let text = TokenFile::open(&path, TokenWidth::U16)?;
    /// let fit = trainer.fit(FitConfig::default()).agree("data", &text.checksum()?);
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`DataError::Io`] if the file cannot be read.
    #[doc(alias("hash", "fingerprint"))]
    pub fn checksum(&self) -> Result<u64, DataError> {
        let size = self.width.bytes();
        let mut hasher = DefaultHasher::new();
        hasher.write_usize(size);
        let mut bytes = vec![0; AT_ONCE * size];
        for at in (0..self.len).step_by(AT_ONCE) {
            let bytes = &mut bytes[..AT_ONCE.min(self.len - at) * size];
            self.read_bytes(bytes, at as u64 * size as u64)?;
            hasher.write(bytes);
        }
        Ok(hasher.finish())
    }

    fn read_bytes(&self, bytes: &mut [u8], offset: u64) -> Result<(), DataError> {
        disk::read_at(&self.file, bytes, offset).map_err(|error| DataError::Io {
            path: self.path.clone(),
            action: "read",
            error,
        })
    }
}

impl Tokens for TokenFile {
    fn len(&self) -> usize {
        self.len
    }

    fn read(&self, at: usize, to: &mut [usize]) -> Result<(), DataError> {
        let is_inside = at.checked_add(to.len()).is_some_and(|end| end <= self.len);
        let [count, len] = [to.len(), self.len];
        assert!(is_inside, "{count} tokens from {at} on, of a file of {len}");
        let size = self.width.bytes();
        let mut bytes = vec![0; AT_ONCE.min(to.len()) * size];
        let mut offset = at as u64 * size as u64;
        for part in to.chunks_mut(AT_ONCE) {
            let bytes = &mut bytes[..part.len() * size];
            self.read_bytes(bytes, offset)?;
            for (token, bytes) in part.iter_mut().zip(bytes.chunks_exact(size)) {
                let digits = bytes.iter().rev();
                *token = digits.fold(0, |number, byte| number << 8 | usize::from(*byte));
            }
            offset += bytes.len() as u64;
        }
        Ok(())
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }
}
