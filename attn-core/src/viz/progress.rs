//! The progress of training.

#[cfg(feature = "progress")]
use std::io;
use std::{
    io::{Write, stdout},
    time::{Duration, Instant},
};

use crate::train::FitState;

/// Shows the loss, the speed and the time that is left: as a bar on a terminal with the feature `progress`, and otherwise as a line from
/// time to time.
///
/// ```text
/// step   100/5000  loss 2.581  91,400 tokens/s  1:12 left
/// ```
#[derive(Debug)]
#[doc(alias("tqdm", "bar"))]
pub struct Progress {
    /// The number of steps of the whole run, if it is known, and of those before it began or was resumed, which its first step says.
    steps: Option<u64>,
    first: Option<u64>,
    /// The number of steps between two lines.
    every: u64,
    /// The number of units that a step processes, and their name.
    work: (usize, String),
    start: Instant,
    /// When the event before happened.
    last: Instant,
    /// The time in training steps, and how many there were.
    training: Duration,
    done: u64,
    quiet: bool,
    #[cfg(feature = "progress")]
    bar: Option<indicatif::ProgressBar>,
}

impl Progress {
    /// The progress of a run that begins at `state`. [`begin`](Self::begin) says how long it is.
    pub fn new(state: &FitState) -> Self {
        let now = Instant::now();
        Self {
            steps: None,
            first: Some(state.step),
            every: 100,
            work: (1, "steps".into()),
            start: now,
            last: now,
            training: Duration::ZERO,
            done: 0,
            quiet: false,
            #[cfg(feature = "progress")]
            bar: None,
        }
    }

    /// The run is up to so many steps, those before it was resumed too. Before this, and without it, it is not shown how long it takes.
    pub fn begin(&mut self, steps: u64) {
        self.steps = Some(steps);
        self.first = None;
        self.start = Instant::now();
        #[cfg(feature = "progress")]
        if !self.quiet {
            self.bar = bar(steps);
        }
        self.pause();
    }

    /// The number of steps between two lines, where there is no bar. It is 100 by default.
    pub fn every(mut self, steps: u64) -> Self {
        self.every = steps;
        self
    }

    /// Sets how many units a step processes, for the speed: `work(8 * 64, "tokens")`.
    pub fn work(mut self, count: usize, unit: &str) -> Self {
        self.work = (count, unit.into());
        self
    }

    /// Shows nothing, and measures the speed only.
    pub fn quiet(mut self) -> Self {
        self.finish();
        self.quiet = true;
        self
    }

    /// Shows that a step was taken, which began when something was shown last.
    pub fn step(&mut self, state: &FitState) {
        self.training += self.last.elapsed();
        self.done += 1;
        self.first.get_or_insert(state.step.saturating_sub(1));
        let message = self.message(state);
        let is_due = self.every > 0 && state.step.is_multiple_of(self.every);
        let is_last = Some(state.step) == self.steps;
        if !self.has_bar(state.step, &message) && (is_due || is_last) {
            let of = self
                .steps
                .map_or_else(String::new, |steps| format!("/{steps}"));
            self.line(&format!("step {:>5}{of}  {message}", state.step));
        }
        self.pause();
    }

    /// Prints a line, above the bar if there is one. After the first one that cannot be written, as when the reader of a pipe has gone, no
    /// other is: training goes on.
    pub fn line(&mut self, line: &str) {
        self.print(line, &mut stdout());
        self.pause();
    }

    fn print(&mut self, line: &str, to: &mut impl Write) {
        if !self.quiet {
            self.quiet = self.above_bar(|| writeln!(to, "{line}")).is_err();
        }
    }

    /// What took time since something was shown last, as an evaluation, is not a part of the next step.
    pub fn pause(&mut self) {
        self.last = Instant::now();
    }

    /// How much of its work the run has done in a second of its steps.
    pub fn speed(&self) -> f64 {
        self.done as f64 * self.work.0 as f64 / self.training.as_secs_f64().max(1e-9)
    }

    /// The unit of the work.
    pub fn unit(&self) -> &str {
        &self.work.1
    }

    /// The time since the run began.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Removes the bar.
    pub fn finish(&mut self) {
        #[cfg(feature = "progress")]
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    #[cfg(feature = "progress")]
    fn above_bar<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    #[cfg(not(feature = "progress"))]
    fn above_bar<R>(&self, print: impl FnOnce() -> R) -> R {
        print()
    }

    /// Whether there is a bar, which shows this.
    #[cfg(feature = "progress")]
    fn has_bar(&self, step: u64, message: &str) -> bool {
        if let Some(bar) = &self.bar {
            bar.set_position(step);
            bar.set_message(message.to_owned());
        }
        self.bar.is_some()
    }

    #[cfg(not(feature = "progress"))]
    fn has_bar(&self, _: u64, _: &str) -> bool {
        false
    }

    fn message(&self, state: &FitState) -> String {
        let loss = state.loss.unwrap_or(f64::NAN);
        let speed = thousands(self.speed() as usize);
        let unit = self.unit();
        let mut message = format!("loss {loss:.3}  {speed} {unit}/s");
        if let Some(steps) = self.steps {
            let done = state.step.saturating_sub(self.first.unwrap_or(0)).max(1);
            let per_step = self.elapsed().as_secs_f64() / done as f64;
            let left = per_step * steps.saturating_sub(state.step) as f64;
            message += &format!("  {} left", minutes(left as u64));
        }
        message
    }
}

/// A bar on standard error, if that is a terminal.
#[cfg(feature = "progress")]
fn bar(steps: u64) -> Option<indicatif::ProgressBar> {
    use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
    let is_terminal = io::IsTerminal::is_terminal(&io::stderr());
    is_terminal.then(|| {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len}  {msg}");
        bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    })
}

/// A number in groups of three digits.
///
/// ```
/// assert_eq!(attn::viz::thousands(1_234_567), "1,234,567");
/// ```
///
/// Python: `f"{n:,}"`.
pub fn thousands(n: usize) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Seconds as 4:05, or 1:04:05.
pub(super) fn minutes(seconds: u64) -> String {
    let hours = seconds / 3600;
    let minutes = seconds / 60 % 60;
    let seconds = seconds % 60;
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let found = [0, 999, 1000, 1_234_567].map(thousands);
        assert_eq!(found, ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn times_are_minutes_and_seconds() {
        assert_eq!([5, 245, 3845].map(minutes), ["0:05", "4:05", "1:04:05"]);
    }

    #[test]
    fn nothing_is_printed_after_a_line_that_cannot_be_written() {
        let mut progress = Progress::new(&FitState::default());
        progress.print("one", &mut &mut [0u8; 2][..]);
        let mut page = Vec::new();
        progress.print("two", &mut page);
        assert_eq!(page, b"");
    }

    #[test]
    fn a_state_before_that_of_the_beginning_has_a_message() {
        let state = FitState {
            step: 3,
            ..FitState::default()
        };
        let mut progress = Progress::new(&state);
        progress.begin(4);
        let message = progress.message(&FitState::default());
        assert!(message.ends_with(" left"), "{message}");
    }

    #[test]
    fn the_time_left_is_by_the_steps_since_the_last_beginning() {
        let mut state = FitState::default();
        let mut progress = Progress::new(&state).quiet();
        for (steps, first) in [(2, 0), (4, 2)] {
            progress.begin(steps);
            while state.step < steps {
                state.step += 1;
                progress.step(&state);
            }
            assert_eq!(progress.first, Some(first));
        }
    }

    #[test]
    fn without_an_end_no_time_is_left() {
        let progress = Progress::new(&FitState::default());
        let message = progress.message(&FitState::default());
        assert!(message.ends_with(" steps/s"), "{message}");
    }

    #[test]
    fn the_speed_is_that_of_the_steps_alone() {
        let mut state = FitState::default();
        let mut progress = Progress::new(&state).every(0).work(500, "tokens");
        progress.begin(4);
        for step in 1..=3 {
            std::thread::sleep(Duration::from_millis(20));
            progress.pause();
            state.step = step;
            progress.step(&state);
        }
        // A step takes microseconds; with the pauses it would be at most 1500 in 60 ms.
        assert!(progress.speed() > 25_000.0, "{}", progress.speed());
        let message = progress.message(&state);
        assert!(message.starts_with("loss NaN  "), "{message}");
        assert!(message.ends_with("tokens/s  0:00 left"), "{message}");
    }
}
