//! Checkpoints: weights and training state on the disk. They stay complete if the process is killed at any time.
//!
//! [`Checkpoints`] is the folder of a run. It stores the state of training by step. A new process that loads it continues with the
//! same bits as a process that was never interrupted:
//!
//! ```
//! use attn::{
//!     checkpoint::{Checkpoints, Contents, LoadOptions},
//!     nn::Linear,
//!     train::AdamW,
//! };
//! use attn::dfdx::prelude::{Linear as _, *};
//!
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path().join("run");
//! let checkpoints = Checkpoints::new(&folder).keep_last(3);
//! let _run = checkpoints.lock_run()?; // no other run gets the folder meanwhile
//! let dev = Cpu::default();
//! let mut model = dev.build_module::<Linear<4, 2>, f32>();
//! let mut optimizer = AdamW::new(Default::default());
//! let mut seed = 7_u64;
//!
//! if let Some(checkpoint) = checkpoints.latest()? {
//!     checkpoint.load_model(&mut model, LoadOptions::default())?;
//!     optimizer.state = checkpoint.load_optimizer(&model, LoadOptions::default())?;
//!     seed = checkpoint.json("trainer_state.json")?;
//! }
//! // .. some steps, and the loss on held-out data ..
//! # optimizer.state.step = 0;
//! # let step = 500;
//! let loss = 1.25;
//! let contents = Contents::new()
//!     .model(&model)
//!     .optimizer(&optimizer.state)
//!     .json("config.json", &("Linear", 4, 2))
//!     .json("trainer_state.json", &seed);
//! checkpoints.save(step, &contents, Some(loss))?;
//! # let saved = checkpoints.latest()?.ok_or("there is a checkpoint")?;
//! # assert_eq!((saved.step(), saved.json::<u64>("trainer_state.json")?), (500, 7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`save`] and [`load`] are for weights alone; [`save_optimizer`] and [`load_optimizer`] for the state of the optimizer;
//! [`Archive`] lists the contents of a file.
//!
//! # The folder
//!
//! ```text
//! run/
//!   step-00000400/              removed when `keep_last` says so
//!   step-00000500/
//!     model.safetensors         weights, by the names that dfdx gives: `0.weight`
//!     optimizer.safetensors     `0.weight.mean` and `0.weight.square`; the count of steps is in the metadata
//!     config.json               whatever the program saves as JSON: how the model was made,
//!     trainer_state.json        where the data and the random numbers go on,
//!     tokenizer.json            what tokens mean
//!   latest                      `step-00000500`
//!   best                        `step-00000400 1.25`: with its metric
//! ```
//!
//! `latest` and `best` are files with one line. Symbolic links would do the same on Linux, but not on every operating system and file
//! system, and not in a copied or archived folder.
//!
//! A checkpoint has the state that this crate knows. A trainer saves the rest as JSON of its own: its position in the data, the seeds
//! of its random numbers, the state of the learning rate schedule. Floats are restored to the last bit, but JSON has no NaN and no
//! infinity.
//!
//! # Guarantees if a process is killed
//!
//! - A folder with the name of a step is a complete checkpoint. Its files are written and synced to the disk under a hidden name. Then the
//!   folder is renamed atomically, and the new name is synced before the next operation. `latest` and `best` are written in the same way.
//! - So after a kill, a crash of the machine or an error of the disk, [`latest`](Checkpoints::latest) is either the previous or the new
//!   checkpoint. Incomplete data has a hidden name, and the next [`save`](Checkpoints::save) removes it.
//! - A lock lets one process save at a time. Any number of processes may read. A run can lock the folder for its lifetime:
//!   [`Checkpoints::lock_run`], and [`Checkpoints::run`] for a trainer.
//!
//! # Validation
//!
//! The whole file is compared with the model before the first weight is loaded: all names, types and shapes must be equal.
//! [`Problem::Mismatch`] lists all differences. NaN is an error, too. [`LoadOptions`] allow other float types, and NaN.
//!
//! Each file is read once to check it, and again to copy the numbers, a tensor at a time: memory has the model, and its largest tensor beside it.
//!
//! Truncated, overlong and damaged files are errors: files of this crate have a checksum of their numbers. So are headers with false
//! offsets or duplicate names. Each [`CheckpointError`] names the file, and the tensor.
//!
//! # Other libraries
//!
//! The files are in the format of [safetensors](https://github.com/huggingface/safetensors), which dfdx and Python read and write. The
//! numbers that dfdx's own norms have beside their tensors, `epsilon`, are saved as tensors without axes, as dfdx does. Files without
//! them load as well.
//!
//! dfdx's own method `model.save(path)` writes an npz archive, whatever the extension of the path: use [`save(&model, path)`](save).
//!
//! Files of `torch.save` (`.pt`, `.pth`, `.bin`) are not read. Convert them once in Python:
//!
//! ```python
//! import torch
//! from safetensors.torch import save_file
//!
//! state = torch.load(path, map_location="cpu", weights_only=True)
//! save_file({name: t.clone().contiguous() for name, t in state.items()}, "model.safetensors")
//! ```
//!
//! The copies are needed because `save_file` refuses tensors that share memory, such as a tied head. nanoGPT keeps the weights in
//! `state["model"]`, and their names have the prefix `_orig_mod.` if the model was compiled.
//!
//! If names differ, or matrices are transposed or packed, use a [`WeightMap`](layout::WeightMap): [`layout`] has those of PyTorch's
//! layers and of Hugging Face's BERT, GPT-2 and Llama, for both directions.
//!
//! | here | PyTorch |
//! | --- | --- |
//! | [`save`], [`load`] | `safetensors.torch.save_file(model.state_dict(), ..)`, `model.load_state_dict(.., strict=True)` |
//! | [`Archive::load_mapped`], [`save_mapped`](layout::save_mapped), [`save_mapped_in_shards`](layout::save_mapped_in_shards) | `model.load_state_dict(convert(file))`, where `convert` renames, transposes, splits and packs; `from_pretrained`, `save_pretrained` |
//! | [`lora::save`], [`lora::load`], [`lora::merge`] | `model.save_pretrained(..)`, `PeftModel.from_pretrained(..)`, `model.merge_and_unload()` of PEFT |
//! | [`Session::save_weights`](crate::generate::Session::save_weights), [`Session::load_weights`](crate::generate::Session::load_weights) | the same of a model in int8 or bf16 |
//! | [`Contents`], [`Checkpoints::save`] | `torch.save({"model": .., "optimizer": ..}, ..)`, which is not atomic |
//! | [`Checkpoints::keep_last`], [`Checkpoints::best`] | `save_total_limit`, `load_best_model_at_end` of Hugging Face's `Trainer` |

mod across;
mod archive;
mod contents;
mod error;
mod folder;
mod header;
mod index;
pub mod layout;
pub mod lora;
mod model;
mod number;
mod optimizer;
mod rounded;
mod rounding_errors;
mod run;
mod source;
mod tensors;
mod trainer;
mod write;

#[cfg(test)]
mod tests;

pub use archive::Archive;
pub use contents::Contents;
pub use error::{CheckpointError, Difference, Mismatch, Problem};
pub use folder::{Checkpoint, Checkpoints, RunLock};
pub use model::{load, save};
pub use number::TensorType;
pub use optimizer::{load_optimizer, save_optimizer};
pub use run::Run;
#[doc(no_inline)]
pub use safetensors::Dtype;
pub use source::ReadAt;

/// Differences between the file and the model that [`load`] accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Floats of another type: `f16`, `bf16`, `f32` or `f64`. Numbers are rounded to the type of the model, and to infinity if they are
    /// too large. PyTorch always converts.
    pub convert: bool,
    /// Tensors that contain NaN.
    pub allow_nan: bool,
}
