//! Names with holes.

use super::error::MapProblem;

/// Text in which each `{}` stands for an index, and a `*` at the end for whatever is left of a name.
#[derive(Clone, Copy)]
pub(super) struct Pattern<'a> {
    text: &'a str,
    /// Whether a `*` is at its end.
    open: bool,
}

/// The parts of a name that stand in the holes of a pattern.
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

    /// All names that begin as this says.
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

    /// The name with this in the holes.
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

    /// How much of a name it says. Nothing says more than one without a `*`.
    pub(super) fn literal_len(self) -> usize {
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

/// That what one pattern captures fills the other, and nothing is left over.
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

/// The index at the start of a text, as it is written in names: without zeros in front.
fn split_index(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (index, rest) = text.split_at(end.unwrap_or(text.len()));
    let canonical = !index.is_empty() && (index == "0" || !index.starts_with('0'));
    canonical.then_some((index, rest))
}
