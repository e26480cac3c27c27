//! Dates as people write them and as ISO 8601 has them, for the lessons that translate from one to the other.

#![allow(dead_code, reason = "no lesson uses all of it")]

use attn::{
    batches::{PaddedPairs, pad, pad_pairs},
    dfdx::prelude::*,
};
use rand::{Rng, rngs::StdRng, seq::SliceRandom};

/// The characters of both languages. The first is padding, the next two are the start and the end of an answer.
pub(crate) const CHARACTERS: &str = "_<>0123456789-abcdefghijklmnopqrstuvwxyz ,./";
pub(crate) const ROOM: usize = 0;
pub(crate) const BEGIN: usize = 1;
pub(crate) const END: usize = 2;

/// The length of an answer: ten characters and its end.
pub(crate) const ANSWER: usize = 11;

pub(crate) type Ids = Tensor<(usize, usize), usize, Cpu>;
pub(crate) type Lens = Tensor<(usize,), usize, Cpu>;

/// A day, a month, a year.
#[derive(Clone, Copy)]
pub(crate) struct Date {
    pub(crate) day: usize,
    pub(crate) month: usize,
    pub(crate) year: usize,
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// The number of days of a month.
fn days(month: usize, year: usize) -> usize {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl Date {
    /// A date of the training split, or of the tenth that is held out.
    pub(crate) fn random(rng: &mut StdRng, to_learn: bool) -> Self {
        loop {
            let month = rng.gen_range(1..=12);
            let year = rng.gen_range(1900..2100);
            let day = rng.gen_range(1..=days(month, year));
            let date = Date { day, month, year };
            let number = (date.year * 12 + date.month) * 31 + date.day;
            let is_kept_back = (number * 7919).is_multiple_of(10);
            if is_kept_back != to_learn {
                return date;
            }
        }
    }

    /// The day of the week, by Sakamoto's method.
    pub(crate) fn weekday(self) -> &'static str {
        const SHIFTS: [usize; 12] = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4];
        const NAMES: [&str; 7] = [
            "sunday",
            "monday",
            "tuesday",
            "wednesday",
            "thursday",
            "friday",
            "saturday",
        ];
        let year = self.year - usize::from(self.month < 3);
        let days = year + year / 4 - year / 100 + year / 400;
        NAMES[(days + SHIFTS[self.month - 1] + self.day) % 7]
    }

    pub(crate) fn iso(self) -> String {
        format!("{}-{:02}-{:02}", self.year, self.month, self.day)
    }

    /// The date in one of many written forms.
    pub(crate) fn text(self, rng: &mut StdRng) -> String {
        let Date { day, month, year } = self;
        let name = MONTHS[month - 1];
        let short = &name[..3];
        let ending = match day {
            1 | 21 | 31 => "st",
            2 | 22 => "nd",
            3 | 23 => "rd",
            _ => "th",
        };
        let ways = [
            format!("{day} {name} {year}"),
            format!("{name} {day}, {year}"),
            format!("{day}{ending} of {name} {year}"),
            format!("{day} {short} {year}"),
            format!("{short}. {day}, {year}"),
            format!("{day}/{month}/{year}"),
            format!("{day:02}.{month:02}.{year}"),
            format!("the {day}{ending} of {short} in {year}"),
        ];
        ways.choose(rng).cloned().unwrap_or_default()
    }
}

pub(crate) fn id(character: char) -> usize {
    CHARACTERS.find(character).unwrap_or(ROOM)
}

pub(crate) fn letter(id: usize) -> char {
    CHARACTERS.chars().nth(id).unwrap_or('?')
}

/// Dates as inputs and targets of a model: the answers begin with [`BEGIN`] and end with [`END`].
pub(crate) fn batch(dates: &[Date], texts: &[String], device: &Cpu) -> PaddedPairs<Cpu> {
    let texts = texts.iter().map(|text| ids(text));
    let answers = dates.iter().map(|date| ids(&format!("<{}>", date.iso())));
    pad_pairs(texts.zip(answers), ROOM, ROOM, device).expect("there is memory")
}

/// Texts as one batch, with padding and lengths.
pub(crate) fn encode(texts: &[String], device: &Cpu) -> (Ids, Lens) {
    let texts = texts.iter().map(|text| ids(text));
    let batch = pad(texts, ROOM, device).expect("there is memory");
    (batch.ids, batch.lens)
}

fn ids(text: &str) -> Vec<usize> {
    text.chars().map(id).collect()
}

pub(crate) fn likeliest(logits: &[f32]) -> usize {
    let mut best = 0;
    for (index, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = index;
        }
    }
    best
}
