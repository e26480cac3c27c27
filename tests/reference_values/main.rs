//! Layers compute what those of PyTorch and Hugging Face compute. `generate.py` made the values.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod feed_forwards;
mod norms;
mod rope;

use attn::dfdx::prelude::*;
use std::{collections::BTreeMap, fs, path::Path};

/// Numbers of about 1 in f32, summed in another order, and angles that `transformers` computes in f32.
const TOLERANCE: f32 = 1e-5;

/// The tensors of the cases, by `case.name`: shape and numbers.
struct Values(BTreeMap<String, (Vec<usize>, Vec<f32>)>);

impl Values {
    fn read() -> Self {
        #[derive(serde::Deserialize)]
        struct Entry {
            shape: Vec<usize>,
            data_offsets: [usize; 2],
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("reference_values");
        let bytes = fs::read(folder.join("values.safetensors")).unwrap();
        let (length, rest) = bytes.split_at(8);
        let length = u64::from_le_bytes(length.try_into().unwrap());
        let (header, data) = rest.split_at(length as usize);
        let entries: BTreeMap<String, Entry> = serde_json::from_slice(header).unwrap();
        let entries = entries.into_iter().map(|(name, entry)| {
            let [start, end] = entry.data_offsets;
            let numbers = data[start..end].chunks_exact(4);
            let numbers = numbers.map(|number| f32::from_le_bytes(number.try_into().unwrap()));
            (name, (entry.shape, numbers.collect()))
        });
        Self(entries.collect())
    }

    fn numbers(&self, name: &str) -> &[f32] {
        &self.0.get(name).unwrap_or_else(|| panic!("no {name}")).1
    }

    fn tensor<S>(&self, name: &str) -> Tensor<S, f32, Cpu>
    where
        S: Shape + ConstShape,
    {
        let tensor = Cpu::default().tensor_from_vec(self.numbers(name).to_vec(), S::default());
        assert_eq!(dims(&S::default()), self.0[name].0, "{name}");
        tensor
    }

    #[track_caller]
    fn assert_close<S: Shape>(&self, name: &str, found: &Tensor<S, f32, Cpu>) {
        let expected = self.numbers(name);
        let found = found.as_vec();
        assert_eq!(found.len(), expected.len(), "{name}");
        let largest = expected
            .iter()
            .fold(1f32, |largest, x| largest.max(x.abs()));
        for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
            let error = (found - expected).abs();
            assert!(
                error <= TOLERANCE * largest,
                "{name}[{at}]: {found}, not {expected}"
            );
        }
    }
}

fn dims(shape: &impl Shape) -> Vec<usize> {
    shape.concrete().into_iter().collect()
}
