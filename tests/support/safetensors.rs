//! Reads safetensors files of other libraries, without our own reader.

use serde_json::Value;
use std::{collections::BTreeMap, fs, path::Path};

/// A tensor as it stands in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    pub dtype: String,
    pub dims: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl Stored {
    pub fn numbers(&self) -> Vec<f64> {
        let bytes = &self.bytes;
        match self.dtype.as_str() {
            "F32" => {
                let (numbers, _) = bytes.as_chunks::<4>();
                let numbers = numbers.iter().map(|&bytes| f32::from_le_bytes(bytes));
                numbers.map(f64::from).collect()
            }
            "F64" => {
                let (numbers, _) = bytes.as_chunks::<8>();
                let numbers = numbers.iter().map(|&bytes| f64::from_le_bytes(bytes));
                numbers.collect()
            }
            other => panic!("numbers are F32 or F64, found {other}"),
        }
    }
}

/// The tensors of a file.
pub fn read(path: &Path) -> BTreeMap<String, Stored> {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (length, rest) = bytes.split_first_chunk().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let header: BTreeMap<String, Value> = serde_json::from_slice(header).unwrap();
    let entries = header.into_iter();
    let entries = entries.filter(|(name, _)| name != "__metadata__");
    let tensors = entries.map(|(name, entry)| {
        let ends = sizes(&entry["data_offsets"]);
        let tensor = Stored {
            dtype: entry["dtype"].as_str().unwrap().to_owned(),
            dims: sizes(&entry["shape"]),
            bytes: data[ends[0]..ends[1]].to_vec(),
        };
        (name, tensor)
    });
    tensors.collect()
}

fn sizes(list: &Value) -> Vec<usize> {
    let sizes = list.as_array().unwrap().iter();
    sizes.map(|size| size.as_u64().unwrap() as usize).collect()
}
