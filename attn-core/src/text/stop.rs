//! The end of a generated text.

/// Ends a text that is generated piece by piece, before the first place with another text.
///
/// A piece that may begin the other text is held back until this is decided.
///
/// ```
/// use attn::text::StopText;
///
/// let mut stop = StopText::new("Amen");
/// assert_eq!(stop.push("and ever. A"), "and ever. ");
/// assert_eq!(stop.push(" man said: Am"), "A man said: ");
/// assert_eq!(stop.push("en. And"), "");
/// assert!(stop.is_reached());
/// ```
///
/// `transformers`: `generate(.., stop_strings="Amen")`, without the stop text in the result.
#[derive(Clone, Debug)]
#[doc(alias("stop_strings", "StopStringCriteria"))]
pub struct StopText {
    stop: String,
    /// The longest end of the text so far that is a beginning of `stop`.
    held: String,
    is_reached: bool,
}

impl StopText {
    /// Ends before this text. An empty one ends nothing.
    pub fn new(stop: impl Into<String>) -> Self {
        Self {
            stop: stop.into(),
            held: String::new(),
            is_reached: false,
        }
    }

    /// Adds a piece. Returns what is certainly a part of the text, which may be empty. After the end it is always empty.
    pub fn push(&mut self, piece: &str) -> String {
        if self.is_reached {
            return String::new();
        }
        self.held += piece;
        let found = self.held.find(&self.stop);
        if let Some(end) = found.filter(|_| !self.stop.is_empty()) {
            self.is_reached = true;
            self.held.truncate(end);
            return std::mem::take(&mut self.held);
        }
        let certain = self.held.len() - overlap(&self.held, &self.stop);
        let rest = self.held.split_off(certain);
        std::mem::replace(&mut self.held, rest)
    }

    /// Whether the text has ended.
    pub fn is_reached(&self) -> bool {
        self.is_reached
    }

    /// The rest of a text that ends without the stop text.
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
        let characters: Vec<char> = text.chars().collect();
        let of = |size| {
            let mut stop = StopText::new(stop);
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
    fn what_may_be_the_stop_waits_and_nothing_else_does() {
        assert_eq!(overlap("xaab", "aabaac"), 3);
        assert_eq!(overlap("xaabaa", "aabaac"), 5);
        assert_eq!(overlap("x", "aabaac"), 0);
        assert_eq!(overlap("", "a"), 0);
    }
}
