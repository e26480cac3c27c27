//! The adapters of a model as a folder of [PEFT](https://huggingface.co/docs/peft), and merged into the weights.
//!
//! ```text
//! adapter/
//!   adapter_model.safetensors   `base_model.model.blocks.0.attention.q_proj.lora_A.weight`, and so on
//!   adapter_config.json         `r`, `lora_alpha`, `target_modules`, ..
//! ```
//!
//! [`save`] writes such a folder, which `PeftModel.from_pretrained(network, folder)` reads, and [`load`] reads one of PEFT. Both take the
//! [map](super::layout) of the network without adapters: [`WeightMap::identity`] where the names are the same. Layers that are
//! [trained whole](crate::Lora::save) are in the files, too, under the names that PEFT gives its `modules_to_save`.
//!
//! ```
//! use attn::{
//!     checkpoint::{LoadOptions, layout::WeightMap, lora},
//!     prelude::*,
//! };
//!
//! model! {
//!     struct Tuned<d = 4, lora(rank = 2, alpha = 4, on = ["linear"])>;
//!     fn forward(x: [batch, d]) -> [batch, d] { linear::<d>(x) }
//! }
//! model! {
//!     struct Base<d = 4>;
//!     fn forward(x: [batch, d]) -> [batch, d] { linear::<d>(x) }
//! }
//!
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path().join("adapter");
//! let dev = Cpu::default();
//! let tuned = dev.build_module::<Tuned, f32>(); // and trained
//! lora::save(&tuned, &WeightMap::identity(), &folder)?;
//!
//! let mut other = tuned.clone();
//! lora::load(&mut other, &WeightMap::identity(), &folder, LoadOptions::default())?;
//!
//! // The same network without adapters.
//! let mut merged = dev.build_module::<Base, f32>();
//! lora::merge(&other, &mut merged)?;
//! # let x: Tensor<Rank2<3, 4>, f32, _> = dev.sample_normal();
//! # assert_eq!(merged.forward(x.clone()).array(), tuned.forward(x).array());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use dfdx::{nn::TensorCollection, tensor_ops::Device};
use serde_json::{Map, Value, json};

use super::{
    Archive, CheckpointError, LoadOptions, Problem,
    layout::{LoadReport, PEFT_PREFIX, WeightMap, save_mapped},
    number::{decode, encode},
    tensors,
    write::{Metadata, Stored, write},
};
use crate::{Adapted, Element, Lora, disk, lora::adapted_layer};

const WEIGHTS: &str = "adapter_model.safetensors";
const CONFIG: &str = "adapter_config.json";

/// Writes the adapters of a model alone, as PEFT does: see the [module](self). `map` is that of the network without adapters. Each file
/// replaces an existing one atomically.
///
/// PEFT: `model.save_pretrained(folder)`.
///
/// # Errors
/// [`CheckpointError`] with [`Problem::Map`] if the map has no names for adapters; or if the operating system returns an error.
#[doc(alias("save_pretrained", "get_peft_model_state_dict"))]
pub fn save<M, E, D>(
    model: &M,
    map: &WeightMap,
    folder: impl AsRef<Path>,
) -> Result<(), CheckpointError>
where
    M: TensorCollection<E, D> + Adapted,
    E: Element,
    D: Device<E>,
{
    let folder = folder.as_ref();
    disk::create_folder(folder)?;
    let weights = folder.join(WEIGHTS);
    save_mapped(model, &map.clone().adapters_and(M::LORA.save), &weights)?;
    // The names are those of the file, which the map knows.
    let archive = Archive::open(&weights)?;
    let names = archive.tensors();
    let names = names.filter_map(|(name, _)| name.strip_prefix(PEFT_PREFIX));
    let mut layers = [BTreeSet::new(), BTreeSet::new()];
    for name in names {
        match adapted_layer(name) {
            Some(layer) => layers[0].insert(layer.to_owned()),
            None => layers[1].insert(name.rsplit_once('.').unwrap_or((name, "")).0.to_owned()),
        };
    }
    let config = config(&M::LORA, layers);
    let path = folder.join(CONFIG);
    disk::replace(&path, |file| {
        let written = serde_json::to_writer_pretty(file, &config);
        written.map_err(|error| {
            let reason = error.to_string();
            Problem::Json { reason }.at(&path)
        })
    })
}

/// The fields of PEFT's `LoraConfig` that a declaration determines.
fn config(lora: &Lora, [targets, whole]: [BTreeSet<String>; 2]) -> Value {
    let whole = (!whole.is_empty()).then_some(whole);
    json!({
        "peft_type": "LORA",
        "task_type": null,
        "base_model_name_or_path": null,
        "inference_mode": true,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "use_rslora": lora.rslora,
        "target_modules": targets,
        "modules_to_save": whole,
        "bias": "none",
        "fan_in_fan_out": false,
    })
}

/// Reads the adapters of a model from a folder of PEFT: see the [module](self). `map` is that of the network without adapters. The other
/// weights do not change.
///
/// PEFT: `PeftModel.from_pretrained(model, folder)`.
///
/// # Errors
/// The errors of [`Archive::load_mapped`], and [`Problem::Adapters`] if the config has another rank or scale, or what this crate does
/// not compute, such as DoRA. The error lists all of these, and the tensors that differ. The model does not change then.
#[doc(alias("from_pretrained", "PeftModel", "set_peft_model_state_dict"))]
pub fn load<M, E, D>(
    model: &mut M,
    map: &WeightMap,
    folder: impl AsRef<Path>,
    options: LoadOptions,
) -> Result<LoadReport, CheckpointError>
where
    M: TensorCollection<E, D> + Adapted,
    E: Element,
    D: Device<E>,
{
    let folder = folder.as_ref();
    let path = folder.join(CONFIG);
    let config = read_config(&path).map_err(|problem| problem.at(&path))?;
    let mut problems = differences(&config, &M::LORA);
    let map = map.clone().adapters_and(M::LORA.save);
    let archive = Archive::open(folder.join(WEIGHTS));
    if problems.is_empty() {
        return archive?.load_mapped(model, &map, options);
    }
    // The error has the differences of the tensors, too.
    let checked = archive.and_then(|archive| archive.check_mapped(model, &map, options));
    problems.extend(checked.err().map(|error| error.problem.to_string()));
    Err(Problem::Adapters(problems).at(&path))
}

fn read_config(path: &Path) -> Result<Map<String, Value>, Problem> {
    let text = fs::read(path).map_err(Problem::io("read"))?;
    serde_json::from_slice(&text).map_err(|error| Problem::Json {
        reason: error.to_string(),
    })
}

/// The differences of a config from the declaration.
fn differences(config: &Map<String, Value>, lora: &Lora) -> Vec<String> {
    let mut problems = Vec::new();
    let mut differs = |key: &str, is_same: bool, ours: String| {
        if !is_same {
            let found = config.get(key).unwrap_or(&Value::Null);
            problems.push(format!("`{key}` is {found}, {ours}"));
        }
    };
    let of = |key: &str| config.get(key).unwrap_or(&Value::Null);
    let number = |key: &str| of(key).as_f64();
    let is_lora = of("peft_type") == "LORA";
    differs("peft_type", is_lora, "and must be \"LORA\"".to_owned());
    let rank = lora.rank as f64;
    let declared = |key, value| format!("and the model declares `{key} = {value}`");
    differs("r", number("r") == Some(rank), declared("rank", rank));
    let is_same = number("lora_alpha") == Some(lora.alpha);
    differs("lora_alpha", is_same, declared("alpha", lora.alpha));
    let rslora = of("use_rslora").as_bool().unwrap_or(false);
    let is_same = rslora == lora.rslora;
    let text = format!("and the model declares `rslora = {}`", lora.rslora);
    differs("use_rslora", is_same, text);
    // These change what is computed, and have no counterpart.
    for key in ["use_dora", "rank_pattern", "alpha_pattern", "lora_bias"] {
        let is_empty = match of(key) {
            Value::Null | Value::Bool(false) => true,
            Value::Object(map) => map.is_empty(),
            Value::Array(list) => list.is_empty(),
            _ => false,
        };
        differs(key, is_empty, "which is not supported".to_owned());
    }
    let bias = matches!(of("bias"), Value::Null) || of("bias") == "none";
    differs("bias", bias, "and must be \"none\"".to_owned());
    problems
}

/// Adds the adapters of a model to the weights, `W + scale · B A`, and copies all weights into the same network without adapters.
///
/// The sums are those of `f64`, rounded once. `save(&merged, path)` makes a checkpoint of them.
///
/// PEFT: `model.merge_and_unload()`.
///
/// # Errors
/// [`Problem::Mismatch`] if `merged` has other tensors than the model has without adapters. `merged` does not change then.
#[doc(alias("merge_and_unload", "merge_adapter"))]
pub fn merge<M, N, E, D>(model: &M, merged: &mut N) -> Result<(), CheckpointError>
where
    M: TensorCollection<E, D> + Adapted,
    N: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
{
    let name = Path::new("the merged weights");
    let mut bytes = Vec::new();
    let tensors = merged_tensors::<M, E, D>(model);
    write(&mut bytes, Metadata::new(), &tensors).map_err(|problem| problem.at(name))?;
    let options = LoadOptions {
        allow_nan: true,
        ..LoadOptions::default()
    };
    Archive::from_bytes(name, &bytes)?.load(merged, options)
}

/// The tensors of a model but for its adapters, which are in the others.
fn merged_tensors<M, E, D>(model: &M) -> Vec<Stored>
where
    M: TensorCollection<E, D> + Adapted,
    E: Element,
    D: Device<E>,
{
    let mut base = Vec::new();
    let mut adapters: BTreeMap<String, Vec<Stored>> = BTreeMap::new();
    for tensor in tensors::stored(model) {
        match adapted_layer(&tensor.name) {
            Some(layer) => adapters.entry(layer.to_owned()).or_default().push(tensor),
            None => base.push(tensor),
        }
    }
    for tensor in &mut base {
        let layer = tensor.name.strip_suffix(".weight");
        let adapters = layer.and_then(|layer| adapters.get(layer));
        if let Some([a, b]) = adapters.map(Vec::as_slice) {
            tensor.bytes = sum::<E>(tensor, [a, b], M::LORA.scale());
        }
    }
    base
}

/// `W + scale · B A`, for `W` of `[out, in]`, `A` of `[rank, in]` and `B` of `[out, rank]`.
fn sum<E: Element>(weight: &Stored, adapters: [&Stored; 2], scale: f64) -> Vec<u8> {
    let numbers = |of: &Stored| decode(of.described.dtype, &of.bytes).collect::<Vec<f64>>();
    let [a, b] = adapters.map(numbers);
    let mut sums = numbers(weight);
    let [output, input] = *weight.described.shape else {
        return weight.bytes.clone();
    };
    let rank = a.len() / input.max(1);
    let mut products = vec![0.0; input];
    for row in 0..output {
        products.fill(0.0);
        for (k, b) in b[row * rank..][..rank].iter().enumerate() {
            let a = a[k * input..][..input].iter();
            products
                .iter_mut()
                .zip(a)
                .for_each(|(sum, a)| *sum += b * a);
        }
        let sums = sums[row * input..][..input].iter_mut();
        sums.zip(&products)
            .for_each(|(sum, product)| *sum += scale * product);
    }
    let rounded: Vec<E> = sums.into_iter().map(E::of).collect();
    encode(&rounded)
}
