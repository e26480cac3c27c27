//! Weights in several files, with an index of them: `model.safetensors.index.json`, as Hugging Face has it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    ops::Range,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    Archive, CheckpointError, Problem,
    contents::is_file_name,
    write::{Metadata, Stored, write},
};
use crate::disk;

/// The file with all weights, if they are in one.
const WHOLE: &str = "model.safetensors";
/// The index of several files.
const INDEX: &str = "model.safetensors.index.json";

/// The contents of an index.
#[derive(Debug, Deserialize, Serialize)]
struct Index {
    #[serde(default)]
    metadata: serde_json::Map<String, serde_json::Value>,
    /// The file of each tensor.
    weight_map: BTreeMap<String, String>,
}

impl Archive<File> {
    /// Reads the header of a file: those of all files, if `path` is an index, `model.safetensors.index.json`. If it is a folder, the file is
    /// its `model.safetensors`, or else that index.
    ///
    /// # Errors
    /// [`CheckpointError`] if a file cannot be read, if its length is not the one in its header, if a name occurs twice, or if the
    /// type of a tensor is invalid; if files of an index are missing, or have other tensors than it says. No allocation is larger than the file.
    #[doc(alias("index.json", "shards"))]
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let path = path.as_ref();
        let path = match path.is_dir() {
            true => &of_folder(path),
            false => path,
        };
        match path.extension() {
            Some(found) if found == "json" => open(path),
            _ => Self::open_file(path),
        }
    }
}

/// The file of the weights in a folder: that of all of them, or the index.
fn of_folder(folder: &Path) -> PathBuf {
    let [whole, index] = [WHOLE, INDEX].map(|name| folder.join(name));
    match !whole.exists() && index.exists() {
        true => index,
        false => whole,
    }
}

/// Opens all files of an index.
fn open(path: &Path) -> Result<Archive<File>, CheckpointError> {
    let at = |problem: Problem| problem.at(path);
    let text = fs::read_to_string(path).map_err(|error| at(Problem::io("read")(error)))?;
    let index: Index = serde_json::from_str(&text).map_err(|error| {
        let reason = error.to_string();
        at(Problem::Index { reason })
    })?;
    let names: BTreeSet<&String> = index.weight_map.values().collect();
    if let Some(name) = names.iter().find(|name| !is_file_name(name)) {
        let name = name.to_string();
        return Err(at(Problem::FileName { name }));
    }
    let place = |name: &str| path.with_file_name(name);
    let missing = names.iter().filter(|name| !place(name).exists());
    let missing: Vec<String> = missing.map(|name| name.to_string()).collect();
    if !missing.is_empty() {
        let count = names.len();
        return Err(at(Problem::MissingShards { missing, count }));
    }
    let mut archive = Archive::empty(path);
    let mut elsewhere = Vec::new();
    for name in names {
        let shard = Archive::open_file(&place(name))?;
        for tensor in shard.tensors.keys() {
            if index.weight_map.get(tensor) != Some(name) {
                elsewhere.push((tensor.clone(), name.clone()));
            }
        }
        archive.append(shard);
    }
    let tensors = index.weight_map.into_iter();
    let missing: Vec<_> = tensors
        .filter(|(tensor, _)| !archive.tensors.contains_key(tensor))
        .collect();
    match missing.is_empty() && elsewhere.is_empty() {
        true => Ok(archive),
        false => Err(at(Problem::OtherIndex { missing, elsewhere })),
    }
}

/// The tensors of each file, by their sizes in bytes: in their order, and at most this many bytes unless a tensor alone has more.
fn cut(tensors: &[(&str, usize)], most: u64) -> Vec<Range<usize>> {
    let mut files = Vec::new();
    let (mut start, mut bytes) = (0, 0_u64);
    for (index, (_, size)) in tensors.iter().enumerate() {
        let size = *size as u64;
        let fits = bytes.checked_add(size).is_some_and(|sum| sum <= most);
        if index > start && !fits {
            files.push(start..index);
            (start, bytes) = (index, 0);
        }
        bytes += size;
    }
    files.push(start..tensors.len());
    files
}

/// Writes the weights of a folder: to one file, or to several with an index. `read` has some of the tensors in memory.
///
/// A reader takes the file with all weights first, so there is only that, or the index. The index goes before the first file is replaced and
/// comes behind the last one: files of two saves are never together.
pub(super) fn save(
    folder: &Path,
    tensors: &[(&str, usize)],
    most: u64,
    metadata: &Metadata,
    read: impl Fn(Range<usize>) -> Vec<Stored>,
) -> Result<(), CheckpointError> {
    let files = cut(tensors, most);
    let [whole, index] = [WHOLE, INDEX].map(|name| folder.join(name));
    let (new, other) = match files.len() {
        1 => (&whole, &index),
        _ => (&index, &whole),
    };
    if other.exists() {
        return Err(Problem::OtherWeights.at(other));
    }
    disk::create_folder(folder)?;
    let create = |path: &Path, range: Range<usize>| {
        disk::replace(path, |file| {
            let written = write(file, metadata.clone(), &read(range));
            written.map_err(|problem| problem.at(path))
        })
    };
    if let [all] = &files[..] {
        return create(new, all.clone());
    }
    if index.exists() {
        disk::remove(&index)?;
        disk::sync_folder(folder)?;
    }
    let mut weight_map = BTreeMap::new();
    for (number, range) in files.iter().enumerate() {
        let name = format!("model-{:05}-of-{:05}.safetensors", number + 1, files.len());
        create(&folder.join(&name), range.clone())?;
        let names = tensors[range.clone()].iter();
        weight_map.extend(names.map(|(tensor, _)| (tensor.to_string(), name.clone())));
    }
    let total: usize = tensors.iter().map(|(_, size)| size).sum();
    let index = Index {
        metadata: serde_json::Map::from_iter([("total_size".to_owned(), total.into())]),
        weight_map,
    };
    let json = serde_json::to_vec_pretty(&index);
    let json = json.map_err(|error| {
        let reason = error.to_string();
        Problem::Json { reason }.at(new)
    })?;
    disk::replace(new, |file| {
        file.write_all(&json)
            .map_err(|error| Problem::io("write")(error).at(new))
    })
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn files_have_as_many_tensors_as_fit() {
        let of = |sizes: &[usize], most| {
            let tensors: Vec<_> = sizes.iter().map(|size| ("", *size)).collect();
            let files = cut(&tensors, most).into_iter();
            files
                .map(|range| [range.start, range.end])
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&[], 8), [[0, 0]]);
        assert_eq!(of(&[3, 5], 8), [[0, 2]]);
        assert_eq!(of(&[3, 5, 0, 1], 8), [[0, 3], [3, 4]]);
        // A tensor is in one file.
        assert_eq!(of(&[9, 1, 20], 8), [[0, 1], [1, 2], [2, 3]]);
        assert_eq!(of(&[1, 1], 0), [[0, 1], [1, 2]]);
        assert_eq!(of(&[usize::MAX, usize::MAX], u64::MAX), [[0, 1], [1, 2]]);
    }
}
