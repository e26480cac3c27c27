//! Masks in the words of the documentation: the oracle for the definitions.

use std::collections::BTreeSet;
use std::fmt;

use proptest::prelude::*;

/// One word of the algebra, with its arguments.
#[derive(Clone, Debug)]
pub(in crate::tests) enum Word {
    None,
    Causal(Align),
    SlidingWindow(Window, Align),
    DilatedSlidingWindow(Window, i64, Align),
    PrefixLm(i64, Align),
    Chunked(i64, Align),
    Padding,
    Document,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::tests) struct Window {
    pub(in crate::tests) n: i64,
    pub(in crate::tests) symmetric: bool,
}

/// The alignment of queries with keys, as written. `Unsaid` is the upper left.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::tests) enum Align {
    Unsaid,
    UpperLeft,
    LowerRight,
}

/// Words combined.
#[derive(Clone, Debug)]
pub(in crate::tests) enum Formula {
    Word(Word),
    Not(Box<Formula>),
    And(Box<Formula>, Box<Formula>),
    Or(Box<Formula>, Box<Formula>),
    /// Parentheses, which may be redundant.
    Grouped(Box<Formula>),
}

/// A pair of a query and a key in a call.
#[derive(Clone, Copy, Debug)]
pub(in crate::tests) struct Pair {
    pub(in crate::tests) b: i64,
    pub(in crate::tests) q: i64,
    pub(in crate::tests) k: i64,
    pub(in crate::tests) q_len: i64,
    pub(in crate::tests) kv_len: i64,
}

/// The data of the calls in these tests: every third key is padding, different for each query and sequence.
pub(in crate::tests) fn is_valid(b: i64, q: i64, k: i64) -> bool {
    (b + 2 * q + k) % 3 != 0
}

/// Documents of two queries each.
pub(in crate::tests) fn query_document(b: i64, q: i64) -> i64 {
    (q + b) / 2
}

/// Documents of three keys each.
pub(in crate::tests) fn key_document(b: i64, k: i64) -> i64 {
    (k + 2 * b) / 3
}

impl Word {
    /// Whether the query attends to the key.
    pub(in crate::tests) fn attends(&self, pair: Pair) -> bool {
        let Pair { b, q, k, .. } = pair;
        let at = |align: Align| match align {
            Align::Unsaid | Align::UpperLeft => q,
            Align::LowerRight => q - pair.q_len + pair.kv_len,
        };
        let in_window = |window: Window, reach: i64, q: i64| {
            let keys = if window.symmetric {
                q - reach + 1..q + reach
            } else {
                q - reach + 1..q + 1
            };
            keys.contains(&k)
        };
        match *self {
            Word::None => true,
            Word::Causal(align) => k <= at(align),
            Word::SlidingWindow(window, align) => in_window(window, window.n, at(align)),
            Word::DilatedSlidingWindow(window, dilation, align) => {
                let q = at(align);
                let step = (q - k).rem_euclid(dilation) == 0;
                step && in_window(window, window.n * dilation, q)
            }
            Word::PrefixLm(n, align) => (0..n).contains(&k) || k <= at(align),
            Word::Chunked(n, align) => at(align).div_euclid(n) == k.div_euclid(n),
            Word::Padding => is_valid(b, q, k),
            Word::Document => query_document(b, q) == key_document(b, k),
        }
    }

    /// All words with these small numbers, in every variant.
    pub(in crate::tests) fn all(numbers: &[i64]) -> Vec<Word> {
        let aligns = [Align::Unsaid, Align::UpperLeft, Align::LowerRight];
        let mut words = vec![Word::None, Word::Padding, Word::Document];
        for align in aligns {
            words.push(Word::Causal(align));
            for &n in numbers {
                words.extend([Word::PrefixLm(n, align), Word::Chunked(n, align)]);
                for symmetric in [false, true] {
                    let window = Window { n, symmetric };
                    words.push(Word::SlidingWindow(window, align));
                    let dilated = |&dilation| Word::DilatedSlidingWindow(window, dilation, align);
                    words.extend(numbers.iter().map(dilated));
                }
            }
        }
        words
    }
}

impl Formula {
    pub(in crate::tests) fn attends(&self, pair: Pair) -> bool {
        match self {
            Formula::Word(word) => word.attends(pair),
            Formula::Not(a) => !a.attends(pair),
            Formula::And(a, b) => a.attends(pair) && b.attends(pair),
            Formula::Or(a, b) => a.attends(pair) || b.attends(pair),
            Formula::Grouped(a) => a.attends(pair),
        }
    }

    /// The precedence of its outermost operator.
    fn tightness(&self) -> u8 {
        match self {
            Formula::Or(..) => 0,
            Formula::And(..) => 1,
            Formula::Not(_) | Formula::Word(_) | Formula::Grouped(_) => 2,
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, level: u8) -> fmt::Result {
        if self.tightness() < level {
            f.write_str("(")?;
            self.write(f, 0)?;
            return f.write_str(")");
        }
        match self {
            Formula::Word(word) => write!(f, "{word}"),
            Formula::Not(a) => {
                f.write_str("!")?;
                a.write(f, 2)
            }
            Formula::And(a, b) => {
                a.write(f, 1)?;
                f.write_str(" & ")?;
                b.write(f, 2)
            }
            Formula::Or(a, b) => {
                a.write(f, 0)?;
                f.write_str(" | ")?;
                b.write(f, 1)
            }
            Formula::Grouped(a) => {
                f.write_str("(")?;
                a.write(f, 0)?;
                f.write_str(")")
            }
        }
    }
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, mut args, align) = match *self {
            Word::None => ("none", vec![], Align::Unsaid),
            Word::Causal(align) => ("causal", vec![], align),
            Word::SlidingWindow(window, align) => ("sliding_window", window.args(None), align),
            Word::DilatedSlidingWindow(window, dilation, align) => {
                ("dilated_sliding_window", window.args(Some(dilation)), align)
            }
            Word::PrefixLm(n, align) => ("prefix_lm", vec![n.to_string()], align),
            Word::Chunked(n, align) => ("chunked", vec![n.to_string()], align),
            Word::Padding => ("padding", vec![], Align::Unsaid),
            Word::Document => ("document", vec![], Align::Unsaid),
        };
        match align {
            Align::Unsaid => {}
            Align::UpperLeft => args.push("upper_left".to_owned()),
            Align::LowerRight => args.push("lower_right".to_owned()),
        }
        if args.is_empty() {
            f.write_str(name)
        } else {
            write!(f, "{name}({})", args.join(", "))
        }
    }
}

impl Window {
    fn args(self, dilation: Option<i64>) -> Vec<String> {
        let numbers = [Some(self.n), dilation].into_iter().flatten();
        let symmetric = self.symmetric.then(|| "symmetric".to_owned());
        numbers.map(|n| n.to_string()).chain(symmetric).collect()
    }
}

/// A formula of a few words. Without `data`, no word takes data of the call. In `cross`-attention every word states the
/// alignment.
pub(in crate::tests) fn formulas(cross: bool, data: bool) -> impl Strategy<Value = Formula> {
    let words: Vec<Word> = Word::all(&[1, 2, 3, 5])
        .into_iter()
        .filter(|word| data || !matches!(word, Word::Padding | Word::Document))
        .filter(|word| !cross || !word.needs_alignment())
        .collect();
    let word = prop::sample::select(words).prop_map(Formula::Word);
    word.prop_recursive(4, 8, 2, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            inner.clone().prop_map(|a| Formula::Not(Box::new(a))),
            pair.clone()
                .prop_map(|(a, b)| Formula::And(Box::new(a), Box::new(b))),
            pair.prop_map(|(a, b)| Formula::Or(Box::new(a), Box::new(b))),
            inner.prop_map(|a| Formula::Grouped(Box::new(a))),
        ]
    })
    .prop_filter("each data once", |formula| {
        let text = formula.to_string();
        ["padding", "document"]
            .iter()
            .all(|data| text.matches(data).count() < 2)
    })
}

impl Formula {
    /// The periods above 1: dilations and lengths of chunks.
    pub(in crate::tests) fn periods(&self) -> BTreeSet<i64> {
        match self {
            Formula::Word(Word::DilatedSlidingWindow(_, n, _) | Word::Chunked(n, _)) => {
                [*n].into_iter().filter(|n| *n > 1).collect()
            }
            Formula::Word(_) => BTreeSet::new(),
            Formula::Not(a) | Formula::Grouped(a) => a.periods(),
            Formula::And(a, b) | Formula::Or(a, b) => &a.periods() | &b.periods(),
        }
    }
}

impl Word {
    /// Whether it compares positions without stating the alignment, which cross-attention does not allow.
    pub(in crate::tests) fn needs_alignment(&self) -> bool {
        self.align() == Some(Align::Unsaid)
    }

    fn align(&self) -> Option<Align> {
        match *self {
            Word::Causal(align)
            | Word::SlidingWindow(_, align)
            | Word::DilatedSlidingWindow(_, _, align)
            | Word::PrefixLm(_, align)
            | Word::Chunked(_, align) => Some(align),
            Word::None | Word::Padding | Word::Document => None,
        }
    }
}
