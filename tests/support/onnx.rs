//! Runs ONNX files in a runtime that knows nothing of `attn`: onnxruntime in Python, behind the checker of `onnx`.
//!
//! `ATTN_PYTHON` is a Python that has both, or else `python3` is tried. Without one each test reports this; with `ATTN_ONNX=required` it fails.

use std::{
    fmt::Debug,
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use dfdx::prelude::*;
use serde_json::{Value, json};

/// The error of `f32` in sums of tens of terms in another order, layer after layer, relative to the largest number.
const TOLERANCE: f64 = 2e-5;

/// Calls of a model: inputs with the results that they must have, in the order of the declaration.
pub struct Calls {
    calls: Vec<Value>,
    names: [Vec<&'static str>; 2],
    tolerance: f64,
}

/// The numbers of a tensor in JSON.
pub trait Numbers {
    fn json(&self) -> Value;
}

/// Tensors.
pub trait Results {
    fn json(&self) -> Vec<Value>;
}

macro_rules! numbers {
    ($($E:ty, $kind:literal;)*) => {$(
        impl<S: Shape, T> Numbers for Tensor<S, $E, Cpu, T> {
            fn json(&self) -> Value {
                let shape: Vec<usize> = self.shape().concrete().into_iter().collect();
                let numbers = match shape.contains(&0) {
                    true => Vec::new(),
                    false => self.as_vec(),
                };
                let numbers: Vec<Value> = numbers.into_iter().map(json_of).collect();
                json!({ "kind": $kind, "shape": shape, "numbers": numbers })
            }
        }

        impl<S: Shape, T> Results for Tensor<S, $E, Cpu, T> {
            fn json(&self) -> Vec<Value> {
                vec![Numbers::json(self)]
            }
        }
    )*};
}

numbers! {
    f32, "float32";
    f64, "float64";
    usize, "int64";
    bool, "bool";
}

/// A number, or the name of an infinity.
fn json_of<T: Into<Value> + Debug>(number: T) -> Value {
    let text = format!("{number:?}");
    match number.into() {
        Value::Null => text.into(),
        number => number,
    }
}

impl Numbers for usize {
    fn json(&self) -> Value {
        json!({ "kind": "int64", "shape": [], "numbers": [self] })
    }
}

macro_rules! results {
    ($($A:ident $index:tt),*) => {
        impl<$($A: Numbers),*> Results for ($($A,)*) {
            fn json(&self) -> Vec<Value> {
                vec![$(self.$index.json()),*]
            }
        }
    };
}

results!(A 0, B 1);
results!(A 0, B 1, C 2);

impl Default for Calls {
    fn default() -> Self {
        Self {
            calls: Vec::new(),
            names: Default::default(),
            tolerance: TOLERANCE,
        }
    }
}

impl Calls {
    /// With another tolerance, relative to the largest number of a result.
    pub fn within(tolerance: f64) -> Self {
        Self {
            tolerance,
            ..Self::default()
        }
    }

    /// The names that the inputs and the outputs must have.
    pub fn named<const I: usize, const O: usize>(
        mut self,
        inputs: [&'static str; I],
        outputs: [&'static str; O],
    ) -> Self {
        self.names = [inputs.into(), outputs.into()];
        self
    }

    /// Another call.
    pub fn call(mut self, inputs: &[&dyn Numbers], outputs: &impl Results) -> Self {
        let inputs: Vec<Value> = inputs.iter().map(|input| input.json()).collect();
        self.calls
            .push(json!({ "inputs": inputs, "outputs": outputs.json() }));
        self
    }

    /// Exports the model to a file, and compares what another runtime computes.
    #[track_caller]
    pub fn check<E: Debug>(self, export: impl FnOnce(&Path) -> Result<(), E>) {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("attn-onnx-{}-{count}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let model = folder.join("model.onnx");
        export(&model).unwrap();
        let calls = folder.join("calls.json");
        let content =
            json!({ "tolerance": self.tolerance, "calls": self.calls, "names": self.names });
        fs::write(&calls, content.to_string()).unwrap();
        let answer = ask(&model, &calls);
        // A file that is wrong stays there, so that it can be looked at.
        assert!(answer == "ok", "{}: {answer}", model.display());
        fs::remove_dir_all(folder).unwrap();
    }
}

/// The answer of the runtime for a file: `ok`, or the difference. Without a runtime it is `ok`.
#[track_caller]
fn ask(model: &Path, calls: &Path) -> String {
    static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = runtime.get_or_insert_with(Runtime::start);
    let Some(process) = &mut runtime.0 else {
        return "ok".to_owned();
    };
    let input = process.stdin.as_mut().unwrap();
    writeln!(input, "{}\t{}", model.display(), calls.display()).unwrap();
    let mut answer = String::new();
    let output = process.stdout.as_mut().unwrap();
    // Each question has one line as its answer, so nothing is left in the buffer.
    BufReader::new(output).read_line(&mut answer).unwrap();
    answer.trim_end().to_owned()
}

/// A process that answers questions, if it can be had.
struct Runtime(Option<Child>);

impl Runtime {
    fn start() -> Self {
        let python = std::env::var("ATTN_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let imports = ["-c", "import numpy, onnx, onnxruntime"];
        let problem = match Command::new(&python).args(imports).output() {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = problem {
            let message = format!("{python} cannot import onnx and onnxruntime: {problem}");
            let is_required = std::env::var("ATTN_ONNX").as_deref() == Ok("required");
            assert!(!is_required, "{message}");
            eprintln!("NOT CHECKED: {message}");
            return Runtime(None);
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/run_onnx.py");
        let mut command = Command::new(python);
        let process = command.arg(script).stdin(Stdio::piped());
        Runtime(Some(process.stdout(Stdio::piped()).spawn().unwrap()))
    }
}
