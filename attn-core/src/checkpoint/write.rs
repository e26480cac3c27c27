//! Writing a safetensors file.

use std::{collections::BTreeMap, io::Write};

use safetensors::tensor::TensorInfo;
use serde::Serialize;

use super::{
    Problem, TensorType,
    header::{METADATA, PREFIX},
};

/// The key of the checksum in the metadata.
pub(super) const CHECKSUM: &str = "crc32";

/// The key of the rank in the metadata of a shard.
pub(super) const RANK: &str = "rank";

pub(super) type Metadata = BTreeMap<String, String>;

/// A tensor to write.
pub(super) struct Stored {
    pub(super) name: String,
    pub(super) described: TensorType,
    pub(super) bytes: Vec<u8>,
}

/// An entry of the header.
#[derive(Serialize)]
#[serde(untagged)]
enum Entry<'a> {
    Metadata(&'a Metadata),
    Tensor(TensorInfo),
}

/// Writes the tensors in this order.
pub(super) fn write(
    file: &mut dyn Write,
    mut metadata: Metadata,
    tensors: &[Stored],
) -> Result<(), Problem> {
    let mut checksum = Checksum::new(&metadata);
    for tensor in tensors {
        checksum.update(&tensor.bytes);
    }
    metadata.insert(CHECKSUM.into(), checksum.finish());
    let header = header(&metadata, tensors)?;
    let length = (header.len() as u64).to_le_bytes();
    let tensors = tensors.iter().map(|tensor| &tensor.bytes[..]);
    for bytes in [&length[..], &header].into_iter().chain(tensors) {
        file.write_all(bytes).map_err(Problem::io("write"))?;
    }
    Ok(())
}

/// The header as JSON, padded with spaces so that the numbers start at a multiple of 8.
fn header(metadata: &Metadata, tensors: &[Stored]) -> Result<Vec<u8>, Problem> {
    let mut entries = BTreeMap::from([(METADATA, Entry::Metadata(metadata))]);
    let mut end = 0;
    for tensor in tensors {
        let start = end;
        end += tensor.bytes.len();
        let info = TensorInfo {
            dtype: tensor.described.dtype,
            shape: tensor.described.shape.clone(),
            data_offsets: (start, end),
        };
        let before = entries.insert(&tensor.name, Entry::Tensor(info));
        if before.is_some() {
            let name = tensor.name.clone();
            return Err(Problem::Duplicate { name });
        }
    }
    let json = serde_json::to_vec(&entries);
    let mut json = json.map_err(|error| Problem::Header {
        reason: error.to_string(),
    })?;
    json.resize(json.len().next_multiple_of(PREFIX as usize), b' ');
    Ok(json)
}

/// The CRC-32 of the other metadata and of the bytes of the tensors. It need not cover the types and shapes in the header: these are
/// compared with the model.
pub(super) struct Checksum(crc32fast::Hasher);

impl Checksum {
    pub(super) fn new(metadata: &Metadata) -> Self {
        let mut crc = crc32fast::Hasher::new();
        for (key, value) in metadata.iter().filter(|(key, _)| *key != CHECKSUM) {
            // Zeros separate them.
            for text in [key, value] {
                crc.update(text.as_bytes());
                crc.update(&[0]);
            }
        }
        Self(crc)
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn finish(self) -> String {
        format!("{:08x}", self.0.finalize())
    }
}
