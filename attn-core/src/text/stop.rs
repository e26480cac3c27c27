//! The end of a generated text.

/// Ends a text that is generated piece by piece, before the first place with one of some other texts.
///
/// A piece that may begin such a text is held back until this is decided. The end does not depend on the pieces: it is the text that is
/// complete first, and of several that are complete at once the longest.
///
/// ```
/// use attn::text::StopText;
///
/// let mut stop = StopText::new("Amen");
/// assert_eq!(stop.push("and ever. A"), "and ever. ");
/// assert_eq!(stop.push(" man said: Am"), "A man said: ");
/// assert_eq!(stop.push("en. And"), "");
/// assert!(stop.is_reached());
///
/// let mut stop = StopText::any(["\nUser:", "\n\n"]);
/// assert_eq!(stop.push("Yes.\nU"), "Yes.");
/// assert_eq!(stop.push("nless\n"), "\nUnless");
/// assert_eq!(stop.push("\n"), "");
/// assert_eq!(stop.reached(), Some("\n\n"));
/// ```
///
/// `transformers`: `generate(.., stop_strings=["Amen"])`, without the stop text in the result; vLLM: `SamplingParams(stop=["Amen"])`.
#[derive(Clone, Debug)]
#[doc(alias("stop_strings", "StopStringCriteria", "stop"))]
pub struct StopText {
    /// None of them is empty.
    stops: Vec<String>,
    /// The longest end of the text so far that is a beginning of one of them.
    held: String,
    /// The index of the one that ended the text.
    reached: Option<usize>,
}

impl StopText {
    /// Ends before this text. An empty one ends nothing.
    pub fn new(stop: impl Into<String>) -> Self {
        Self::any([stop])
    }

    /// Ends before any of these texts. Empty ones end nothing.
    pub fn any(stops: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let stops = stops.into_iter().map(Into::into);
        Self {
            stops: stops.filter(|stop| !stop.is_empty()).collect(),
            held: String::new(),
            reached: None,
        }
    }

    /// Adds a piece. Returns what is certainly a part of the text, which may be empty. After the end it is always empty.
    pub fn push(&mut self, piece: &str) -> String {
        if self.is_reached() {
            return String::new();
        }
        self.held += piece;
        let stops = self.stops.iter().enumerate();
        let places = stops.filter_map(|(index, stop)| {
            let start = self.held.find(stop)?;
            Some((start + stop.len(), start, index))
        });
        if let Some((_, start, index)) = places.min() {
            self.reached = Some(index);
            self.held.truncate(start);
            return std::mem::take(&mut self.held);
        }
        let overlaps = self.stops.iter().map(|stop| overlap(&self.held, stop));
        let certain = self.held.len() - overlaps.max().unwrap_or(0);
        let rest = self.held.split_off(certain);
        std::mem::replace(&mut self.held, rest)
    }

    /// Whether the text has ended.
    pub fn is_reached(&self) -> bool {
        self.reached.is_some()
    }

    /// The text that ended it.
    #[doc(alias = "stop_reason")]
    pub fn reached(&self) -> Option<&str> {
        self.reached.map(|index| self.stops[index].as_str())
    }

    /// The rest of a text that ends without a stop text.
    pub fn finish(self) -> String {
        self.held
    }
}

/// The length in bytes of the longest suffix of `text` that is a prefix of `stop`, and not all of it.
fn overlap(text: &str, stop: &str) -> usize {
    let begins = |&n: &usize| stop.is_char_boundary(n) && text.ends_with(&stop[..n]);
    (1..stop.len()).rev().find(begins).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text that is left, which must be the same by characters and in larger pieces.
    fn left(text: &str, stop: &str) -> String {
        left_of_any(text, &[stop])
    }

    fn left_of_any(text: &str, stops: &[&str]) -> String {
        let characters: Vec<char> = text.chars().collect();
        let of = |size| {
            let mut stop = StopText::any(stops.iter().copied());
            let pieces = characters.chunks(size).map(String::from_iter);
            let text: String = pieces.map(|piece| stop.push(&piece)).collect();
            text + &stop.finish()
        };
        let found = of(1);
        for size in [2, 3, 100] {
            assert_eq!(of(size), found);
        }
        found
    }

    #[test]
    fn a_text_ends_before_the_one_that_stops_it() {
        assert_eq!(left("and so", ""), "and so");
        assert_eq!(left("aabaabaac!", "aabaac"), "aab");
        assert_eq!(left("Grüüße", "üß"), "Grü");
        assert_eq!(left("Amen", "Amen"), "");
        // The end may look like a beginning of `stop`.
        assert_eq!(left("so am", "amen"), "so am");
        assert_eq!(left("", "x"), "");
    }

    #[test]
    fn the_text_that_is_complete_first_ends_it() {
        // "cd" is complete before "bcde", although it begins later.
        assert_eq!(left_of_any("abcdef", &["bcde", "cd"]), "ab");
        assert_eq!(left_of_any("abcdef", &["cd", "bcd", ""]), "a");
        assert_eq!(left_of_any("aab", &["aac", "ab"]), "a");
        assert_eq!(left_of_any("Grüß", &["üß!", "ß!"]), "Grüß");
        assert_eq!(left_of_any("all", &[]), "all");
    }

    #[test]
    fn what_may_be_the_stop_waits_and_nothing_else_does() {
        assert_eq!(overlap("xaab", "aabaac"), 3);
        assert_eq!(overlap("xaabaa", "aabaac"), 5);
        assert_eq!(overlap("x", "aabaac"), 0);
        assert_eq!(overlap("", "a"), 0);
    }
}
