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
mod lora;
mod per_head;
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
use support::safetensors::{self, Stored};

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

/// The inputs and outputs of one forward pass of another library.
struct Run(BTreeMap<String, Stored>);

impl Run {
    fn of(name: &str) -> Self {
        Self(safetensors::read(&file(&format!("{name}.run"))))
    }

    fn numbers(&self, name: &str) -> Vec<f32> {
        let numbers = self.0[name].numbers().into_iter();
        numbers.map(|number| number as f32).collect()
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
    let mut expected = safetensors::read(&file(name));
    expected.retain(|name, _| !left_out.iter().any(|end| name.ends_with(end)));
    let found = safetensors::read(&path);
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
