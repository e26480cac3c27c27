//! A checkpoint of `transformers` and what it computed, beside what a network computes.

use attn::{
    Facts,
    checkpoint::layout::{WeightMap, save_mapped},
    dfdx::prelude::*,
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use support::safetensors::{self, Stored};
use zoo::Config;

/// An f32 has an error of 6e-8 of itself. Sums of up to 64 terms in another order, layer after layer, have errors of up to 1e-5 of the largest
/// number here. Another GELU would make 1e-3.
const RESULTS: f64 = 2e-5;
/// The same for the gradients of a tensor.
const GRADIENTS: f64 = 1e-4;
/// A gradient that is 0 by a formula, as that of the bias of keys, is what is left of numbers that cancel: some 16 rounding errors of 6e-8 of the largest
/// gradient of all.
const CANCELLED: f64 = 1e-6;

/// What `transformers` computed with the checkpoint of this name.
pub(crate) struct Run {
    name: &'static str,
    tensors: BTreeMap<String, Stored>,
}

impl Run {
    pub(crate) fn of(name: &'static str) -> Self {
        Self {
            name,
            tensors: safetensors::read(&file(&format!("{name}.run.safetensors"))),
        }
    }

    /// A network with the weights of the checkpoint, which is written back as it was.
    pub(crate) fn load<M>(&self, config: &Config, map: &WeightMap) -> M
    where
        M: BuildModule<Cpu, f32> + TensorCollection<f32, Cpu> + Facts,
    {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = file(&format!("{}.safetensors", self.name));
        fs::copy(&checkpoint, folder.path().join("model.safetensors")).unwrap();
        let json = file(&format!("{}.json", self.name));
        fs::copy(json, folder.path().join("config.json")).unwrap();
        let mut model = M::build(&Cpu::seed_from_u64(1));
        let loaded = zoo::load(&mut model, folder.path(), config, map);
        loaded.unwrap_or_else(|error| panic!("{}: {error:?}", self.name));
        let mut expected = safetensors::read(&checkpoint);
        // A constant of BART, which is 0.
        expected.remove("final_logits_bias");
        assert!(
            written(&model, map) == expected,
            "{} is written as it was",
            self.name
        );
        model
    }

    pub(crate) fn numbers(&self, name: &str) -> Vec<f64> {
        self.tensors[name].numbers()
    }

    pub(crate) fn floats(&self, name: &str) -> Vec<f32> {
        let numbers = self.numbers(name).into_iter();
        numbers.map(|x| x as f32).collect()
    }

    pub(crate) fn list(&self, name: &str) -> Vec<usize> {
        let ids = self.numbers(name).into_iter();
        ids.map(|id| id as usize).collect()
    }

    pub(crate) fn ids(&self, name: &str) -> Tensor<(usize, usize), usize, Cpu> {
        let dims = &self.tensors[name].dims;
        Cpu::default().tensor_from_vec(self.list(name), (dims[0], dims[1]))
    }

    pub(crate) fn marks(&self, name: &str) -> Tensor<(usize, usize), bool, Cpu> {
        let dims = &self.tensors[name].dims;
        let marks = self.list(name).into_iter().map(|mark| mark != 0);
        Cpu::default().tensor_from_vec(marks.collect(), (dims[0], dims[1]))
    }

    pub(crate) fn assert_same(&self, name: &str, found: &[f32]) {
        self.assert_near(name, found, RESULTS, 0.0);
    }

    /// The gradients of all parameters, in the layout of the file.
    pub(crate) fn assert_gradients<M>(
        &self,
        model: &M,
        map: &WeightMap,
        gradients: &Gradients<f32, Cpu>,
    ) where
        M: BuildModule<Cpu, f32> + TensorCollection<f32, Cpu>,
    {
        let mut copy = M::build(&Cpu::default());
        let visited = M::iter_tensors(&mut RecursiveWalker {
            m: (model, &mut copy),
            f: &mut Copy { gradients },
        });
        visited.unwrap();
        let found = written(&copy, map);
        let names = self.tensors.keys();
        let names = names.filter_map(|name| name.strip_prefix("gradient."));
        let names = names.filter(|name| *name != "final_logits_bias");
        assert!(found.keys().eq(names.clone()), "{:?}", found.keys());
        let names: Vec<_> = names.map(|name| format!("gradient.{name}")).collect();
        let largest = names.iter().flat_map(|name| self.numbers(name));
        let largest = largest.fold(0.0, |max: f64, x| max.max(x.abs()));
        for (name, found) in names.iter().zip(found.values()) {
            let found: Vec<f32> = found.numbers().iter().map(|&x| x as f32).collect();
            self.assert_near(name, &found, GRADIENTS, CANCELLED * largest);
        }
    }

    /// The difference is at most `relative` of the largest number, or at most `absolute`.
    fn assert_near(&self, name: &str, found: &[f32], relative: f64, absolute: f64) {
        let expected = self.numbers(name);
        assert_eq!(found.len(), expected.len(), "{}: {name}", self.name);
        let largest = expected.iter().fold(0.0, |max: f64, x| max.max(x.abs()));
        let differences = found.iter().zip(&expected);
        let differences = differences.map(|(&found, expected)| (f64::from(found) - expected).abs());
        // NaN is larger than any number.
        let worst = differences.max_by(f64::total_cmp).unwrap();
        assert!(
            worst <= (relative * largest).max(absolute),
            "{}: {name} differs by {worst:e}, and its largest number is {largest:e}",
            self.name
        );
    }
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

/// The file of a model.
fn written<M: TensorCollection<f32, Cpu>>(model: &M, map: &WeightMap) -> BTreeMap<String, Stored> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("written.safetensors");
    save_mapped(model, map, &path).unwrap();
    safetensors::read(&path)
}

/// Puts the gradients of a model into another one, in the places of its parameters.
struct Copy<'a> {
    gradients: &'a Gradients<f32, Cpu>,
}

impl TensorVisitor<f32, Cpu> for Copy<'_> {
    type Viewer = (ViewTensorRef, ViewTensorMut);
    type Err = CpuError;
    type E2 = f32;
    type D2 = Cpu;

    fn visit<S: Shape>(
        &mut self,
        _: TensorOptions<S, f32, Cpu>,
        (parameter, copy): (&Tensor<S, f32, Cpu>, &mut Tensor<S, f32, Cpu>),
    ) -> Result<Option<Tensor<S, f32, Cpu>>, CpuError> {
        copy.copy_from(&self.gradients.get(parameter).as_vec());
        Ok(None)
    }
}
