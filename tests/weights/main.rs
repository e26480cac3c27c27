//! Checkpoints of other libraries load, compute the same as there, and are written back to the last bit.
//!
//! The files are in `tests/weights/`. `generate.py` made them.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod fine_tuning;
mod formats;
mod hugging_face;
mod refused;
mod torch;

use attn::checkpoint::{
    Archive, LoadOptions,
    layout::{WeightMap, save_mapped},
};
use attn::dfdx::prelude::*;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

const BATCH: usize = 2;
const SEQ: usize = 7;
/// The lengths of the two sequences, where there is padding.
const LENS: [usize; BATCH] = [7, 4];

/// An f32 has an error of 6e-8 of itself. Sums of up to 64 terms in another order than PyTorch's, layer after layer, with norms
/// that amplify small numbers, have errors of about 6e-6 here. The tanh of GELU in place of erf would make 3e-4.
const TOLERANCE: f32 = 2e-5;

fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("weights");
    folder.join(format!("{name}.safetensors"))
}

/// The tensors of a safetensors file: the entry in the header, and the bytes. They are read without our own reader.
fn tensors(path: &Path) -> BTreeMap<String, (String, Vec<usize>, Vec<u8>)> {
    #[derive(serde::Deserialize)]
    struct Entry {
        dtype: String,
        shape: Vec<usize>,
        data_offsets: [usize; 2],
    }
    let bytes = fs::read(path).unwrap();
    let (length, rest) = bytes.split_at(8);
    let length = u64::from_le_bytes(length.try_into().unwrap());
    let (header, data) = rest.split_at(length as usize);
    let entries: BTreeMap<String, serde_json::Value> = serde_json::from_slice(header).unwrap();
    let entries = entries
        .into_iter()
        .filter(|(name, _)| name != "__metadata__");
    let entries = entries.map(|(name, entry)| {
        let entry: Entry = serde_json::from_value(entry).unwrap();
        let [start, end] = entry.data_offsets;
        (name, (entry.dtype, entry.shape, data[start..end].to_vec()))
    });
    entries.collect()
}

/// The inputs and outputs of one forward pass of another library.
struct Run(BTreeMap<String, (String, Vec<usize>, Vec<u8>)>);

impl Run {
    fn of(name: &str) -> Self {
        Self(tensors(&file(&format!("{name}.run"))))
    }

    fn numbers(&self, name: &str) -> Vec<f32> {
        let (_, _, bytes) = &self.0[name];
        let numbers = bytes.chunks_exact(4);
        numbers
            .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
            .collect()
    }

    fn floats<const N: usize, const M: usize>(
        &self,
        name: &str,
    ) -> Tensor<(usize, Const<N>, Const<M>), f32, Cpu> {
        Cpu::default().tensor_from_vec(self.numbers(name), (BATCH, Const, Const))
    }

    fn ids(&self, name: &str) -> Tensor<(usize, usize), usize, Cpu> {
        let ids = self.numbers(name).into_iter().map(|id| id as usize);
        Cpu::default().tensor_from_vec(ids.collect(), (BATCH, SEQ))
    }

    fn assert_same(&self, name: &str, found: &[f32]) {
        let expected = self.numbers(name);
        assert_eq!(found.len(), expected.len(), "{name}");
        for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
            let difference = (found - expected).abs();
            assert!(
                difference <= TOLERANCE * (1.0 + expected.abs()),
                "{name}, {at}: {found} instead of {expected}"
            );
        }
    }
}

fn lens() -> Tensor<(usize,), usize, Cpu> {
    Cpu::default().tensor_from_vec(LENS.to_vec(), (BATCH,))
}

fn load<L: BuildModule<Cpu, f32>>(name: &str, map: &WeightMap) -> L {
    let mut layer = L::build(&Cpu::seed_from_u64(1));
    let archive = Archive::open(file(name)).unwrap();
    let loaded = archive.load_mapped(&mut layer, map, LoadOptions::default());
    loaded.unwrap_or_else(|error| panic!("{error}"));
    layer
}

/// Loads a checkpoint, writes it again, and compares the files, except for tensors whose name ends with one of `left_out`. The
/// returned layer was read from the second file.
fn round_trip<L: BuildModule<Cpu, f32>>(name: &str, map: &WeightMap, left_out: &[&str]) -> L {
    let layer: L = load(name, map);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("written.safetensors");
    save_mapped(&layer, map, &path).unwrap();
    let mut expected = tensors(&file(name));
    expected.retain(|name, _| !left_out.iter().any(|end| name.ends_with(end)));
    let found = tensors(&path);
    assert!(found.keys().eq(expected.keys()), "{:?}", found.keys());
    for (tensor, expected) in expected {
        assert!(
            found[&tensor] == expected,
            "{tensor} of {name} is written as it was"
        );
    }
    let mut again = L::build(&Cpu::seed_from_u64(2));
    let archive = Archive::open(&path).unwrap();
    assert_eq!(archive.metadata()["format"], "pt");
    archive
        .load_mapped(&mut again, map, LoadOptions::default())
        .unwrap();
    again
}
