//! Networks that people know, declared with [`attn`]: see the README beside this file.
//!
//! Each module has the network as a block, with its sizes as keys, and a model with the sizes of a public checkpoint. It says what the
//! `config.json` of a checkpoint is compared with, and which tensor of the file is which parameter. [`load`] reads a folder:
//!
//! ```no_run
//! use attn::prelude::*;
//! use zoo::llama::{self, Llama};
//!
//! let mut model = Cpu::default().build_module::<Llama, f32>();
//! zoo::load(&mut model, "Llama-3.2-1B".as_ref(), &llama::config(), &llama::weights())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;

pub mod bart;
pub mod bert;
pub mod clip;
pub mod deepseek_v2;
pub mod dinov2;
pub mod distilbert;
pub mod families;
pub mod gemma2;
pub mod gemma3;
pub mod gpt2;
pub mod gpt_neox;
pub mod gpt_oss;
pub mod llama;
pub mod mistral;
pub mod mixtral;
pub mod modernbert;
pub mod opt;
pub mod phi3;
pub mod phi3_long;
pub mod qwen2;
pub mod qwen3;
pub mod qwen3_moe;
pub mod roberta;
pub mod smollm;
pub mod t5;
pub mod vit;
pub mod whisper;

use anyhow::{Result, bail};
use attn::{
    Facts,
    checkpoint::{
        Archive, LoadOptions,
        layout::{LoadReport, WeightMap},
    },
    dfdx::prelude::*,
};
use std::path::Path;

pub use config::Config;

/// Reads a folder of Hugging Face: `config.json`, which has to say what `M` was declared with, and `model.safetensors`.
///
/// Numbers of other types, such as bf16, are converted.
///
/// # Errors
/// All differences of the config and all missing files in one error, or all differences of the weights. No weight has changed then.
pub fn load<M: Facts + TensorCollection<f32, Cpu>>(
    model: &mut M,
    folder: &Path,
    config: &Config,
    map: &WeightMap,
) -> Result<LoadReport> {
    let archive = match (config.check_file::<M>(folder), Archive::open(folder)) {
        (Ok(()), archive) => archive?,
        (Err(config), Ok(_)) => return Err(config),
        (Err(config), Err(files)) => bail!("{config:#}\n{files}"),
    };
    let options = LoadOptions {
        convert: true,
        ..LoadOptions::default()
    };
    Ok(archive.load_mapped(model, map, options)?)
}
