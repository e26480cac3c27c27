//! Dates as C's `strftime` writes them, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The time in a format of `strftime`. Directives that are not known stay as they are; `%-d` is `%d` without zeros in front.
pub(super) fn format(format: &str, time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let date = Date::of(seconds.as_secs());
    let mut text = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        text += &rest[..at];
        let directive = &rest[at + 1..];
        let short = directive.strip_prefix('-');
        let letter = short.unwrap_or(directive).chars().next();
        let Some((letter, written)) = letter.and_then(|letter| Some((letter, date.write(letter)?)))
        else {
            text.push('%');
            rest = directive;
            continue;
        };
        let zeros = written.len() - written.trim_start_matches('0').len();
        text += match short {
            // One digit is left.
            Some(_) => &written[zeros.min(written.len() - 1)..],
            None => &written,
        };
        rest = &short.unwrap_or(directive)[letter.len_utf8()..];
    }
    text + rest
}

struct Date {
    year: u64,
    /// From 0.
    month: usize,
    day: u64,
    /// From Sunday, which is 0.
    day_of_week: usize,
    day_of_year: u64,
    /// Since midnight.
    seconds: u64,
}

impl Date {
    /// The date so many seconds after the beginning of 1970, which was a Thursday.
    fn of(seconds: u64) -> Self {
        let days = seconds / 86400;
        let mut year = 1970 + days / 366;
        while days >= days_before(year + 1) {
            year += 1;
        }
        let day_of_year = days - days_before(year);
        let february = if is_leap(year) { 29 } else { 28 };
        let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let (mut month, mut day) = (0, day_of_year);
        while day >= lengths[month] {
            day -= lengths[month];
            month += 1;
        }
        Self {
            year,
            month,
            day: day + 1,
            day_of_week: (days as usize + 4) % 7,
            day_of_year: day_of_year + 1,
            seconds: seconds % 86400,
        }
    }

    fn write(&self, letter: char) -> Option<String> {
        let two = |number: u64| format!("{number:02}");
        let (hour, minute, second) = (
            self.seconds / 3600,
            self.seconds / 60 % 60,
            self.seconds % 60,
        );
        Some(match letter {
            'Y' => self.year.to_string(),
            'y' => two(self.year % 100),
            'm' => two(self.month as u64 + 1),
            'B' => MONTHS[self.month].into(),
            'b' | 'h' => MONTHS[self.month][..3].into(),
            'd' => two(self.day),
            'e' => format!("{:2}", self.day),
            'j' => format!("{:03}", self.day_of_year),
            'A' => DAYS[self.day_of_week].into(),
            'a' => DAYS[self.day_of_week][..3].into(),
            'H' => two(hour),
            'I' => two((hour + 11) % 12 + 1),
            'M' => two(minute),
            'S' => two(second),
            'p' => if hour < 12 { "AM" } else { "PM" }.into(),
            'F' => format!("{}-{}-{}", self.year, self.write('m')?, self.write('d')?),
            'T' => format!("{}:{}:{}", two(hour), two(minute), two(second)),
            'Z' => "UTC".into(),
            'z' => "+0000".into(),
            '%' => "%".into(),
            _ => return None,
        })
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// The days from the beginning of 1970 to that of a year.
fn days_before(year: u64) -> u64 {
    let leap_days = |year: u64| year / 4 - year / 100 + year / 400;
    365 * (year - 1970) + leap_days(year - 1) - leap_days(1969)
}
