//! The header of a safetensors file: 8 bytes with its length, and JSON with the types and offsets of the tensors.
//!
//! The `safetensors` crate reads headers, too. But of two tensors with the same name it takes the last one, its errors do not name
//! the tensor, and offsets near the maximum of `usize` overflow.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    io::Read,
    marker::PhantomData,
    ops::Range,
};

use safetensors::tensor::TensorInfo;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{Problem, TensorType};

/// The number of bytes of the length field.
pub(super) const PREFIX: u64 = 8;
/// The key of the header that is not a tensor.
pub(super) const METADATA: &str = "__metadata__";
/// The number of bytes of a zip archive that are inspected. The name of a tensor in it is shorter.
const FIRST_NAME: u64 = 1024;
/// The maximum number of bytes of a header in this format.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// The parsed header of a file.
#[derive(Debug, Default)]
pub(super) struct Header {
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) tensors: BTreeMap<String, Located>,
    /// The number of bytes of all tensors.
    pub(super) data: usize,
}

/// A tensor, and the range of its bytes after the header.
#[derive(Clone, Debug)]
pub(super) struct Located {
    pub(super) described: TensorType,
    /// The number of its file, if there are several.
    pub(super) file: usize,
    pub(super) bytes: Range<usize>,
}

impl Header {
    /// Reads the header of a file with this many bytes, and returns the place behind it. No allocation is larger than the file.
    pub(super) fn read(file: &mut impl Read, bytes: u64) -> Result<(Self, u64), Problem> {
        let rest = bytes
            .checked_sub(PREFIX)
            .ok_or(Problem::TooShort { bytes })?;
        let mut length = [0; PREFIX as usize];
        file.read_exact(&mut length).map_err(Problem::io("read"))?;
        let found = u64::from_le_bytes(length);
        let limit = rest.min(MAX_HEADER_BYTES);
        if found > limit {
            let other = other_format(&length, file, rest)?;
            return Err(other.unwrap_or(Problem::HeaderLength { found, limit }));
        }
        let mut json = vec![0; found as usize];
        file.read_exact(&mut json).map_err(Problem::io("read"))?;
        let header = Self::parse(&json)?;
        let expected = header.data as u64;
        let rest = rest - found;
        if expected != rest {
            return Err(Problem::Length {
                expected,
                found: rest,
            });
        }
        Ok((header, PREFIX + found))
    }

    fn parse(json: &[u8]) -> Result<Self, Problem> {
        let text = std::str::from_utf8(json).map_err(invalid)?;
        let Pairs(entries) = serde_json::from_str::<Pairs<&RawValue>>(text).map_err(invalid)?;
        let mut entries = unique(entries)?;
        let metadata = match entries.remove(METADATA) {
            Some(json) => unique(parse_entry::<Pairs<String>>(METADATA, json)?.0)?,
            None => BTreeMap::new(),
        };
        let tensors = entries.into_iter().map(|(name, json)| {
            let info = parse_entry(&name, json)?;
            Ok((name, info))
        });
        let (tensors, data) = locate(tensors.collect::<Result<_, _>>()?)?;
        Ok(Self {
            metadata,
            tensors,
            data,
        })
    }
}

/// The format of a file that begins with these bytes, if it is a known one. Read as a length, they exceed that of any header.
fn other_format(
    begin: &[u8; PREFIX as usize],
    file: &mut impl Read,
    rest: u64,
) -> Result<Option<Problem>, Problem> {
    let format = |format, advice| Ok(Some(Problem::Format { format, advice }));
    if begin.starts_with(b"GGUF") {
        return format("a GGUF file", "take the checkpoint that it was made of");
    }
    if !begin.starts_with(b"PK\x03\x04") {
        return Ok(None);
    }
    // The name of the first file of the archive starts at byte 30.
    let mut more = vec![0; rest.min(FIRST_NAME) as usize];
    file.read_exact(&mut more).map_err(Problem::io("read"))?;
    let has = |name: &[u8]| more.windows(name.len()).any(|part| part == name);
    if has(b".npy") {
        format(
            "an npz archive of NumPy, which dfdx's `model.save` writes",
            "`model.load` of dfdx's `LoadFromNpz` reads it; `attn::checkpoint::save` writes what is read here",
        )
    } else if has(b".pkl") {
        format(
            "an archive of `torch.save`",
            "`safetensors.torch.save_file({k: v.clone().contiguous() for k, v in model.state_dict().items()}, path)` writes what is read here",
        )
    } else {
        format("a zip archive", "unpack it")
    }
}

fn invalid(error: impl ToString) -> Problem {
    let reason = error.to_string();
    Problem::Header { reason }
}

fn parse_entry<'a, T: Deserialize<'a>>(name: &str, json: &'a RawValue) -> Result<T, Problem> {
    serde_json::from_str(json.get()).map_err(|error| Problem::Entry {
        tensor: name.into(),
        reason: error.to_string(),
    })
}

/// Locates the tensors. Returns them with the end of the last one.
fn locate(
    mut infos: Vec<(String, TensorInfo)>,
) -> Result<(BTreeMap<String, Located>, usize), Problem> {
    infos.sort_by_key(|(_, info)| info.data_offsets);
    let mut tensors = BTreeMap::new();
    let mut end = 0;
    for (tensor, info) in infos {
        let (from, to) = info.data_offsets;
        if from != end || to < from {
            return Err(Problem::Offsets {
                tensor,
                expected: end,
                found: [from, to],
            });
        }
        let described = TensorType {
            dtype: info.dtype,
            shape: info.shape,
        };
        let expected = described.bytes();
        if expected != Some(to - from) {
            return Err(Problem::Size {
                tensor,
                described,
                expected,
                found: to - from,
            });
        }
        end = to;
        let bytes = from..to;
        let located = Located {
            described,
            file: 0,
            bytes,
        };
        tensors.insert(tensor, located);
    }
    Ok((tensors, end))
}

/// The entries of a JSON object, including those with a duplicate key.
struct Pairs<V>(Vec<(String, V)>);

fn unique<V>(pairs: Vec<(String, V)>) -> Result<BTreeMap<String, V>, Problem> {
    let mut map = BTreeMap::new();
    for (name, value) in pairs {
        match map.entry(name) {
            Entry::Vacant(entry) => entry.insert(value),
            Entry::Occupied(entry) => {
                let name = entry.key().clone();
                return Err(Problem::Duplicate { name });
            }
        };
    }
    Ok(map)
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Pairs<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ReadPairs(PhantomData))
    }
}

struct ReadPairs<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for ReadPairs<V> {
    type Value = Pairs<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<V>, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Pairs(pairs))
    }
}
