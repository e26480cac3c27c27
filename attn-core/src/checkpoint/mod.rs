//! Checkpoints: weights and the state of training on the disk, whole whenever the process that writes them is killed.
//!
//! [`Checkpoints`] is the folder of a run. Whatever training needs to go on is saved in it under the count of steps, and
//! loaded by another process, which then ends with the same bits as one that was never stopped:
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
//! [`save`] and [`load`] are for weights alone; [`save_adamw`] and [`load_adamw`] for the state of the optimizer;
//! [`Archive`] tells what is in a file.
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
//! `latest` and `best` are files of one line. Links would do the same on Linux, but not on every system and every disk,
//! and not where a folder is copied or packed.
//!
//! A checkpoint has the state that this crate knows of. A trainer must put the rest into its own JSON: how much of the data
//! it has seen, the seeds of its random numbers, the schedule of the learning rate. Floats come back to the last bit there,
//! too, but JSON has no NaN and no infinity.
//!
//! # What holds when a process is killed
//!
//! - A folder with the name of a step is a whole checkpoint. It is written under a hidden name and forced to the disk, file by
//!   file; then it gets its name, at once, and that is forced to the disk before the next thing is done. So are `latest` and
//!   `best`.
//! - So after a kill, a crash of the machine or an error of the disk, [`latest`](Checkpoints::latest) is the checkpoint before or
//!   the new one. What was half done has a hidden name, and the next [`save`](Checkpoints::save) removes it.
//! - One process saves at a time, which a lock sees to. Any number may read. A run can have the folder for itself for all of its
//!   life: [`Checkpoints::lock_run`].
//!
//! # What is refused
//!
//! Nothing of a file gets into a model before all of it was compared with the model: names, types and shapes, without
//! exception, and [`Problem::Mismatch`] lists all that differs. NaN is refused, too. [`LoadOptions`] allow other floats,
//! and NaN.
//!
//! Files that are cut off, longer than they should be, or damaged are refused: files of this crate carry a checksum of their
//! numbers. So are headers that lie or have a name twice. Each [`CheckpointError`] names the file, and the tensor.
//!
//! # Other libraries
//!
//! The files are those of [safetensors](https://github.com/huggingface/safetensors): dfdx and Python read them, and are read. The
//! numbers beside the tensors of dfdx's own norms, `epsilon`, are tensors without axes in them, as dfdx has it; files
//! without them load.
//!
//! dfdx's own method `model.save(path)` writes an npz archive, whatever the name of the file is: write [`save(&model, path)`](save).
//!
//! Where names differ, or matrices are transposed or packed, a [`WeightMap`](layout::WeightMap) says how: [`layout`] has those of
//! PyTorch's layers and of Hugging Face's BERT, GPT-2 and Llama, for both directions.
//!
//! | here | PyTorch |
//! | --- | --- |
//! | [`save`], [`load`] | `safetensors.torch.save_file(model.state_dict(), ..)`, `model.load_state_dict(.., strict=True)` |
//! | [`Archive::load_mapped`], [`save_mapped`](layout::save_mapped) | `model.load_state_dict(convert(file))`, where `convert` renames, transposes, splits and packs; `from_pretrained`, `save_pretrained` |
//! | [`Contents`], [`Checkpoints::save`] | `torch.save({"model": .., "optimizer": ..}, ..)`, which is not atomic |
//! | [`Checkpoints::keep_last`], [`Checkpoints::best`] | `save_total_limit`, `load_best_model_at_end` of Hugging Face's `Trainer` |

mod archive;
mod contents;
mod error;
mod folder;
mod header;
pub mod layout;
mod model;
mod number;
mod optimizer;
mod tensors;
mod write;

#[cfg(test)]
mod tests;

pub use archive::Archive;
pub use contents::Contents;
pub use error::{CheckpointError, Difference, Mismatch, Problem};
pub use folder::{Checkpoint, Checkpoints, RunLock};
pub use model::{load, save};
pub use number::TensorType;
pub use optimizer::{load_adamw, save_adamw};
#[doc(no_inline)]
pub use safetensors::Dtype;

/// Differences between the file and the model that [`load`] accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Floats of another type, `f16`, `bf16`, `f32` or `f64`. What the model cannot hold is rounded, to infinity if it is
    /// too large. PyTorch does this unasked.
    pub convert: bool,
    /// Tensors with NaN.
    pub allow_nan: bool,
}
