//! The files of a checkpoint that describe its model, and how they are read.

use crate::model::{BLOCK, HEADS, LAYERS, Model, VOCAB, WIDTH};
use anyhow::{Context, Result, ensure};
use attn::{
    checkpoint::{Checkpoints, LoadOptions, load},
    text::Vocabulary,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The file with the sizes of the model.
pub(crate) const CONFIG: &str = "config.json";
/// The file with the tokens.
pub(crate) const TOKENIZER: &str = "tokenizer.json";
/// The file with the weights, with the name of [`attn::checkpoint`].
const WEIGHTS: &str = "model.safetensors";

/// The sizes of the model, and of the blocks that it was trained on.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Config {
    vocab: usize,
    positions: usize,
    layers: usize,
    d_model: usize,
    heads: usize,
    pub(crate) block_size: usize,
}

impl Config {
    /// The sizes of this program.
    pub(crate) fn new(block_size: usize) -> Self {
        Self {
            vocab: VOCAB,
            positions: BLOCK,
            layers: LAYERS,
            d_model: WIDTH,
            heads: HEADS,
            block_size,
        }
    }
}

/// A checkpoint that fits the model.
#[derive(Debug)]
pub(crate) struct Saved {
    pub(crate) folder: PathBuf,
    pub(crate) config: Config,
    pub(crate) vocabulary: Vocabulary,
}

impl Saved {
    /// The checkpoint in this folder, or the best one of a folder of checkpoints.
    pub(crate) fn find(path: &Path) -> Result<Self> {
        ensure!(
            path.is_dir(),
            "there is no folder {}: give one that char_lm saved",
            path.display()
        );
        if path.join(WEIGHTS).is_file() {
            return Self::open(path);
        }
        let checkpoints = Checkpoints::new(path);
        let best = checkpoints.best()?.map(|(best, _)| best);
        let found = match best {
            Some(best) => Some(best),
            None => checkpoints.latest()?,
        };
        let found =
            found.with_context(|| format!("there is no checkpoint in {}", path.display()))?;
        Self::open(found.folder())
    }

    /// The checkpoint in exactly this folder.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        let config: Config = read_json(&folder.join(CONFIG))?;
        let ours = Config::new(config.block_size);
        let name = folder.display();
        ensure!(
            config == ours && (1..=BLOCK).contains(&config.block_size),
            "{name} is of another model: it has {config:?}, and this program {ours:?}"
        );
        let vocabulary: Vocabulary = read_json(&folder.join(TOKENIZER))?;
        ensure!(
            vocabulary.len() <= VOCAB,
            "{name} has {} tokens, but the model has room for {VOCAB}",
            vocabulary.len()
        );
        Ok(Self {
            folder: folder.into(),
            config,
            vocabulary,
        })
    }

    /// Reads the weights.
    pub(crate) fn load(&self, model: &mut Model) -> Result<()> {
        Ok(load(
            model,
            self.folder.join(WEIGHTS),
            LoadOptions::default(),
        )?)
    }

    /// Checks that the weights are for the same tokens.
    pub(crate) fn check_vocabulary(&self, vocabulary: &Vocabulary) -> Result<()> {
        ensure!(
            self.vocabulary == *vocabulary,
            "{} was trained on a text with other tokens: give the same text with --data, and the same --tokenizer and --vocab-size",
            self.folder.display()
        );
        Ok(())
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let name = path.display();
    let json = fs::read(path).with_context(|| format!("cannot read {name}"))?;
    serde_json::from_slice(&json).with_context(|| format!("{name} is not what char_lm saves"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;
    use attn::{checkpoint::Contents, dfdx::prelude::*};

    fn save(folder: &Path, seed: u64, step: u64, loss: f64) -> Result<PathBuf> {
        let model = model::build(&Cpu::seed_from_u64(seed))?;
        let config = Config::new(16);
        let vocabulary = Vocabulary::characters("abc")?;
        let contents = Contents::new()
            .model(&model)
            .json(CONFIG, &config)
            .json(TOKENIZER, &vocabulary);
        let saved = Checkpoints::new(folder).save(step, &contents, Some(loss))?;
        Ok(saved.folder().into())
    }

    fn logits(model: &Model) -> Result<Vec<f32>> {
        let x = Cpu::default().tensor_from_vec(vec![0, 1, 2], (1, 3));
        Ok(model.try_forward(x)?.as_vec())
    }

    fn reason<T>(result: Result<T>) -> String {
        result.err().map(|e| format!("{e:#}")).unwrap_or_default()
    }

    #[test]
    fn the_best_of_a_run_is_found_or_the_one_that_is_named() -> Result<()> {
        let run = tempfile::tempdir()?;
        save(run.path(), 1, 10, 2.0)?;
        let worse = save(run.path(), 2, 20, 3.0)?;
        for (path, seed) in [(run.path(), 1), (&worse, 2)] {
            let saved = Saved::find(path)?;
            assert_eq!(saved.config.block_size, 16);
            let mut found = model::build(&Cpu::seed_from_u64(9))?;
            saved.load(&mut found)?;
            let expected = model::build(&Cpu::seed_from_u64(seed))?;
            assert_eq!(logits(&found)?, logits(&expected)?);
        }
        Ok(())
    }

    #[test]
    fn what_does_not_fit_is_refused_with_a_reason() -> Result<()> {
        let run = tempfile::tempdir()?;
        assert!(reason(Saved::find(run.path())).contains("there is no checkpoint in"));
        assert!(reason(Saved::find(Path::new("no/such"))).contains("no folder no/such"));
        let folder = save(run.path(), 1, 10, 2.0)?;
        let other = Vocabulary::characters("abd")?;
        let refused = Saved::open(&folder)?.check_vocabulary(&other);
        assert!(reason(refused).contains("other tokens"));
        let mut config = Config::new(16);
        config.layers += 1;
        fs::write(folder.join(CONFIG), serde_json::to_string(&config)?)?;
        assert!(reason(Saved::find(&folder)).contains("another model"));
        fs::write(folder.join(CONFIG), "{}")?;
        assert!(reason(Saved::find(&folder)).contains("not what char_lm saves"));
        Ok(())
    }
}
