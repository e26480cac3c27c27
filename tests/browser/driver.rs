//! Chromium, driven by chromedriver. The protocol is W3C's WebDriver, JSON over HTTP (<https://www.w3.org/TR/webdriver2/>).

use anyhow::{Context, Result, bail, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    env,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// With this environment variable, a missing browser is a failure.
const REQUIRED: (&str, &str) = ("ATTN_BROWSER", "required");
const DRIVER: &str = "chromedriver";
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
/// The environment variable with the folder for screenshots.
const KEPT: &str = "ATTN_SCREENSHOTS";
/// The key of an element in messages.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

const FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,1400",
];

/// A browser with one window, which is closed when this is dropped.
pub(crate) struct Browser {
    driver: Child,
    agent: ureq::Agent,
    /// The URL of commands.
    session: String,
    /// The profile of the browser, and the pages that it opens.
    folder: TempDir,
}

/// A screenshot of the window.
#[derive(PartialEq)]
pub(crate) struct Screenshot {
    pub(crate) png: Vec<u8>,
    /// All of its colours, and the colour of its first pixel.
    pub(crate) colours: BTreeSet<[u8; 3]>,
    pub(crate) corner: [u8; 3],
}

impl Screenshot {
    /// Saves it, if a folder for screenshots is set.
    pub(crate) fn keep(&self, name: &str) -> Result<()> {
        if let Some(folder) = env::var_os(KEPT) {
            std::fs::write(Path::new(&folder).join(format!("{name}.png")), &self.png)?;
        }
        Ok(())
    }
}

impl Browser {
    /// A browser, or `None` with a message if this machine has none.
    pub(crate) fn start() -> Result<Option<Self>> {
        let browser = BROWSERS.iter().find_map(|name| find(name));
        let (Some(driver), Some(browser)) = (find(DRIVER), browser) else {
            let missing = format!(
                "`{DRIVER}` or none of {BROWSERS:?} is in the PATH; Debian: apt-get install chromium chromium-driver"
            );
            let required = env::var(REQUIRED.0).is_ok_and(|value| value == REQUIRED.1);
            ensure!(!required, "no browser: {missing}");
            eprintln!("SKIPPED, nothing was tested in a browser: {missing}");
            return Ok(None);
        };
        Self::of(&driver, &browser).map(Some)
    }

    fn of(driver: &Path, browser: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut child = Command::new(driver)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let port = port(&mut child)?;
        // A browser that hangs fails its test, and does not block the others.
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)));
        let mut browser_to_be = Self {
            driver: child,
            agent: config.build().into(),
            session: format!("http://127.0.0.1:{port}/session"),
            folder,
        };
        let profile = browser_to_be.folder.path().join("profile");
        let mut flags: Vec<String> = FLAGS.map(String::from).to_vec();
        flags.push(format!("--user-data-dir={}", profile.display()));
        let options = json!({"binary": browser, "args": flags});
        let wanted =
            json!({"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}});
        let body = json!({"capabilities": {"alwaysMatch": wanted}});
        let answer = browser_to_be.post("", &body)?;
        let id = answer["sessionId"].as_str().context("no session")?;
        browser_to_be.session = format!("{}/{id}", browser_to_be.session);
        Ok(browser_to_be)
    }

    /// Opens a page as a file, and waits until its scripts have run.
    pub(crate) fn open(&self, page: &str) -> Result<()> {
        let path = self.folder.path().join("page.html");
        std::fs::write(&path, page)?;
        self.post(
            "/url",
            &json!({"url": format!("file://{}", path.display())}),
        )?;
        Ok(())
    }

    /// The result of a script.
    pub(crate) fn run(&self, script: &str) -> Result<Value> {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// The result of a script as text.
    pub(crate) fn text(&self, script: &str) -> Result<String> {
        let value = self.run(script)?;
        Ok(value
            .as_str()
            .with_context(|| format!("{script} is {value}"))?
            .into())
    }

    pub(crate) fn click(&self, selector: &str) -> Result<()> {
        let element = self.find(selector)?;
        self.post(&format!("/element/{element}/click"), &json!({}))?;
        Ok(())
    }

    /// Moves the mouse to an offset from the middle of an element.
    pub(crate) fn hover(&self, selector: &str, [x, y]: [i64; 2]) -> Result<()> {
        let element = self.find(selector)?;
        let to = json!({"type": "pointerMove", "duration": 0, "origin": {ELEMENT: element}, "x": x, "y": y});
        self.act(&json!({"type": "pointer", "id": "mouse", "actions": [to]}))
    }

    /// Presses keys one after the other, by WebDriver's characters for them.
    pub(crate) fn press(&self, keys: &[char]) -> Result<()> {
        let kinds = ["keyDown", "keyUp"];
        let actions = keys
            .iter()
            .flat_map(|key| kinds.map(|kind| json!({"type": kind, "value": key})));
        self.act(&json!({"type": "key", "id": "keys", "actions": Vec::from_iter(actions)}))
    }

    fn act(&self, source: &Value) -> Result<()> {
        self.post("/actions", &json!({"actions": [source]}))?;
        Ok(())
    }

    /// Emulates the dark colour scheme.
    pub(crate) fn dark(&self) -> Result<()> {
        let features = json!([{"name": "prefers-color-scheme", "value": "dark"}]);
        let command =
            json!({"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}});
        self.post("/goog/cdp/execute", &command)?;
        Ok(())
    }

    pub(crate) fn screenshot(&self) -> Result<Screenshot> {
        let text = self.get("/screenshot")?;
        let png = BASE64_STANDARD.decode(text.as_str().context("no screenshot")?)?;
        let pixels = pixels(&png)?;
        Ok(Screenshot {
            corner: *pixels.first().context("an empty picture")?,
            colours: pixels.into_iter().collect(),
            png,
        })
    }

    /// The warnings and errors in the browser's console since the last call.
    pub(crate) fn errors(&self) -> Result<Vec<String>> {
        let log = self.post("/se/log", &json!({"type": "browser"}))?;
        let entries = log.as_array().context("no log")?;
        let bad = entries
            .iter()
            .filter(|entry| entry["level"] == "SEVERE" || entry["level"] == "WARNING");
        Ok(bad.map(|entry| entry["message"].to_string()).collect())
    }

    fn find(&self, selector: &str) -> Result<String> {
        let found = self.post(
            "/element",
            &json!({"using": "css selector", "value": selector}),
        )?;
        Ok(found[ELEMENT].as_str().context("no element")?.into())
    }

    fn get(&self, command: &str) -> Result<Value> {
        let answer = self
            .agent
            .get(format!("{}{command}", self.session))
            .call()?;
        read(command, answer)
    }

    fn post(&self, command: &str, body: &Value) -> Result<Value> {
        let request = self.agent.post(format!("{}{command}", self.session));
        let request = request.header("content-type", "application/json");
        read(command, request.send(body.to_string())?)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver closes the browser, and then it is terminated itself. Errors here are consequences of earlier ones.
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn read(command: &str, answer: ureq::http::Response<ureq::Body>) -> Result<Value> {
    let text = answer
        .into_body()
        .with_config()
        .limit(64 << 20)
        .read_to_string()?;
    let mut answer: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    let value = answer["value"].take();
    if let Some(error) = value["error"].as_str() {
        bail!("{command}: {error}: {}", value["message"]);
    }
    Ok(value)
}

/// The port that the driver prints.
fn port(driver: &mut Child) -> Result<u16> {
    let output = driver.stdout.take().context("no output")?;
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next().transpose()? {
        if let Some((_, port)) = line.split_once("successfully on port ") {
            let port = port.trim_end_matches('.').parse()?;
            // The driver keeps writing, so its output must be read.
            std::thread::spawn(move || lines.for_each(drop));
            return Ok(port);
        }
    }
    bail!("{DRIVER} did not start")
}

fn find(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

fn pixels(png: &[u8]) -> Result<Vec<[u8; 3]>> {
    let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info()?;
    let size = reader.output_buffer_size().context("a large picture")?;
    let mut pixels = vec![0; size];
    let info = reader.next_frame(&mut pixels)?;
    let samples = info.color_type.samples();
    ensure!(samples >= 3, "{:?} has no colours", info.color_type);
    Ok(pixels
        .chunks_exact(samples)
        .map(|p| [p[0], p[1], p[2]])
        .collect())
}
