//! A conversation, and the session that has read it.

use crate::folder::Folder;
use anyhow::{Result, bail};
use attn::{
    generate::{GenerateError, Sampling, Session, SessionError},
    text::ChatMessage,
};

/// How answers are chosen.
pub(crate) struct Options {
    pub(crate) system: Option<String>,
    pub(crate) sampling: Sampling,
    /// The most tokens of an answer.
    pub(crate) max_tokens: usize,
}

pub(crate) struct Conversation {
    session: Session<f32>,
    /// The tokens of the session.
    read: Vec<usize>,
    folder: Folder,
    /// The tokens that end an answer.
    ends: Vec<usize>,
    options: Options,
    messages: Vec<ChatMessage>,
}

/// The tokens of a conversation up to an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The tokens that the session had read before.
    pub(crate) kept: usize,
    /// The tokens that it read now.
    pub(crate) new: usize,
}

impl Conversation {
    pub(crate) fn new(session: Session<f32>, folder: Folder, options: Options) -> Self {
        let system = options.system.iter();
        Self {
            session,
            read: Vec::new(),
            ends: folder.ends(),
            folder,
            messages: system.map(ChatMessage::system).collect(),
            options,
        }
    }

    /// Answers a message. `write` takes the pieces of the answer, and says whether to go on.
    pub(crate) fn answer(
        &mut self,
        message: &str,
        write: impl FnMut(&str) -> Result<bool>,
    ) -> Result<Reading> {
        self.messages.push(ChatMessage::user(message));
        let tokens = self.tokens()?;
        let reading = self.keep_common(&tokens)?;
        let answer = self.generate(tokens, reading.kept, write)?;
        self.messages.push(ChatMessage::assistant(answer));
        // Each answer has random numbers of its own.
        self.options.sampling.seed = self.options.sampling.seed.wrapping_add(1);
        Ok(reading)
    }

    /// The tokens of the conversation, at whose end an answer begins. Without a template its messages are one text.
    fn tokens(&self) -> Result<Vec<usize>> {
        let Some(template) = &self.folder.template else {
            let texts = self.messages.iter().map(|message| message.content.as_str());
            return Ok(self.folder.vocabulary.encode(&texts.collect::<String>())?);
        };
        let text = template.render(&self.messages, true)?;
        // The template has written the special tokens.
        Ok(self
            .folder
            .vocabulary
            .encode_without_special_tokens(&text)?)
    }

    /// Cuts the session to what it has read of these tokens. A template may write earlier messages otherwise than before, and the tokens of a
    /// text may be others than those that were chosen.
    fn keep_common(&mut self, tokens: &[usize]) -> Result<Reading> {
        let capacity = self.session.capacity();
        if tokens.is_empty() {
            bail!("the conversation has no tokens");
        }
        if tokens.len() > capacity {
            bail!(
                "the conversation has {} tokens, and --context {capacity} has no place for them",
                tokens.len()
            );
        }
        let pairs = self.read.iter().zip(tokens);
        let common = pairs.take_while(|(old, new)| old == new).count();
        // The last token is read again, for its logits.
        let mut kept = common.min(tokens.len() - 1);
        if self.session.truncate(kept).is_err() {
            // A window has lost keys of these tokens.
            self.session.reset();
            kept = 0;
        }
        self.read.truncate(kept);
        Ok(Reading {
            kept,
            new: tokens.len() - kept,
        })
    }

    /// Writes an answer behind these tokens, of which the session has read some.
    fn generate(
        &mut self,
        tokens: Vec<usize>,
        kept: usize,
        mut write: impl FnMut(&str) -> Result<bool>,
    ) -> Result<String> {
        let mut decoder = self.folder.vocabulary.decoder().without_special_tokens();
        let mut answer = String::new();
        let mut say = |piece: String| {
            answer += &piece;
            write(&piece)
        };
        self.read = tokens;
        let Options {
            sampling,
            max_tokens,
            ..
        } = &self.options;
        let new = &self.read[kept..];
        let chosen = self.session.generate(new, sampling.clone(), &self.ends)?;
        let mut written = Vec::new();
        for token in chosen.take(*max_tokens) {
            let token = match token {
                // There is no place for more.
                Err(GenerateError::Session(SessionError::Full { .. })) => break,
                token => token?,
            };
            written.push(token);
            if !say(decoder.push(token)?)? {
                break;
            }
        }
        say(decoder.finish())?;
        // It has not read the last token.
        self.read.extend(written);
        self.read.truncate(self.session.len());
        Ok(answer)
    }
}
