//! The records of a run, beside its checkpoints: `metrics.jsonl`, `loss.svg` and `report.html`.

use crate::{
    baseline::Baselines,
    cli::Args,
    corpus::Corpus,
    model::{Gpt, Model},
    progress::thousands,
};
use anyhow::{Context, Result};
use attn::{
    dfdx::prelude::*,
    viz::{self, Labels, LossChart, Metrics, Record, Report, Viewer},
};
use std::{fs, path::Path};

/// Metrics by step.
const METRICS: &str = "metrics.jsonl";
/// The chart of the losses.
const CHART: &str = "loss.svg";
/// The report.
const REPORT: &str = "report.html";

/// The names of metrics.
pub(crate) const TRAIN_LOSS: &str = "train_loss";
pub(crate) const VALIDATION_LOSS: &str = "validation_loss";
pub(crate) const LEARNING_RATE: &str = "learning_rate";
pub(crate) const GRADIENT_NORM: &str = "gradient_norm";

/// Opens the metrics in this folder: of a new run, or of one that resumes after a step.
pub(crate) fn metrics(folder: &Path, resumed: Option<u64>) -> Result<Metrics> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let path = folder.join(METRICS);
    let metrics = match resumed {
        Some(step) => Metrics::resume(path, step),
        None => Metrics::create(path),
    };
    Ok(metrics?)
}

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
    pub(crate) model: &'a Model,
}

impl Records<'_> {
    /// Writes the chart and the report.
    pub(crate) fn write(&self, end: &End<'_>) -> Result<()> {
        let folder = &self.args.out;
        let records = Metrics::read(folder.join(METRICS))?;
        let chart = self.chart(&records).svg()?;
        viz::write(folder.join(CHART), &chart)?;
        let mut report = self.report(&records, &chart, end);
        if let End::Done(samples @ [_, ..]) = end {
            report = report.samples("Samples", *samples);
        }
        // The weights of a failed run may be damaged.
        if !matches!(end, End::Failed(_)) {
            report = self.with_maps(report)?;
        }
        let layers = "The layers of the model, and how values flow.";
        let report =
            report
                .text("Parameters", &Gpt::summary())
                .picture("Model", layers, Gpt::graph_svg());
        Ok(report.write(folder.join(REPORT))?)
    }

    fn chart(&self, records: &[Record]) -> LossChart {
        LossChart::new(format!("Loss, in nats per {}", self.unit()))
            .train(Record::series(records, TRAIN_LOSS))
            .validation(Record::series(records, VALIDATION_LOSS))
            .baseline("unigram", self.baselines.unigram)
            .baseline("bigram", self.baselines.bigram)
    }

    fn report(&self, records: &[Record], chart: &str, end: &End<'_>) -> Report {
        let last = Record::series(records, VALIDATION_LOSS).last().copied();
        let model = last.map_or("not measured".into(), |(step, loss)| {
            format!("{loss:.3} after step {step}")
        });
        let losses = [
            ("unigram", format!("{:.3}", self.baselines.unigram)),
            ("bigram", format!("{:.3}", self.baselines.bigram)),
            ("this model", model),
        ];
        let mut configuration = self.configuration();
        configuration.push(("end", end.text()));
        Report::new("char_lm")
            .table("Configuration", configuration)
            .picture(
                "Loss",
                "The losses of training and validation, step by step.",
                chart,
            )
            .table(
                &format!("Validation loss, in nats per {}", self.unit()),
                losses,
            )
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
    fn with_maps(&self, report: Report) -> Result<Report> {
        let text = &self.corpus.validation[..self.args.training.block_size];
        let tokens = Cpu::default().try_tensor_from_vec(text.to_vec(), (1, text.len()))?;
        let vocabulary = &self.corpus.vocabulary;
        let words = text.iter().map(|token| vocabulary.decode(&[*token]));
        let labels = Labels::same([words.collect::<Result<Vec<_>, _>>()?]);
        let mut viewer = Viewer::new("Attention to the beginning of the validation split");
        let maps = self.model.try_attention_maps(tokens)?;
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
    use attn::{batches::Blocks, text::Vocabulary};
    use clap::Parser;

    /// The report and the chart of a run with this end.
    fn written(end: &End<'_>, data: &str) -> Result<(String, String)> {
        let folder = tempfile::tempdir()?;
        let out = folder.path().join("run");
        let flags = ["char_lm", "--block-size=8", "--data", data, "--out"].map(String::from);
        let args = Args::parse_from(flags.into_iter().chain([out.display().to_string()]));
        let text = "In <the> beginning".repeat(20);
        let corpus = Corpus::new(&text, Vocabulary::characters(&text)?, 8)?;
        let measured = Blocks::new(&corpus.validation, (8, 8), &Cpu::default())?;
        let mut metrics = metrics(&out, None)?;
        metrics.write(0, &[(VALIDATION_LOSS, 4.0)])?;
        metrics.write(1, &[(TRAIN_LOSS, 3.5)])?;
        metrics.write(1, &[(VALIDATION_LOSS, 3.25)])?;
        let records = Records {
            args: &args,
            corpus: &corpus,
            baselines: &Baselines::of(&corpus, measured.ranges()),
            model: &model::build(&Cpu::default())?,
        };
        records.write(end)?;
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
