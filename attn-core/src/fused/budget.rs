//! The bound on the memory of a model: the choice of a plan, by its exact bytes, while the program is compiled.

/// The first of some plans with at most `budget` bytes, by the bytes of each. `model` and `axes` are for the message.
///
/// ```
/// use attn::__private::runtime::fused::first_that_fits;
///
/// const CHOSEN: usize = first_that_fits("Gpt", "batch = 8", 2000, &[4000, 1900, 1000]);
/// assert_eq!(CHOSEN, 1);
/// ```
///
/// # Panics
/// If none fits. In a constant that is an error of rustc, with the least bytes that are possible.
#[track_caller]
pub const fn first_that_fits(model: &str, axes: &str, budget: u64, bytes: &[usize]) -> usize {
    let mut least = u64::MAX;
    let mut plan = 0;
    while plan < bytes.len() {
        if bytes[plan] as u64 <= budget {
            return plan;
        }
        if (bytes[plan] as u64) < least {
            least = bytes[plan] as u64;
        }
        plan += 1;
    }
    let text = Text::new()
        .add("the memory of `")
        .add(model)
        .add("` is ")
        .bytes(budget)
        .add(if axes.is_empty() { "" } else { " for " })
        .add(axes)
        .add(", and its training takes ")
        .bytes(least)
        .add(" at least: with ")
        .bytes(bytes[0] as u64)
        .add(" nothing is computed again");
    panic!("{}", text.get())
}

/// A text that a constant makes. What is too long for it is left out.
struct Text {
    bytes: [u8; 512],
    len: usize,
}

impl Text {
    const fn new() -> Self {
        Text {
            bytes: [0; 512],
            len: 0,
        }
    }

    const fn add(mut self, text: &str) -> Self {
        let text = text.as_bytes();
        if text.len() <= self.bytes.len() - self.len {
            let mut at = 0;
            while at < text.len() {
                self.bytes[self.len] = text[at];
                self.len += 1;
                at += 1;
            }
        }
        self
    }

    const fn number(mut self, number: u64) -> Self {
        if number >= 10 {
            self = self.number(number / 10);
        }
        let digit = [b'0' + (number % 10) as u8];
        match core::str::from_utf8(&digit) {
            Ok(digit) => self.add(digit),
            Err(_) => self,
        }
    }

    /// `67108864 bytes (64.0 MiB)`. The second number is rounded up: as a bound it is enough.
    const fn bytes(self, bytes: u64) -> Self {
        const UNITS: [(&str, u64); 3] = [(" GiB", 1 << 30), (" MiB", 1 << 20), (" KiB", 1 << 10)];
        let text = self.number(bytes).add(" bytes");
        let mut unit = 0;
        while unit < UNITS.len() {
            let (name, size) = UNITS[unit];
            if bytes >= size {
                let tenths = (bytes / size) * 10 + (bytes % size * 10).div_ceil(size);
                let text = text.add(" (").number(tenths / 10).add(".");
                return text.number(tenths % 10).add(name).add(")");
            }
            unit += 1;
        }
        text
    }

    const fn get(&self) -> &str {
        let (text, _) = self.bytes.split_at(self.len);
        match core::str::from_utf8(text) {
            Ok(text) => text,
            Err(_) => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_plan_that_fits_is_taken() {
        assert_eq!(first_that_fits("M", "", 10, &[20, 10, 5]), 1);
        assert_eq!(first_that_fits("M", "", u64::MAX, &[usize::MAX]), 0);
        assert_eq!(first_that_fits("M", "", 5, &[20, 6, 7, 5]), 3);
    }

    #[test]
    #[should_panic(
        expected = "the memory of `M` is 1024 bytes (1.0 KiB) for n = 2, and its training takes 1500000 bytes (1.5 MiB) at least: with \
                    2147483648 bytes (2.0 GiB) nothing is computed again"
    )]
    fn what_is_possible_is_said() {
        first_that_fits("M", "n = 2", 1024, &[1 << 31, 1_500_000, 1_600_000]);
    }
}
