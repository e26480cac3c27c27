//! Patterns of names.

use super::error::MapProblem;

/// A pattern: each `{}` matches an index, and a `*` at the end matches the rest of a name.
#[derive(Clone, Copy)]
pub(super) struct Pattern<'a> {
    text: &'a str,
    /// Whether it ends with `*`.
    open: bool,
}

/// The parts of a name that the holes of a pattern matched.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Captured<'a> {
    indices: Vec<&'a str>,
    rest: &'a str,
}

impl<'a> Pattern<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        match text.strip_suffix('*') {
            Some(text) => Self { text, open: true },
            None => Self { text, open: false },
        }
    }

    /// A pattern for all names with this prefix.
    pub(super) fn prefix(text: &'a str) -> Self {
        Self { text, open: true }
    }

    pub(super) fn captures<'n>(self, name: &'n str) -> Option<Captured<'n>> {
        let mut texts = self.text.split("{}");
        let mut rest = name.strip_prefix(texts.next()?)?;
        let mut indices = Vec::new();
        for text in texts {
            let (index, after) = split_index(rest)?;
            indices.push(index);
            rest = after.strip_prefix(text)?;
        }
        (self.open || rest.is_empty()).then_some(Captured { indices, rest })
    }

    pub(super) fn matches(self, name: &str) -> bool {
        self.captures(name).is_some()
    }

    /// The pattern with its holes filled.
    pub(super) fn filled(self, captured: &Captured<'_>) -> String {
        let mut texts = self.text.split("{}");
        let mut name = texts.next().unwrap_or_default().to_string();
        for (text, index) in texts.zip(&captured.indices) {
            name.push_str(index);
            name.push_str(text);
        }
        name.push_str(captured.rest);
        name
    }

    /// The precedence over other patterns: the number of literal characters, or the maximum for a pattern without a `*`.
    pub(super) fn specificity(self) -> usize {
        if self.open {
            self.text.len()
        } else {
            usize::MAX
        }
    }

    fn holes(self) -> usize {
        self.text.matches("{}").count()
    }
}

/// Checks that the captures of each pattern fill the holes of the other.
pub(super) fn check_pair(ours: &str, theirs: &str) -> Result<(), MapProblem> {
    let a = Pattern::new(ours);
    let b = Pattern::new(theirs);
    let single = |pattern: Pattern<'_>| !pattern.text.contains('*');
    if single(a) && single(b) && a.holes() == b.holes() && a.open == b.open {
        return Ok(());
    }
    Err(MapProblem::Holes {
        ours: ours.into(),
        theirs: theirs.into(),
    })
}

/// Splits off the index at the start of a text: digits without leading zeros.
fn split_index(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (index, rest) = text.split_at(end.unwrap_or(text.len()));
    let canonical = !index.is_empty() && (index == "0" || !index.starts_with('0'));
    canonical.then_some((index, rest))
}
