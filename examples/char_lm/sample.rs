//! Text generation with a trained model: one token after the other, each sampled from the model's distribution.
//!
//! A session caches keys and values, so that a token costs the products of one token. The model has learned positions for one
//! block: when the session is full, it is refilled with the last half of a block. So the context is between half a block and a
//! whole one.

use crate::model::Model;
use anyhow::{Context, Result, anyhow, ensure};
use attn::{
    generate::{Sampler, Sampling, SamplingError, Session},
    text::{Decoder, Vocabulary},
};
use std::io::Write;

/// The flags of generation.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct Flags {
    /// Prompt to continue [default: a new line]
    #[arg(long, alias = "start", value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) prompt: Option<String>,

    /// Tokens after the prompt
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub(crate) max_new_tokens: usize,

    /// Below 1 sampling prefers likely tokens; 0 always takes the likeliest
    #[arg(long, value_name = "T", default_value_t = 0.8)]
    pub(crate) temperature: f64,

    /// Sample from the K likeliest tokens only [default: all]
    #[arg(long, value_name = "K")]
    pub(crate) top_k: Option<usize>,

    /// Sample from the fewest likely tokens whose probabilities have this sum
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub(crate) top_p: f64,

    /// Sample from the tokens at least this fraction as likely as the likeliest
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub(crate) min_p: f64,

    /// Above 1, tokens that are in the text already are less likely
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub(crate) repetition_penalty: f64,
}

impl Flags {
    /// Checks the flags.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(
            self.prompt.as_deref() != Some(""),
            "--prompt is empty: the model needs at least one token to continue"
        );
        match Sampler::new(self.sampling(0, 0)) {
            Err(SamplingError::Option {
                option,
                value,
                expected,
            }) => {
                let flag = option.replace('_', "-");
                Err(anyhow!("--{flag} is {value}, but must be {expected}"))
            }
            other => Ok(other.map(drop)?),
        }
    }

    /// The sampling options for the first `vocabulary` tokens.
    pub(crate) fn sampling(&self, vocabulary: usize, seed: u64) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            vocabulary: Some(vocabulary),
            seed,
        }
    }

    /// The prompt as tokens. The default is a newline, or the first token if there is no newline.
    pub(crate) fn encode_prompt(&self, vocabulary: &Vocabulary) -> Result<Vec<usize>> {
        match &self.prompt {
            Some(prompt) => {
                let tokens = vocabulary.encode(prompt);
                tokens.context("cannot use this --prompt")
            }
            None => Ok(vocabulary.encode("\n").unwrap_or_else(|_| vec![0])),
        }
    }
}

/// Continues a text, token by token.
pub(crate) struct Writer<'a> {
    vocabulary: &'a Vocabulary,
    decoder: Decoder<'a>,
    session: Session<f32>,
    sampler: Sampler,
    text: Vec<usize>,
}

impl<'a> Writer<'a> {
    /// A writer for a model that was trained on blocks of `block` tokens.
    pub(crate) fn new(
        model: &Model,
        vocabulary: &'a Vocabulary,
        block: usize,
        sampling: Sampling,
    ) -> Result<Self> {
        Ok(Self {
            vocabulary,
            decoder: vocabulary.decoder(),
            session: model.session(block)?,
            sampler: Sampler::new(sampling)?,
            text: Vec::new(),
        })
    }

    /// Starts a new text. If a prompt is longer than a block, the model sees only its end.
    pub(crate) fn start(&mut self, prompt: &[usize]) -> Result<()> {
        self.decoder = self.vocabulary.decoder();
        self.text = prompt.to_vec();
        self.see_last(self.session.capacity())
    }

    fn write(&mut self) -> Result<String> {
        let token = self.sampler.choose(self.session.results(), &self.text)?;
        self.text.push(token);
        let block = self.session.capacity();
        if self.session.len() < block {
            self.session.step(token)?;
        } else {
            self.see_last(block.div_ceil(2))?;
        }
        Ok(self.decoder.push(token)?)
    }

    /// Restarts the session with the last tokens of the text.
    fn see_last(&mut self, tokens: usize) -> Result<()> {
        self.session.reset();
        let start = self.text.len().saturating_sub(tokens);
        self.session.prefill(&self.text[start..])?;
        Ok(())
    }
}

/// The text of each token after the prompt, without an end. It is empty if a token only starts a character.
impl Iterator for Writer<'_> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.write())
    }
}

/// Writes a text as it is generated, up to the text `stop`, and a newline.
///
/// A possible beginning of `stop` is held back until it is decided.
pub(crate) fn stream(
    pieces: impl IntoIterator<Item = Result<String>>,
    stop: Option<&str>,
    out: &mut impl Write,
) -> Result<()> {
    let mut held = String::new();
    for piece in pieces {
        held += &piece?;
        if let Some(at) = stop.and_then(|stop| held.find(stop)) {
            held.truncate(at);
            break;
        }
        let sure = held.len() - stop.map_or(0, |stop| overlap(&held, stop));
        write!(out, "{}", &held[..sure])?;
        out.flush()?;
        held.drain(..sure);
    }
    writeln!(out, "{held}")?;
    Ok(())
}

/// The length in bytes of the longest suffix of `text` that is a prefix of `stop`.
fn overlap(text: &str, stop: &str) -> usize {
    let begins = |&n: &usize| stop.is_char_boundary(n) && text.ends_with(&stop[..n]);
    (1..stop.len()).rev().find(begins).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;
    use attn::dfdx::prelude::*;

    fn greedy() -> Sampling {
        Sampling {
            temperature: 0.0,
            vocabulary: Some(26),
            ..Sampling::default()
        }
    }

    fn alphabet() -> Result<Vocabulary> {
        Ok(Vocabulary::characters(&('a'..='z').collect::<String>())?)
    }

    fn written(block: usize, prompt: &str, count: usize, sampling: Sampling) -> Result<String> {
        let model = model::build(&Cpu::seed_from_u64(3))?;
        let vocabulary = alphabet()?;
        let mut writer = Writer::new(&model, &vocabulary, block, sampling)?;
        writer.start(&vocabulary.encode(prompt)?)?;
        writer.take(count).collect()
    }

    /// The likeliest character after `seen`, by a pass over all of it.
    fn likeliest(model: &Model, seen: &[usize]) -> Result<usize> {
        let tokens = Cpu::default().tensor_from_vec(seen.to_vec(), (1, seen.len()));
        let logits = model.try_forward(tokens)?;
        let logits = &logits.as_vec()[(seen.len() - 1) * model::VOCAB..][..26];
        let best = (0..26).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
        Ok(best.unwrap_or(0))
    }

    #[test]
    fn a_session_writes_what_whole_passes_write() -> Result<()> {
        let model = model::build(&Cpu::seed_from_u64(3))?;
        let vocabulary = alphabet()?;
        for (block, prompt) in [(16, "begat"), (7, "b"), (1, "b"), (4, "begatbegat")] {
            let mut text = vocabulary.encode(prompt)?;
            let mut start = text.len().saturating_sub(block);
            for _ in 0..3 * block {
                text.push(likeliest(&model, &text[start..])?);
                if text.len() - start > block {
                    start = text.len() - block.div_ceil(2);
                }
            }
            let found = written(block, prompt, 3 * block, greedy())?;
            let expected = vocabulary.decode(&text)?;
            assert_eq!(format!("{prompt}{found}"), expected, "blocks of {block}");
        }
        Ok(())
    }

    #[test]
    fn a_seed_is_a_text() -> Result<()> {
        let of = |seed| {
            let sampling = Sampling {
                temperature: 1.0,
                seed,
                ..greedy()
            };
            written(8, "a", 50, sampling)
        };
        assert_eq!(of(1)?, of(1)?);
        assert_ne!(of(1)?, of(2)?);
        Ok(())
    }

    /// The streamed text, which must be the same by characters and in larger pieces.
    fn streamed(text: &str, stop: Option<&str>) -> Result<String> {
        let characters: Vec<char> = text.chars().collect();
        let of = |size| {
            let mut out = Vec::new();
            let pieces = characters
                .chunks(size)
                .map(|piece| Ok(piece.iter().collect()));
            stream(pieces, stop, &mut out)?;
            anyhow::Ok(String::from_utf8(out)?)
        };
        let found = of(1)?;
        for size in [2, 3, 100] {
            assert_eq!(of(size)?, found);
        }
        Ok(found)
    }

    #[test]
    fn a_stream_ends_before_the_text_that_stops_it() -> Result<()> {
        assert_eq!(streamed("and so", None)?, "and so\n");
        assert_eq!(streamed("aabaabaac!", Some("aabaac"))?, "aab\n");
        assert_eq!(streamed("Grüüße", Some("üß"))?, "Grü\n");
        assert_eq!(streamed("Amen", Some("Amen"))?, "\n");
        // The end may look like a beginning of `stop`.
        assert_eq!(streamed("so am", Some("amen"))?, "so am\n");
        assert_eq!(streamed("", Some("x"))?, "\n");
        Ok(())
    }

    #[test]
    fn what_may_be_the_stop_waits_and_nothing_else_does() {
        assert_eq!(overlap("xaab", "aabaac"), 3);
        assert_eq!(overlap("xaabaa", "aabaac"), 5);
        assert_eq!(overlap("x", "aabaac"), 0);
        assert_eq!(overlap("", "a"), 0);
    }
}
