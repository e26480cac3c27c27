//! Writing text with a trained model: one character after the other, each chosen from the model's odds.
//!
//! A session remembers what the model has seen, so that a character costs the products of one character. The model has
//! learned its positions for one block: when the session is full, it starts again with the last half of a block. So the
//! model looks back over half a block to a whole one.

use crate::{
    model::Model,
    vocabulary::{Token, Vocabulary},
};
use anyhow::{Result, anyhow, ensure};
use attn::generate::{Sampler, Sampling, SamplingError, Session};
use std::io::Write;

/// What to write, and how each character is chosen.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct Flags {
    /// What is continued [default: a new line]
    #[arg(long, alias = "start", value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) prompt: Option<String>,

    /// Characters after the prompt
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub(crate) max_new_tokens: usize,

    /// Below 1 sampling keeps closer to what is likely; 0 always takes the likeliest
    #[arg(long, value_name = "T", default_value_t = 0.8)]
    pub(crate) temperature: f64,

    /// Sample among the K likeliest characters only [default: all]
    #[arg(long, value_name = "K")]
    pub(crate) top_k: Option<usize>,

    /// Sample among the fewest likely characters whose probabilities have this sum
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub(crate) top_p: f64,

    /// Sample among the characters at least this share as likely as the likeliest
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub(crate) min_p: f64,

    /// Above 1, characters that are in the text already are less likely
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub(crate) repetition_penalty: f64,
}

impl Flags {
    /// Refuses what cannot work.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(
            self.prompt.as_deref() != Some(""),
            "--prompt is empty: the model needs at least one character to continue"
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

    /// How to choose among the first `vocabulary` tokens.
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

    /// The prompt as tokens: a new line where none is given, or the first character where there is no new line.
    pub(crate) fn encode_prompt(&self, vocabulary: &Vocabulary) -> Result<Vec<Token>> {
        match &self.prompt {
            Some(prompt) => {
                let tokens = vocabulary.encode(prompt);
                tokens.map_err(|e| e.context("cannot use this --prompt"))
            }
            None => Ok(vocabulary.encode("\n").unwrap_or_else(|_| vec![0])),
        }
    }
}

/// Goes on with a text, character by character.
pub(crate) struct Writer<'a> {
    vocabulary: &'a Vocabulary,
    session: Session<f32>,
    sampler: Sampler,
    text: Vec<usize>,
}

impl<'a> Writer<'a> {
    /// Writes with a model that was trained on blocks of `block` characters.
    pub(crate) fn new(
        model: &Model,
        vocabulary: &'a Vocabulary,
        block: usize,
        sampling: Sampling,
    ) -> Result<Self> {
        Ok(Self {
            vocabulary,
            session: model.session(block)?,
            sampler: Sampler::new(sampling)?,
            text: Vec::new(),
        })
    }

    /// Begins a new text. Of a prompt longer than a block, the model sees the end.
    pub(crate) fn start(&mut self, prompt: &[Token]) -> Result<()> {
        self.text = prompt.iter().map(|&token| token.into()).collect();
        self.see_last(self.session.capacity())
    }

    fn write(&mut self) -> Result<char> {
        let token = self.sampler.choose(self.session.results(), &self.text)?;
        self.text.push(token);
        let block = self.session.capacity();
        if self.session.len() < block {
            self.session.step(token)?;
        } else {
            self.see_last(block.div_ceil(2))?;
        }
        Ok(self.vocabulary.decode(token as Token))
    }

    /// Starts the session again, with the last characters of the text.
    fn see_last(&mut self, characters: usize) -> Result<()> {
        self.session.reset();
        let start = self.text.len().saturating_sub(characters);
        self.session.prefill(&self.text[start..])?;
        Ok(())
    }
}

/// The characters after the prompt, without an end.
impl Iterator for Writer<'_> {
    type Item = Result<char>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.write())
    }
}

/// Writes characters as they come, up to the text `stop`, and a new line.
///
/// What may be the beginning of `stop` waits until it is known not to be.
pub(crate) fn stream(
    characters: impl IntoIterator<Item = Result<char>>,
    stop: Option<&str>,
    out: &mut impl Write,
) -> Result<()> {
    let mut held = String::new();
    for character in characters {
        held.push(character?);
        if let Some(before) = stop.and_then(|stop| held.strip_suffix(stop)) {
            held.truncate(before.len());
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

/// The length of the longest end of `text` that is a beginning of `stop`, in bytes.
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
        Vocabulary::of(&('a'..='z').collect::<String>(), model::VOCAB)
    }

    fn written(block: usize, prompt: &str, count: usize, sampling: Sampling) -> Result<String> {
        let (model, vocabulary) = (model::build(&Cpu::seed_from_u64(3))?, alphabet()?);
        let mut writer = Writer::new(&model, &vocabulary, block, sampling)?;
        writer.start(&vocabulary.encode(prompt)?)?;
        writer.take(count).collect()
    }

    /// The likeliest character after `seen`, when all of it goes through the model at once.
    fn likeliest(model: &Model, seen: &[Token]) -> Result<Token> {
        let tokens = seen.iter().map(|&t| t.into()).collect();
        let logits = model.try_forward(Cpu::default().tensor_from_vec(tokens, (1, seen.len())))?;
        let logits = &logits.as_vec()[(seen.len() - 1) * model::VOCAB..][..26];
        let best = (0..26).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
        Ok(best.unwrap_or(0) as Token)
    }

    #[test]
    fn a_session_writes_what_whole_passes_write() -> Result<()> {
        let (model, vocabulary) = (model::build(&Cpu::seed_from_u64(3))?, alphabet()?);
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
            let expected = vocabulary.decode_all(&text);
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

    fn streamed(text: &str, stop: Option<&str>) -> Result<String> {
        let mut out = Vec::new();
        stream(text.chars().map(Ok), stop, &mut out)?;
        Ok(String::from_utf8(out)?)
    }

    #[test]
    fn a_stream_ends_before_the_text_that_stops_it() -> Result<()> {
        assert_eq!(streamed("and so", None)?, "and so\n");
        assert_eq!(streamed("aabaabaac!", Some("aabaac"))?, "aab\n");
        assert_eq!(streamed("Grüüße", Some("üß"))?, "Grü\n");
        assert_eq!(streamed("Amen", Some("Amen"))?, "\n");
        // The end may look like a beginning.
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
