//! Metrics of a training run, by step.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{VizError, files};

/// Writes `metrics.jsonl`: one JSON object per line, with a step and its metrics.
///
/// ```text
/// {"step":500,"train_loss":2.0128,"learning_rate":0.003}
/// {"step":500,"validation_loss":1.9817}
/// ```
///
/// A line is passed to the system as a whole when it is written, so a killed process loses none, and other processes can read the
/// file meanwhile. A resumed run drops the lines after its step. If only values that depend on the step are recorded, and no
/// times, the file is then the same, byte by byte, as that of an uninterrupted run.
///
/// ```
/// use attn::viz::{Metrics, Record};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("metrics.jsonl");
/// let mut metrics = Metrics::create(&path)?;
/// metrics.write(1, &[("train_loss", 4.5)])?;
/// metrics.write(2, &[("train_loss", 4.25)])?;
///
/// // There is a checkpoint of step 1.
/// let mut metrics = Metrics::resume(&path, 1)?;
/// metrics.write(2, &[("train_loss", 4.0)])?;
/// let losses = Record::series(&Metrics::read(&path)?, "train_loss");
/// assert_eq!(losses, [(1, 4.5), (2, 4.0)]);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("TensorBoard", "wandb"))]
#[derive(Debug)]
pub struct Metrics {
    file: File,
    path: PathBuf,
}

impl Metrics {
    /// Creates a file, and replaces an existing one.
    ///
    /// # Errors
    /// [`VizError`] if a system call fails.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, VizError> {
        Self::begin(path.as_ref(), &[])
    }

    /// Continues after the lines up to this step, or creates a file if there is none.
    ///
    /// An incomplete record at the end, which a crash left, is dropped.
    ///
    /// # Errors
    /// [`VizError`] if a system call fails, or if a line before the last is not a record. The file has not changed then.
    pub fn resume(path: impl AsRef<Path>, step: u64) -> Result<Self, VizError> {
        let path = path.as_ref();
        let mut kept = Vec::new();
        for (record, line) in lines(path)? {
            if record.step <= step {
                kept.extend(line);
            }
        }
        Self::begin(path, &kept)
    }

    fn begin(path: &Path, lines: &[u8]) -> Result<Self, VizError> {
        files::replace(path, lines)?;
        let open = File::options().append(true).open(path);
        let file = open.map_err(failure(path, "open"))?;
        Ok(Self {
            file,
            path: path.into(),
        })
    }

    /// Writes a line. JSON has no NaN and no infinity: they become `null`.
    ///
    /// # Errors
    /// [`VizError::Name`] if a value is named `step`, or has the name of an earlier one; nothing is written then. [`VizError`] if
    /// a system call fails.
    pub fn write(&mut self, step: u64, values: &[(&str, f64)]) -> Result<(), VizError> {
        check_names(values)?;
        let mut line = format!("{{\"step\":{step}");
        for (name, value) in values {
            line += &format!(",{}:{}", Value::from(*name), Value::from(*value));
        }
        line += "}\n";
        let written = self.file.write_all(line.as_bytes());
        written.map_err(failure(&self.path, "write"))
    }

    /// Syncs all lines to the disk. Call it before a checkpoint of this step is saved, so that after a crash of the machine no
    /// checkpoint is newer than the lines.
    ///
    /// # Errors
    /// [`VizError`] if a system call fails.
    pub fn sync(&self) -> Result<(), VizError> {
        self.file.sync_data().map_err(failure(&self.path, "sync"))
    }

    /// Reads a file up to its last complete line. A missing file has no records.
    ///
    /// # Errors
    /// [`VizError`] if a system call fails, or if a line before the last is not a record.
    pub fn read(path: impl AsRef<Path>) -> Result<Vec<Record>, VizError> {
        let lines = lines(path.as_ref())?;
        Ok(lines.into_iter().map(|(record, _)| record).collect())
    }
}

/// A JSON object has each name once.
fn check_names(values: &[(&str, f64)]) -> Result<(), VizError> {
    for (index, &(name, _)) in values.iter().enumerate() {
        let before = values[..index].iter().any(|(before, _)| *before == name);
        let reason = match name {
            "step" => "this is the number of the step",
            _ if before => "there are two of them",
            _ => continue,
        };
        let name = name.into();
        return Err(VizError::Name { name, reason });
    }
    Ok(())
}

/// A line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The number of steps.
    pub step: u64,
    /// The measured values, in no order. A value without a number is NaN.
    pub values: Vec<(String, f64)>,
}

impl Record {
    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        let value = self.values.iter().find(|(found, _)| found == name);
        value.map(|(_, value)| *value)
    }

    /// All values of a name, with their steps.
    pub fn series(records: &[Self], name: &str) -> Vec<(u64, f64)> {
        let values = records
            .iter()
            .filter_map(|record| Some((record.step, record.get(name)?)));
        values.collect()
    }

    fn parse(line: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let fields = value.as_object().ok_or("it is no object")?;
        let step = fields.get("step").and_then(Value::as_u64);
        let numbers = fields.iter().filter(|(name, _)| *name != "step");
        let values = numbers.filter_map(|(name, value)| match value {
            Value::Null => Some((name.clone(), f64::NAN)),
            // Other programs may have added text.
            other => Some((name.clone(), other.as_f64()?)),
        });
        Ok(Self {
            step: step.ok_or("it has no step")?,
            values: values.collect(),
        })
    }
}

/// The complete lines of a file, with their line ends.
fn lines(path: &Path) -> Result<Vec<(Record, Vec<u8>)>, VizError> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read.map_err(failure(path, "read"))?,
    };
    let all: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let mut lines = Vec::new();
    for (index, line) in all.iter().enumerate() {
        match Record::parse(line) {
            Ok(record) if line.ends_with(b"\n") => lines.push((record, line.to_vec())),
            // A crash left an incomplete line or unwritten bytes.
            _ if index + 1 == all.len() => {}
            Ok(_) => {}
            Err(reason) => {
                return Err(VizError::Line {
                    path: path.into(),
                    line: index + 1,
                    reason,
                });
            }
        }
    }
    Ok(lines)
}

fn failure(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> VizError {
    let path = path.into();
    move |error| VizError::File {
        path,
        action,
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, steps: std::ops::RangeInclusive<u64>, metrics: &mut Metrics) {
        for step in steps {
            metrics.write(step, &[("loss", 1.0 / step as f64)]).unwrap();
            if step % 4 == 0 {
                metrics.write(step, &[("validation", step as f64)]).unwrap();
            }
        }
        assert!(path.exists());
    }

    #[test]
    fn a_resumed_file_equals_that_of_an_uninterrupted_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        write(&path, 1..=12, &mut Metrics::create(&path).unwrap());
        let whole = fs::read(&path).unwrap();
        // The file after a kill at any byte after the checkpoint of step 5.
        let kept = whole.windows(9).position(|w| w == b"\"step\":6,").unwrap() - 1;
        for end in kept..=whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            write(&path, 6..=12, &mut Metrics::resume(&path, 5).unwrap());
            assert!(fs::read(&path).unwrap() == whole, "cut at {end}");
        }
    }

    #[test]
    fn lines_are_readable_before_the_writer_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut metrics = Metrics::create(&path).unwrap();
        metrics
            .write(3, &[("a \"name\"", 0.1), ("b", f64::NAN)])
            .unwrap();
        let text = "{\"step\":3,\"a \\\"name\\\"\":0.1,\"b\":null}\n";
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        let records = Metrics::read(&path).unwrap();
        assert_eq!(records[0].get("a \"name\""), Some(0.1));
        assert!(records[0].get("b").is_some_and(f64::is_nan));
        assert_eq!(records[0].get("c"), None);
    }

    #[test]
    fn invalid_names_are_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut metrics = Metrics::create(&path).unwrap();
        metrics.write(1, &[("loss", 0.5)]).unwrap();
        for (values, reason) in [
            ([("loss", 0.5), ("step", 1.5)], "`step`: this is the number"),
            ([("loss", 0.5), ("loss", 0.25)], "`loss`: there are two"),
        ] {
            let refused = metrics.write(2, &values).err().map(|e| e.to_string());
            assert!(
                refused.as_ref().is_some_and(|e| e.contains(reason)),
                "{refused:?}"
            );
        }
        metrics.write(2, &[("loss", 0.25)]).unwrap();
        let records = Metrics::read(&path).unwrap();
        assert_eq!(Record::series(&records, "loss"), [(1, 0.5), (2, 0.25)]);
    }

    #[test]
    fn an_invalid_line_in_the_middle_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        for wrong in ["nonsense", "{}", "[1]", "{\"step\":-1}"] {
            let text = format!("{{\"step\":1}}\n{wrong}\n{{\"step\":2}}\n");
            fs::write(&path, &text).unwrap();
            let error = Metrics::resume(&path, 9).err().unwrap().to_string();
            assert!(
                error.contains("metrics.jsonl: line 2 is not a record: "),
                "{error}"
            );
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        // At the end it may be the result of a crash.
        fs::write(&path, "{\"step\":1}\n\0\0\0\0\n").unwrap();
        assert_eq!(Metrics::read(&path).unwrap().len(), 1);
        // Also if only the line end is missing: the next record would be appended to the line.
        fs::write(&path, "{\"step\":1}\n{\"step\":2}").unwrap();
        assert_eq!(Metrics::read(&path).unwrap().len(), 1);
        Metrics::resume(&path, 2).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"{\"step\":1}\n");
    }

    #[test]
    fn a_missing_file_is_empty_and_a_missing_folder_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        assert_eq!(Metrics::read(&path).unwrap(), []);
        Metrics::resume(&path, 7).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
        let error = Metrics::create(folder.path().join("no/such"))
            .err()
            .unwrap();
        assert!(error.to_string().contains("cannot create"), "{error}");
    }
}
