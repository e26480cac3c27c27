//! rust-analyzer on a small program, and its messages: JSON with a header that has the length.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};

/// The mark of the cursor in a source.
pub(crate) const CURSOR: &str = "$0";

/// The first time, rust-analyzer compiles the macros.
const PATIENCE: Duration = Duration::from_secs(600);

/// The error code of the protocol for a text that has changed meanwhile.
const CONTENT_MODIFIED: i64 = -32801;

pub(crate) struct Server {
    process: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    requests: i64,
    version: i64,
    file: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether `rust-analyzer` is installed.
pub(crate) fn is_there() -> bool {
    let version = Command::new("rust-analyzer").arg("--version").output();
    version.is_ok_and(|output| output.status.success())
}

impl Server {
    /// Starts rust-analyzer, and loads a program that depends on `attn`.
    pub(crate) fn start() -> Result<Self> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("editor");
        let file = write_program(&folder)?;
        let mut process = Command::new("rust-analyzer")
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("rust-analyzer does not start")?;
        let to = process.stdin.take().context("no input")?;
        let from = messages(process.stdout.take().context("no output")?);
        let file = format!("file://{}", file.display());
        let mut server = Server {
            process,
            to,
            from,
            requests: 0,
            version: 0,
            file,
        };
        server.initialize(&folder)?;
        Ok(server)
    }

    fn initialize(&mut self, folder: &Path) -> Result<()> {
        let root = format!("file://{}", folder.display());
        let parameters = json!({
            "processId": std::process::id(),
            "rootUri": root,
            "workspaceFolders": [{ "uri": root, "name": "editor" }],
            "capabilities": {
                "experimental": { "serverStatusNotification": true },
                "textDocument": { "hover": { "contentFormat": ["markdown"] } },
            },
            "initializationOptions": {
                "checkOnSave": false,
                "cachePriming": { "enable": false },
                "cargo": {
                    "buildScripts": { "enable": true },
                    // The folder is kept between runs, so that the macros are compiled once.
                    "targetDir": folder.join("target"),
                },
                "procMacro": { "enable": true },
            },
        });
        self.request("initialize", parameters)?;
        self.notify("initialized", json!({}))?;
        let text = json!({ "uri": self.file, "languageId": "rust", "version": 0, "text": "" });
        self.notify("textDocument/didOpen", json!({ "textDocument": text }))?;
        let status = self.wait(|message| {
            let is_status = message["method"] == "experimental/serverStatus";
            let is_loaded = is_status && message["params"]["quiescent"] == true;
            is_loaded.then(|| message["params"].clone())
        })?;
        match status["health"] == "ok" {
            true => Ok(()),
            false => bail!("the program is not loaded: {status}"),
        }
    }

    /// The completions at the cursor.
    pub(crate) fn completions(&mut self, source: &str) -> Result<Vec<String>> {
        let found = self.at_cursor("textDocument/completion", source)?;
        let items = found["items"].as_array().or(found.as_array());
        let offers = items.into_iter().flatten().map(|item| {
            let label = item["label"].as_str().unwrap_or_default();
            // Arguments of functions and imports follow the name.
            let end = label.find(['(', ' ', '!']).unwrap_or(label.len());
            label[..end].to_owned()
        });
        Ok(offers.collect())
    }

    /// The hover text of the name at the cursor, as Markdown.
    pub(crate) fn hover(&mut self, source: &str) -> Result<String> {
        let found = self.at_cursor("textDocument/hover", source)?;
        let text = found["contents"]["value"].as_str();
        Ok(text.unwrap_or_default().to_owned())
    }

    /// The line, counted from 0, of the definition of the name at the cursor.
    pub(crate) fn definition(&mut self, source: &str) -> Result<Vec<u64>> {
        let found = self.at_cursor("textDocument/definition", source)?;
        let here = found.as_array().into_iter().flatten();
        let here = here.filter(|place| place["uri"] == self.file.as_str());
        let lines = here.filter_map(|place| place["range"]["start"]["line"].as_u64());
        Ok(lines.collect())
    }

    fn at_cursor(&mut self, method: &str, source: &str) -> Result<Value> {
        let (before, after) = source.split_once(CURSOR).context("no cursor")?;
        self.version += 1;
        self.notify(
            "textDocument/didChange",
            json!({
                "textDocument": { "uri": self.file, "version": self.version },
                "contentChanges": [{ "text": format!("{before}{after}") }],
            }),
        )?;
        let line = before.matches('\n').count();
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        let column = before[start..].encode_utf16().count();
        let parameters = json!({
            "textDocument": { "uri": self.file },
            "position": { "line": line, "character": column },
        });
        self.request(method, parameters)
    }

    fn request(&mut self, method: &str, parameters: Value) -> Result<Value> {
        loop {
            self.requests += 1;
            let id = self.requests;
            let request =
                json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": parameters });
            self.send(&request)?;
            let is_answer = |message: &Value| message["id"] == id && message["method"].is_null();
            let answer = self.wait(|message| is_answer(message).then(|| message.clone()))?;
            match &answer["error"] {
                Value::Null => return Ok(answer["result"].clone()),
                error if error["code"] == CONTENT_MODIFIED => {}
                error => bail!("{method}: {error}"),
            }
        }
    }

    fn notify(&mut self, method: &str, parameters: Value) -> Result<()> {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": parameters }))
    }

    fn send(&mut self, message: &Value) -> Result<()> {
        let message = message.to_string();
        write!(
            self.to,
            "Content-Length: {}\r\n\r\n{message}",
            message.len()
        )?;
        Ok(self.to.flush()?)
    }

    /// The first message that `found` accepts. Requests of the server get an empty answer.
    fn wait(&mut self, found: impl Fn(&Value) -> Option<Value>) -> Result<Value> {
        let end = Instant::now() + PATIENCE;
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            let message = self.from.recv_timeout(rest);
            let message =
                message.map_err(|_| anyhow!("rust-analyzer ended, or does not answer"))?;
            if let Some(value) = found(&message) {
                return Ok(value);
            }
            let is_request = !message["method"].is_null() && !message["id"].is_null();
            if is_request {
                self.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": null }))?;
            }
        }
    }
}

/// Writes a package that depends on `attn`, with the locked versions of the workspace. Returns the path of its only file.
fn write_program(folder: &Path) -> Result<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()?;
    let manifest = format!(
        "[package]\nname = \"program\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [dependencies]\nattn = {{ package = \"attn-dsl\", path = {:?}, default-features = false }}\n\n\
         [workspace]\n",
        workspace.display().to_string()
    );
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("Cargo.toml"), manifest)?;
    fs::copy(workspace.join("Cargo.lock"), folder.join("Cargo.lock"))?;
    let file = folder.join("src/lib.rs");
    fs::write(&file, "")?;
    Ok(file)
}

/// The messages of the server.
fn messages(output: ChildStdout) -> Receiver<Value> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        while let Ok(Some(message)) = read(&mut output) {
            if sender.send(message).is_err() {
                break;
            }
        }
    });
    receiver
}

fn read(output: &mut BufReader<ChildStdout>) -> Result<Option<Value>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if output.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end().split_once(": ") {
            Some(("Content-Length", value)) => length = value.parse()?,
            Some(_) => {}
            None => break,
        }
    }
    let mut message = vec![0; length];
    output.read_exact(&mut message)?;
    Ok(Some(serde_json::from_slice(&message)?))
}
