//! The trained weights as a safetensors file, and the vocabulary that gives them their meaning in a
//! text file beside it.

use crate::{model::Model, vocabulary::Vocabulary};
use anyhow::{Context, Result, anyhow, ensure};
use attn::dfdx::prelude::*;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Writes the weights to `path` and the vocabulary beside it, at the path that is returned.
pub(crate) fn save(model: &Model, path: &Path, vocabulary: &Vocabulary) -> Result<PathBuf> {
    let beside = beside(path);
    fs::write(&beside, vocabulary.to_text())
        .with_context(|| format!("cannot write {}", beside.display()))?;
    model
        .save_safetensors(path)
        .with_context(|| format!("cannot write the weights to {}", path.display()))?;
    Ok(beside)
}

/// Reads the weights that [`save`] wrote for the same vocabulary.
pub(crate) fn load(model: &mut Model, path: &Path, vocabulary: &Vocabulary) -> Result<()> {
    let (name, beside) = (path.display(), beside(path));
    let theirs = fs::read_to_string(&beside)
        .with_context(|| format!("cannot read {}, the vocabulary of {name}", beside.display()))?;
    ensure!(
        theirs == vocabulary.to_text(),
        "{name} was trained on a text with other characters: give the same text with --data"
    );
    model
        .load_safetensors(path)
        .map_err(|e| anyhow!("cannot read the weights in {name}: {e:?}"))
}

fn beside(path: &Path) -> PathBuf {
    path.with_extension("vocabulary.txt")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;

    #[test]
    fn weights_come_back_as_they_were() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("w.safetensors");
        let vocabulary = Vocabulary::of("abc", 128)?;
        let saved = model::build(&Cpu::seed_from_u64(1))?;
        let mut loaded = model::build(&Cpu::seed_from_u64(2))?;
        save(&saved, &path, &vocabulary)?;
        load(&mut loaded, &path, &vocabulary)?;
        let logits = |model: &Model| {
            let x = Cpu::default().tensor_from_vec(vec![0, 1, 2], (1, 3));
            Ok::<_, anyhow::Error>(model.try_forward(x)?.as_vec())
        };
        assert_eq!(logits(&saved)?, logits(&loaded)?);
        Ok(())
    }

    #[test]
    fn another_vocabulary_and_broken_files_are_refused() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("w.safetensors");
        let (abc, abd) = (Vocabulary::of("abc", 128)?, Vocabulary::of("abd", 128)?);
        let mut model = model::build(&Cpu::default())?;
        let reason = |r: Result<()>| r.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(reason(load(&mut model, &path, &abc)).contains("cannot read"));
        save(&model, &path, &abc)?;
        assert!(reason(load(&mut model, &path, &abd)).contains("other characters"));
        fs::write(&path, b"no weights at all")?;
        assert!(reason(load(&mut model, &path, &abc)).contains("cannot read the weights"));
        Ok(())
    }
}
