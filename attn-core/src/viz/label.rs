//! The labels of queries and keys.

use std::borrow::Cow;

use super::VizError;
use crate::maps::AttentionMap;

/// The maximum number of characters of a label. A longer one is cut off and ends with `…`.
const MAX_CHARACTERS: usize = 100;

/// The labels of queries and keys, for each sequence of the batch: words, characters, patches of an image.
///
/// Without a label the index is shown, for example for padding. Invisible characters are replaced by symbols: `␣` for a space at
/// an end, `↵` for a newline, `␛` for an escape. `…` replaces the rest after a hundred characters.
///
/// ```
/// use attn::viz::Labels;
///
/// let words = Labels::same([["the", "cat", "sat"]]); // self-attention
/// let translation = Labels::cross([["le", "chat"]], [["the", "cat", "sat"]]);
/// let characters = Labels::same(["two", "texts"].map(|text| text.chars().map(String::from).collect::<Vec<_>>()));
/// # let _ = (words, translation, characters);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Labels {
    queries: Vec<Vec<String>>,
    keys: Vec<Vec<String>>,
}

impl Labels {
    /// Indices only.
    pub fn indices() -> Self {
        Self::default()
    }

    /// The labels of self-attention, where queries and keys are the same: a list for each sequence.
    pub fn same<S, T>(sequences: S) -> Self
    where
        S: IntoIterator<Item = T>,
        T: IntoIterator<Item: Into<String>>,
    {
        let keys = collect(sequences);
        Self {
            queries: keys.clone(),
            keys,
        }
    }

    /// The labels of cross-attention: a list for the queries and one for the keys of each sequence.
    pub fn cross<Q, K, S, T>(queries: Q, keys: K) -> Self
    where
        Q: IntoIterator<Item = S>,
        K: IntoIterator<Item = T>,
        S: IntoIterator<Item: Into<String>>,
        T: IntoIterator<Item: Into<String>>,
    {
        Self {
            queries: collect(queries),
            keys: collect(keys),
        }
    }

    /// Checks that the map has all labelled queries, keys and sequences.
    pub(super) fn check(&self, map: &AttentionMap) -> Result<(), VizError> {
        let sides = [
            ("queries", &self.queries, map.queries()),
            ("keys", &self.keys, map.keys()),
        ];
        for (axis, sequences, room) in sides {
            if sequences.len() > map.batch() {
                return Err(VizError::Sequences {
                    map: map.name().into(),
                    found: sequences.len(),
                    expected: map.batch(),
                });
            }
            for (sequence, labels) in sequences.iter().enumerate() {
                if labels.len() > room {
                    return Err(VizError::Labels {
                        map: map.name().into(),
                        axis,
                        sequence,
                        found: labels.len(),
                        expected: room,
                    });
                }
            }
        }
        Ok(())
    }

    /// The label of a query.
    pub(super) fn query(&self, sequence: usize, index: usize) -> String {
        at(&self.queries, sequence, index)
    }

    /// The label of a key.
    pub(super) fn key(&self, sequence: usize, index: usize) -> String {
        at(&self.keys, sequence, index)
    }

    /// The labels of the queries of a sequence, and of its keys, as they are shown.
    pub(super) fn of_sequence(&self, sequence: usize) -> [Vec<String>; 2] {
        [&self.queries, &self.keys].map(|sequences| {
            let labels = sequences.get(sequence).into_iter().flatten();
            labels.map(|label| visible(label).into_owned()).collect()
        })
    }
}

fn collect<S, T>(sequences: S) -> Vec<Vec<String>>
where
    S: IntoIterator<Item = T>,
    T: IntoIterator<Item: Into<String>>,
{
    let sequences = sequences.into_iter();
    sequences
        .map(|labels| labels.into_iter().map(Into::into).collect())
        .collect()
}

fn at(sequences: &[Vec<String>], sequence: usize, index: usize) -> String {
    let label = sequences.get(sequence).and_then(|labels| labels.get(index));
    label.map_or_else(|| index.to_string(), |label| visible(label).into_owned())
}

/// The text with symbols for invisible characters, and for those that control a terminal or the text direction.
pub(super) fn visible(text: &str) -> Cow<'_, str> {
    if text.is_empty() {
        return "∅".into();
    }
    let characters = text.chars().count();
    let harmless = |c: char| !c.is_control() && !is_hidden(c);
    if characters <= MAX_CHARACTERS && text.trim() == text && text.chars().all(harmless) {
        return text.into();
    }
    let first = text.len() - text.trim_start_matches(' ').len();
    let last = text.trim_end_matches(' ').len();
    let signs = text
        .char_indices()
        .take(MAX_CHARACTERS)
        .map(|(at, c)| match c {
            ' ' if at < first || at >= last => '␣',
            '\n' => '↵',
            '\t' => '⇥',
            '\u{7f}' => '␡',
            c if c < ' ' => char::from_u32(0x2400 + c as u32).unwrap_or('�'),
            c if !harmless(c) => '�',
            c => c,
        });
    let mut shown: String = signs.collect();
    if characters > MAX_CHARACTERS {
        shown.push('…');
    }
    shown.into()
}

/// Line separators, direction marks, and characters without a width.
fn is_hidden(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_have_symbols() {
        let shown = [
            ("the cat", "the cat"),
            (" the ", "␣the␣"),
            ("  ", "␣␣"),
            ("\n", "↵"),
            ("a\tb\r", "a⇥b␍"),
            ("\u{1b}[2J", "␛[2J"),
            ("\u{202e}abc\u{2028}", "�abc�"),
            ("\u{9b}\u{7f}", "�␡"),
            ("", "∅"),
            ("é日", "é日"),
        ];
        for (text, expected) in shown {
            assert_eq!(visible(text), expected);
        }
    }

    #[test]
    fn long_texts_end_with_an_ellipsis() {
        let shown = visible(&"ä".repeat(101)).into_owned();
        assert_eq!(shown, "ä".repeat(100) + "…");
        assert_eq!(visible(&"ä".repeat(100)), "ä".repeat(100));
    }

    #[test]
    fn too_many_labels_are_refused_and_too_few_are_indices() {
        let map = AttentionMap::new("a", [1, 1, 1, 2], vec![0.5; 2]);
        let labels = Labels::cross([["q"]], [["k"]]);
        assert!(labels.check(&map).is_ok());
        assert_eq!(
            (labels.query(0, 0), labels.key(0, 0)),
            ("q".into(), "k".into())
        );
        assert_eq!(
            (labels.key(0, 1), labels.key(1, 0)),
            ("1".into(), "0".into())
        );
        let refused = |labels: Labels| labels.check(&map).map_err(|e| e.to_string());
        assert_eq!(
            refused(Labels::same([["x", "y"]])),
            Err("`a` has 1 queries in sequence 0, but 2 labels for them".into())
        );
        assert_eq!(
            refused(Labels::same([["x"], ["y"]])),
            Err("`a` has 1 sequence, but there are labels for 2".into())
        );
    }
}
