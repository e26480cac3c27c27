//! The records of a run of training.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    LossChart, Metrics, Progress, Record, Report, VizError,
    progress::{minutes, thousands},
};
use crate::train::{FitEvent, FitState, StepReport};

/// The records of a run: progress on the terminal, `metrics.jsonl`, a chart and a report.
///
/// [`observe`](Self::observe) is told what happens, by [`Trainer::fit`](crate::train::Trainer::fit) or by [`fit()`](crate::train::fit()):
///
/// | | in `metrics.jsonl` |
/// | --- | --- |
/// | each step | `train_loss`, `learning_rate`, `gradient_norm` |
/// | each evaluation | `validation_loss`, and other measured numbers by their names |
///
/// Of several ranks, rank 0 alone is told, prints and writes; the table of the report has the bytes that each rank has sent, and the
/// time that it has waited for others.
///
/// Lines are on the disk before a checkpoint is saved. A resumed run drops those after its step, and its file is then the same, byte by
/// byte, as that of an uninterrupted run.
///
/// ```
/// use attn::train::{FitConfig, FitState, StepReport, fit};
/// use attn::viz::{Metrics, Record, TrainingLog, VizError};
/// use std::{convert::Infallible, ops::ControlFlow};
///
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// let mut state = FitState::default();
/// let mut log = TrainingLog::new(folder, &state)?.baseline("a guess", 2.0);
/// let mut step = |loss: f64| Ok::<_, VizError>(StepReport { loss, grad_norm: 1.0, ..Default::default() });
/// let batches = [5.0, 4.0, 3.0, 2.0, 1.0].map(Ok::<_, Infallible>);
/// let config = FitConfig { steps: 5, ..Default::default() };
/// fit(&mut step, batches, config, &mut state, |state, event| {
///     log.observe(state, event)?;
///     Ok(ControlFlow::Continue(()))
/// })?;
///
/// let losses = Record::series(&Metrics::read(folder.join("metrics.jsonl"))?, "train_loss");
/// assert_eq!(losses, [(1, 5.0), (2, 4.0), (3, 3.0), (4, 2.0), (5, 1.0)]);
/// log.report("A run")?.write(folder.join("report.html"))?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[doc(alias("TensorBoard", "wandb", "logger", "CSVLogger"))]
pub struct TrainingLog {
    path: PathBuf,
    /// The step that the run goes on from, if it is not new.
    resumed: Option<u64>,
    /// The file, which the first event opens: of several ranks, one alone has events.
    metrics: Option<Metrics>,
    progress: Progress,
    times: bool,
    title: String,
    baselines: Vec<(String, f64)>,
    /// The numbers that were measured after the last step.
    measured: (u64, Vec<&'static str>),
    /// The bytes that each rank has sent, of several, and the time that it has waited.
    ranks: Vec<(u64, Duration)>,
}

const FILE: &str = "metrics.jsonl";
const TRAIN_LOSS: &str = "train_loss";
const VALIDATION_LOSS: &str = "validation_loss";
const LEARNING_RATE: &str = "learning_rate";
const GRADIENT_NORM: &str = "gradient_norm";

impl TrainingLog {
    /// The records of a run in this folder, which is made if it is not there. A run that does not begin new continues
    /// its `metrics.jsonl`.
    ///
    /// # Errors
    /// [`VizError`] if a system call fails, if the records of the run so far cannot be read, or if the run begins new and there are records
    /// of steps: those of another run, which [`replacing`](Self::replacing) drops.
    pub fn new(folder: impl AsRef<Path>, state: &FitState) -> Result<Self, VizError> {
        let path = folder.as_ref().join(FILE);
        if is_new(state) && Metrics::read(&path)?.iter().any(|record| record.step > 0) {
            return Err(VizError::File {
                path,
                action: "begin the records of a new run",
                error: io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "there are those of another: resume it from its checkpoint, give another folder, or use `TrainingLog::replacing`",
                ),
            });
        }
        Self::replacing(folder, state)
    }

    /// As [`new`](Self::new), but a run that begins new replaces the records of a run before it, when it is told that it has started.
    ///
    /// # Errors
    /// [`VizError`] if a system call fails, or if the records of the run so far cannot be read.
    pub fn replacing(folder: impl AsRef<Path>, state: &FitState) -> Result<Self, VizError> {
        let folder = folder.as_ref();
        fs::create_dir_all(folder).map_err(|error| VizError::File {
            path: folder.into(),
            action: "make the folder",
            error,
        })?;
        let path = folder.join(FILE);
        let resumed = (!is_new(state)).then_some(state.step);
        if resumed.is_some() {
            Metrics::read(&path)?;
        }
        Ok(Self {
            path,
            resumed,
            metrics: None,
            progress: Progress::new(state),
            times: false,
            title: "Loss".into(),
            baselines: Vec::new(),
            measured: (state.step, Vec::new()),
            ranks: Vec::new(),
        })
    }

    /// Sets how many units a step processes, for the speed: `work(8 * 64, "tokens")`.
    pub fn work(mut self, count: usize, unit: &str) -> Self {
        self.progress = self.progress.work(count, unit);
        self
    }

    /// The number of steps between two lines of progress, where there is no bar. It is 100 by default.
    pub fn every(mut self, steps: u64) -> Self {
        self.progress = self.progress.every(steps);
        self
    }

    /// The title of the chart: `Loss, in nats per token`.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    /// Adds a loss to compare with, which is shown at each evaluation and in the chart.
    pub fn baseline(mut self, name: impl Into<String>, loss: f64) -> Self {
        self.baselines.push((name.into(), loss));
        self
    }

    /// Writes the speed of each step to `metrics.jsonl`, too, as `tokens_per_second` where tokens are the [work](Self::work). Two runs have
    /// different files then.
    pub fn times(mut self, times: bool) -> Self {
        self.times = times;
        self
    }

    /// Prints nothing.
    pub fn quiet(mut self) -> Self {
        self.progress = self.progress.quiet();
        self
    }

    /// Records and shows what has happened.
    ///
    /// # Errors
    /// [`VizError`] if a system call fails, or if two numbers of a step have one name.
    pub fn observe(&mut self, state: &FitState, event: FitEvent) -> Result<(), VizError> {
        match event {
            FitEvent::Started(config) => {
                self.metrics()?;
                self.progress.begin(config.steps);
            }
            FitEvent::Step(report) => self.step(state, report)?,
            FitEvent::Evaluated(loss) => {
                let values = [(VALIDATION_LOSS, loss)];
                self.metrics()?.write(state.step, &values)?;
                let compared = self.baselines.iter();
                let compared = compared.map(|(name, loss)| format!("{name} {loss:.3}"));
                let compared = match &compared.collect::<Vec<_>>()[..] {
                    [] => String::new(),
                    all => format!("  ({})", all.join(", ")),
                };
                let line = format!("validation loss {loss:.3}{compared}");
                self.line(state, &line);
            }
            FitEvent::Measured(name, number) => {
                self.check_name(state.step, name)?;
                self.metrics()?.write(state.step, &[(name, number)])?;
                self.line(state, &format!("{name} {number:.3}"));
            }
            // After a crash of the machine no checkpoint is newer than the lines.
            FitEvent::Saving => self.metrics()?.sync()?,
            FitEvent::Saved => {}
            FitEvent::Rank {
                bytes_sent, waited, ..
            } => self.ranks.push((bytes_sent, waited)),
        }
        self.progress.pause();
        Ok(())
    }

    fn step(&mut self, state: &FitState, report: StepReport) -> Result<(), VizError> {
        self.progress.step(state);
        let speed = self.speed_name();
        let mut measured = vec![(TRAIN_LOSS, report.loss)];
        measured.extend(report.learning_rate.map(|rate| (LEARNING_RATE, rate)));
        measured.push((GRADIENT_NORM, report.grad_norm));
        if self.times {
            measured.push((&speed, self.progress.speed()));
        }
        self.metrics()?.write(state.step, &measured)
    }

    /// The file of the records, which replaces that of another run.
    fn metrics(&mut self) -> Result<&mut Metrics, VizError> {
        Ok(match &mut self.metrics {
            Some(metrics) => metrics,
            none => none.insert(match self.resumed {
                None => Metrics::create(&self.path)?,
                Some(step) => Metrics::resume(&self.path, step)?,
            }),
        })
    }

    fn speed_name(&self) -> String {
        format!("{}_per_second", self.progress.unit())
    }

    /// Checks that no other number of this step has the name.
    fn check_name(&mut self, step: u64, name: &'static str) -> Result<(), VizError> {
        if self.measured.0 != step {
            self.measured = (step, Vec::new());
        }
        let own = [TRAIN_LOSS, VALIDATION_LOSS, LEARNING_RATE, GRADIENT_NORM];
        let reason = if own.contains(&name) || name == self.speed_name() {
            "it is recorded in any case"
        } else if self.measured.1.contains(&name) {
            "there are two of them"
        } else {
            self.measured.1.push(name);
            return Ok(());
        };
        let name = name.into();
        Err(VizError::Name { name, reason })
    }

    fn line(&mut self, state: &FitState, line: &str) {
        self.progress
            .line(&format!("step {:>5}  {line}", state.step));
    }

    /// The records so far.
    ///
    /// # Errors
    /// [`VizError`] if they cannot be read.
    pub fn records(&self) -> Result<Vec<Record>, VizError> {
        Metrics::read(&self.path)
    }

    /// The chart of the losses so far.
    ///
    /// # Errors
    /// [`VizError`] if the records cannot be read.
    pub fn chart(&self) -> Result<LossChart, VizError> {
        let records = self.records()?;
        let chart = LossChart::new(&self.title)
            .train(Record::series(&records, TRAIN_LOSS))
            .validation(Record::series(&records, VALIDATION_LOSS));
        let baselines = self.baselines.iter();
        Ok(baselines.fold(chart, |chart, (name, loss)| chart.baseline(name, *loss)))
    }

    /// The report of the run so far: its chart, and a table of results. Add what else belongs to it, and write it.
    ///
    /// # Errors
    /// [`VizError`] if the records cannot be read.
    pub fn report(&mut self, title: impl Into<String>) -> Result<Report, VizError> {
        self.progress.finish();
        let chart = self.chart()?.svg()?;
        let results = self.results()?;
        Ok(Report::new(title)
            .picture(
                "Loss",
                "The losses of training and validation, step by step.",
                &chart,
            )
            .table("Results", results))
    }

    /// The last number of each name, and the speed.
    fn results(&self) -> Result<Vec<(String, String)>, VizError> {
        let records = self.records()?;
        let mut names: Vec<&str> = vec![TRAIN_LOSS, VALIDATION_LOSS];
        let all = records.iter().flat_map(|record| &record.values);
        for (name, _) in all {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let mut rows = Vec::new();
        for name in names {
            let series = Record::series(&records, name);
            let Some((step, last)) = series.last() else {
                continue;
            };
            rows.push((
                name.replace('_', " "),
                format!("{} after step {step}", number(*last)),
            ));
            let lowest = series.iter().min_by(|a, b| a.1.total_cmp(&b.1));
            if let (VALIDATION_LOSS, Some((step, best))) = (name, lowest) {
                let best = format!("{} after step {step}", number(*best));
                rows.push(("lowest validation loss".into(), best));
            }
        }
        let baselines = self.baselines.iter();
        rows.extend(baselines.map(|(name, loss)| (name.clone(), number(*loss))));
        if self.progress.speed() > 0.0 {
            let speed = thousands(self.progress.speed() as usize);
            rows.push((format!("{} per second", self.progress.unit()), speed));
            let seconds = self.progress.elapsed().as_secs();
            rows.push(("time of this run".into(), minutes(seconds)));
        }
        for (rank, (bytes, waited)) in self.ranks.iter().enumerate() {
            let sent = format!("{:.1} MB", *bytes as f64 / 1e6);
            rows.push((format!("sent by rank {rank}"), sent));
            let waited = format!("{:.1} s", waited.as_secs_f64());
            rows.push((format!("waiting of rank {rank}"), waited));
        }
        Ok(rows)
    }

    /// Removes the progress bar.
    pub fn finish(&mut self) {
        self.progress.finish();
    }
}

/// Whether a run begins here.
fn is_new(state: &FitState) -> bool {
    *state == FitState::default()
}

/// Three places behind the point, or the digits of a very small number.
fn number(x: f64) -> String {
    match x == 0.0 || x.abs() >= 0.01 || x.is_nan() {
        true => format!("{x:.3}"),
        false => format!("{x:.2e}"),
    }
}
