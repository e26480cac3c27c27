//! The progress of training: a bar on a terminal, otherwise a line from time to time.

use anyhow::Result;
use attn::train::FitState;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    io::{IsTerminal, Write, stderr, stdout},
    time::{Duration, Instant},
};

/// Shows the loss, the speed and the time left.
pub(crate) struct Progress {
    /// The number of steps before this run, and of all steps.
    first: usize,
    steps: usize,
    log_interval: usize,
    bar: Option<ProgressBar>,
    start: Instant,
    /// The time of training steps only, and the characters they processed.
    training: Duration,
    characters: usize,
}

impl Progress {
    pub(crate) fn new(first: usize, steps: usize, log_interval: usize) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar =
                ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{wide_bar} {pos}/{len}  {msg}");
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self {
            first,
            steps,
            log_interval,
            bar,
            start: Instant::now(),
            training: Duration::ZERO,
            characters: 0,
        }
    }

    /// Reports a step and its duration.
    pub(crate) fn step(
        &mut self,
        state: &FitState,
        took: Duration,
        characters: usize,
    ) -> Result<()> {
        self.training += took;
        self.characters += characters;
        let step = state.step as usize;
        let steps = self.steps;
        let message = self.message(state);
        if let Some(bar) = &self.bar {
            bar.set_position(step as u64);
            bar.set_message(message);
        } else if step.is_multiple_of(self.log_interval) || step == steps {
            writeln!(stdout(), "step {step:>5}/{steps}  {message}")?;
        }
        Ok(())
    }

    /// Prints a line, above the bar if there is one.
    pub(crate) fn line(&self, line: &str) -> Result<()> {
        let write = || writeln!(stdout(), "{line}");
        match &self.bar {
            Some(bar) => bar.suspend(write)?,
            None => write()?,
        }
        Ok(())
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn message(&self, state: &FitState) -> String {
        let speed = self.characters as f64 / self.training.as_secs_f64().max(1e-9);
        let per_step =
            self.start.elapsed().as_secs_f64() / (state.step as usize - self.first) as f64;
        let left = per_step * (self.steps - state.step as usize) as f64;
        format!(
            "loss {:.3}  {} tokens/s  {} left",
            state.loss.unwrap_or(f64::NAN),
            thousands(speed as usize),
            minutes(left as u64),
        )
    }
}

/// 1234567 as 1,234,567.
pub(crate) fn thousands(n: usize) -> String {
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
pub(crate) fn minutes(seconds: u64) -> String {
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
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1000), "1,000");
        assert_eq!(thousands(1234567), "1,234,567");
    }

    #[test]
    fn times_are_minutes_and_seconds() {
        assert_eq!(minutes(5), "0:05");
        assert_eq!(minutes(245), "4:05");
        assert_eq!(minutes(3845), "1:04:05");
    }
}
