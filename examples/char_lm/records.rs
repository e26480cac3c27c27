//! The records of a run, beside its checkpoints: `metrics.jsonl`, `loss.svg` and `report.html`.

use crate::{
    baseline::Baselines,
    cli::Args,
    corpus::Corpus,
    model::{Gpt, Model},
};
use anyhow::Result;
use attn::{
    dfdx::prelude::*,
    train::FitState,
    viz::{self, Labels, Report, TrainingLog, Viewer, thousands},
};

/// The chart of the losses.
const CHART: &str = "loss.svg";
/// The report.
const REPORT: &str = "report.html";

/// The end of a run.
pub(crate) enum End<'a> {
    /// All steps are done, and these are the samples.
    Done(&'a [String]),
    /// The run was stopped after this step.
    Stopped(u64),
    /// The run failed with this error.
    Failed(&'a anyhow::Error),
}

impl End<'_> {
    fn text(&self) -> String {
        match self {
            Self::Done(_) => "all steps are done".into(),
            Self::Stopped(step) => format!("stopped after step {step}"),
            Self::Failed(error) => error.to_string(),
        }
    }
}

/// A run, for its records.
pub(crate) struct Records<'a> {
    pub(crate) args: &'a Args,
    pub(crate) corpus: &'a Corpus,
    pub(crate) baselines: &'a Baselines,
}

impl Records<'_> {
    /// Progress and metrics, which begin or go on at this state.
    pub(crate) fn log(&self, state: &FitState) -> Result<TrainingLog> {
        let options = &self.args.training;
        let tokens = options.tokens_per_step();
        // A new run has found no checkpoints, so that records of steps are those of a run that saved none.
        let log = TrainingLog::replacing(&self.args.out, state)?
            .every(options.log_interval as u64)
            .work(tokens, "tokens")
            .title(format!("Loss, in nats per {}", self.unit()))
            .baseline("unigram", self.baselines.unigram)
            .baseline("bigram", self.baselines.bigram);
        Ok(log)
    }

    /// Writes the chart and the report.
    pub(crate) fn write(&self, log: &mut TrainingLog, model: &Model, end: &End<'_>) -> Result<()> {
        let folder = &self.args.out;
        viz::write(folder.join(CHART), &log.chart()?.svg()?)?;
        let mut configuration = self.configuration();
        configuration.push(("end", end.text()));
        let mut report = log.report("char_lm")?.table("Configuration", configuration);
        if let End::Done(samples @ [_, ..]) = end {
            report = report.samples("Samples", *samples);
        }
        // The weights of a failed run may be damaged.
        if !matches!(end, End::Failed(_)) {
            report = self.with_maps(model, report)?;
        }
        let layers = "The layers of the model, and how values flow.";
        let report =
            report
                .text("Parameters", &Gpt::summary())
                .picture("Model", layers, Gpt::graph_svg());
        Ok(report.write(folder.join(REPORT))?)
    }

    /// The unit of a token.
    fn unit(&self) -> &'static str {
        self.corpus.vocabulary.unit()
    }

    fn configuration(&self) -> Vec<(&'static str, String)> {
        let Args { training, .. } = self.args;
        let data = self.args.data.as_deref();
        vec![
            (
                "text",
                data.map_or("the King James Bible".into(), |path| {
                    path.display().to_string()
                }),
            ),
            ("tokens to train on", thousands(self.corpus.train.len())),
            (
                "tokens to validate",
                thousands(self.corpus.validation.len()),
            ),
            (
                "vocabulary",
                format!("{} {}s", self.corpus.vocabulary.len(), self.unit()),
            ),
            ("seed", self.args.seed.to_string()),
            ("steps", training.steps.to_string()),
            ("batch size", training.batch_size.to_string()),
            ("block size", training.block_size.to_string()),
            (
                "batches of a step",
                training.gradient_accumulation_steps.to_string(),
            ),
            (
                "learning rate",
                format!(
                    "{} to {}",
                    training.learning_rate as f32,
                    training.lowest_rate() as f32
                ),
            ),
            ("warm-up", format!("{} steps", training.warmup())),
            ("weight decay", training.weight_decay.to_string()),
            ("gradient clipping", training.grad_clip.to_string()),
        ]
    }

    /// Adds the attention maps of the first block of the validation split.
    fn with_maps(&self, model: &Model, report: Report) -> Result<Report> {
        let text = &self.corpus.validation[..self.args.training.block_size];
        let tokens = Cpu::default().try_tensor_from_vec(text.to_vec(), (1, text.len()))?;
        let vocabulary = &self.corpus.vocabulary;
        let words = text.iter().map(|token| vocabulary.decode(&[*token]));
        let labels = Labels::same([words.collect::<Result<Vec<_>, _>>()?]);
        let mut viewer = Viewer::new("Attention to the beginning of the validation split");
        let maps = model.try_attention_maps(tokens)?;
        for map in &maps {
            viewer.add(map, &labels)?;
        }
        Ok(report.maps(&viewer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;
    use attn::{
        batches::Blocks,
        text::Vocabulary,
        train::{FitEvent, StepReport},
    };
    use clap::Parser;
    use std::fs;

    /// The report and the chart of a run with this end.
    fn written(end: &End<'_>, data: &str) -> Result<(String, String)> {
        let folder = tempfile::tempdir()?;
        let out = folder.path().join("run");
        let flags = ["char_lm", "--block-size=8", "--data", data, "--out"].map(String::from);
        let args = Args::parse_from(flags.into_iter().chain([out.display().to_string()]));
        let text = "In <the> beginning".repeat(20);
        let corpus = Corpus::new(&text, Vocabulary::characters(&text)?, 8)?;
        let measured = Blocks::new(&corpus.validation, (8, 8), &Cpu::default())?;
        let records = Records {
            args: &args,
            corpus: &corpus,
            baselines: &Baselines::of(&corpus, measured.ranges()),
        };
        let mut state = FitState::default();
        let mut log = records.log(&state)?.quiet();
        log.observe(&state, FitEvent::Evaluated(4.0))?;
        state.step = 1;
        let loss = 3.5;
        let step = StepReport {
            loss,
            ..StepReport::default()
        };
        log.observe(&state, FitEvent::Step(step))?;
        log.observe(&state, FitEvent::Evaluated(3.25))?;
        records.write(&mut log, &model::build(&Cpu::default())?, end)?;
        let read = |name| fs::read_to_string(out.join(name));
        Ok((read(CHART)?, read(REPORT)?))
    }

    #[test]
    fn a_run_that_is_done_leaves_a_chart_and_a_report() -> Result<()> {
        let samples = ["In the <b>".to_owned(), "and".to_owned()];
        let (chart, report) = written(&End::Done(&samples), "a<b>.txt")?;
        for part in ["bigram", "unigram", "validation", "training, smoothed"] {
            assert!(chart.contains(part), "{part}");
        }
        for part in [
            "a&lt;b&gt;.txt",
            "all steps are done",
            "In the &lt;b&gt;",
            "3.250 after step 1",
            "feed_forward",
        ] {
            assert!(report.contains(part), "{part}");
        }
        Ok(())
    }

    #[test]
    fn a_run_that_ended_early_says_so_and_has_no_samples() -> Result<()> {
        let error = anyhow::anyhow!("the loss is NaN at step 2");
        for (end, text) in [
            (End::Failed(&error), "the loss is NaN at step 2"),
            (End::Stopped(1), "stopped after step 1"),
        ] {
            let (_, report) = written(&end, "a")?;
            assert!(report.contains(text) && report.contains("3.250 after step 1"));
            assert!(!report.contains("Samples"));
        }
        Ok(())
    }
}
