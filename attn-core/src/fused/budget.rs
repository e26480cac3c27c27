//! The bound on the memory of a model: the choice of a plan, by its exact bytes, while the program is compiled.
//!
//! A plan splits each outer loop in two parts: the first rounds compute more again than the last ones. Which plan, and how many rounds are the
//! last ones, is the choice with the least work of those that fit. With more of them there is less work and, but for the first of them, more
//! memory: the most that fit are found by bisection.

/// The additional work of a plan, as the macro estimates it.
#[derive(Clone, Copy, Debug)]
pub struct PlanWork<'a> {
    /// Outside of loops.
    pub outside: u64,
    /// For each loop, that of a first and of a last round.
    pub rounds: &'a [[u64; 2]],
}

/// A plan by its index, and how many rounds of all loops, counted from the end, are last ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenPlan {
    /// The index of the plan.
    pub plan: usize,
    /// The number of last rounds.
    pub last: usize,
}

/// The search for a plan with at most so many bytes.
///
/// ```
/// use attn::__private::runtime::fused::{ChosenPlan, PlanSearch, PlanWork};
///
/// const fn bytes(at: ChosenPlan) -> usize {
///     match at.plan {
///         0 => 4000,
///         _ => 1000 + 300 * at.last,
///     }
/// }
/// const CHOSEN: ChosenPlan = {
///     let plans = &[PlanWork { outside: 0, rounds: &[[0, 0]] }, PlanWork { outside: 1, rounds: &[[5, 0]] }];
///     let mut search = PlanSearch::new(2000, &[6], plans);
///     while let Some(at) = search.next() {
///         search.takes(bytes(at));
///     }
///     search.chosen("Gpt", "batch = 8")
/// };
/// assert_eq!(CHOSEN, ChosenPlan { plan: 1, last: 3 });
/// ```
pub struct PlanSearch<'a> {
    budget: u64,
    rounds: &'a [usize],
    plans: &'a [PlanWork<'a>],
    /// The plan whose bytes are asked next. Its index is behind the last one when all plans are done.
    at: ChosenPlan,
    /// Why it is asked.
    step: Step,
    /// The last rounds among which the most that fit are.
    among: [usize; 2],
    best: Option<(u64, ChosenPlan)>,
    most: u64,
    least: u64,
}

/// A step of the search in one plan.
#[derive(Clone, Copy)]
enum Step {
    /// All rounds are last ones.
    All,
    Middle,
    /// One round more than one that does not fit with so many bytes, to see in which direction there are fewer.
    Beside(usize),
    /// No round is a last one.
    None,
}

impl<'a> PlanSearch<'a> {
    /// A search in some plans of a function with so many rounds of each loop.
    pub const fn new(budget: u64, rounds: &'a [usize], plans: &'a [PlanWork<'a>]) -> Self {
        PlanSearch {
            budget,
            rounds,
            plans,
            at: ChosenPlan {
                plan: 0,
                last: all_rounds(rounds),
            },
            step: Step::All,
            among: [0, 0],
            best: None,
            most: 0,
            least: u64::MAX,
        }
    }

    /// The plan whose bytes [`takes`](Self::takes) is to be told.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator is no constant function"
    )]
    pub const fn next(&self) -> Option<ChosenPlan> {
        match self.at.plan < self.plans.len() {
            true => Some(self.at),
            false => None,
        }
    }

    /// Goes on with the bytes of the plan that was asked for.
    pub const fn takes(&mut self, bytes: usize) {
        let at = self.at.last;
        let all = all_rounds(self.rounds);
        let fits = bytes as u64 <= self.budget;
        if self.at.plan == 0 && matches!(self.step, Step::All) {
            self.most = bytes as u64;
        }
        if (bytes as u64) < self.least {
            self.least = bytes as u64;
        }
        if fits {
            self.note();
        }
        match self.step {
            Step::All if fits || all == 0 || !self.is_split() => return self.next_plan(),
            Step::All => self.among = [0, all],
            Step::Middle if fits => self.among[0] = at + 1,
            Step::Middle if at + 1 < all => {
                self.step = Step::Beside(bytes);
                self.at.last = at + 1;
                return;
            }
            Step::Middle => self.among[1] = at,
            Step::Beside(_) if fits => self.among[0] = at + 1,
            Step::Beside(before) if bytes < before => self.among[0] = at + 1,
            Step::Beside(_) => self.among[1] = at - 1,
            Step::None => return self.next_plan(),
        }
        let [from, to] = self.among;
        if from < to {
            self.step = Step::Middle;
            self.at.last = from + (to - from) / 2;
            return;
        }
        let is_found = matches!(self.best, Some((_, best)) if best.plan == self.at.plan);
        if is_found {
            return self.next_plan();
        }
        self.step = Step::None;
        self.at.last = 0;
    }

    /// Takes the plan that was asked for, unless one with less work is known.
    const fn note(&mut self) {
        let work = self.work();
        let is_better = match self.best {
            Some((least, _)) => work < least,
            None => true,
        };
        if is_better {
            self.best = Some((work, self.at));
        }
    }

    const fn next_plan(&mut self) {
        self.at = ChosenPlan {
            plan: self.at.plan + 1,
            last: all_rounds(self.rounds),
        };
        self.step = Step::All;
    }

    /// Whether the first rounds of a loop compute more again than the last ones. If not, all numbers of last rounds are the same plan.
    const fn is_split(&self) -> bool {
        let loops = self.plans[self.at.plan].rounds;
        let mut index = 0;
        while index < loops.len() {
            let [first, last] = loops[index];
            if first != last {
                return true;
            }
            index += 1;
        }
        false
    }

    const fn work(&self) -> u64 {
        let of = self.plans[self.at.plan];
        let mut work = of.outside;
        let mut index = 0;
        while index < of.rounds.len() {
            let first = first_rounds(self.rounds, self.at.last, index) as u64;
            let last = self.rounds[index] as u64 - first;
            let [of_first, of_last] = of.rounds[index];
            work = work
                .saturating_add(first.saturating_mul(of_first))
                .saturating_add(last.saturating_mul(of_last));
            index += 1;
        }
        work
    }

    /// The plan with the least work that fits. `model` and `axes` are for the message.
    ///
    /// # Panics
    /// If nothing fits. In a constant that is an error of rustc, with the least bytes that are possible.
    #[track_caller]
    pub const fn chosen(&self, model: &str, axes: &str) -> ChosenPlan {
        if let Some((_, chosen)) = self.best {
            return chosen;
        }
        let text = Text::new()
            .add("the memory of `")
            .add(model)
            .add("` is ")
            .bytes(self.budget)
            .add(if axes.is_empty() { "" } else { " for " })
            .add(axes)
            .add(", and its training takes ")
            .bytes(self.least)
            .add(" at least: with ")
            .bytes(self.most)
            .add(" nothing is computed again");
        panic!("{}", text.get())
    }
}

/// How many rounds of the loop with this index are first ones, if so many of all rounds, counted from the end, are last ones.
///
/// ```
/// use attn::__private::runtime::fused::first_rounds;
///
/// assert_eq!([0, 1, 2].map(|index| first_rounds(&[2, 6, 3], 5, index)), [2, 4, 0]);
/// ```
pub const fn first_rounds(rounds: &[usize], last: usize, index: usize) -> usize {
    let mut behind = 0usize;
    let mut at = index + 1;
    while at < rounds.len() {
        behind = behind.saturating_add(rounds[at]);
        at += 1;
    }
    rounds[index].saturating_sub(last.saturating_sub(behind))
}

/// The rounds of all loops.
pub const fn all_rounds(rounds: &[usize]) -> usize {
    let mut sum = 0usize;
    let mut at = 0;
    while at < rounds.len() {
        sum = sum.saturating_add(rounds[at]);
        at += 1;
    }
    sum
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

    /// The least work that fits, found by asking for every plan with every number of last rounds.
    fn least(
        budget: u64,
        rounds: &[usize],
        plans: &[PlanWork<'_>],
        bytes: impl Fn(ChosenPlan) -> usize,
    ) -> Option<u64> {
        let all = (0..plans.len())
            .flat_map(|plan| (0..=all_rounds(rounds)).map(move |last| ChosenPlan { plan, last }));
        let fits = all.filter(|at| bytes(*at) as u64 <= budget);
        let work = fits.map(|at| work(rounds, plans, at));
        work.min()
    }

    fn work(rounds: &[usize], plans: &[PlanWork<'_>], at: ChosenPlan) -> u64 {
        let mut search = PlanSearch::new(0, rounds, plans);
        search.at = at;
        search.work()
    }

    fn search(
        budget: u64,
        rounds: &[usize],
        plans: &[PlanWork<'_>],
        bytes: impl Fn(ChosenPlan) -> usize,
    ) -> Option<ChosenPlan> {
        let mut search = PlanSearch::new(budget, rounds, plans);
        let mut asked = 0;
        while let Some(at) = search.next() {
            search.takes(bytes(at));
            asked += 1;
            assert!(asked < 1000, "it ends");
        }
        search.best.map(|(_, chosen)| chosen)
    }

    /// The search finds the plan with the least work that fits, for any number of rounds.
    #[test]
    fn the_least_work_that_fits_is_found() {
        let of_first = PlanWork {
            outside: 3,
            rounds: &[[10, 4]],
        };
        let of_last = PlanWork {
            outside: 0,
            rounds: &[[4, 0]],
        };
        let none = PlanWork {
            outside: 0,
            rounds: &[[0, 0]],
        };
        let plans = [none, of_first, of_last];
        for rounds in [0, 1, 2, 3, 7, 48] {
            let bytes = |at: ChosenPlan| {
                let (first, last) = (rounds - at.last, at.last);
                let [of_first, of_last, again] = [[9, 9, 0], [1, 5, 14], [5, 9, 6]][at.plan];
                let kept = 10 + first * of_first + last * of_last;
                let in_first = 10 + first * of_first + again;
                kept.max(if first == 0 { 0 } else { in_first })
            };
            for budget in 0..=10 + 9 * rounds as u64 {
                let found = search(budget, &[rounds], &plans, bytes);
                let expected = least(budget, &[rounds], &plans, bytes);
                let found_work = found.map(|at| work(&[rounds], &plans, at));
                assert_eq!(found_work, expected, "{rounds} rounds, {budget} bytes");
                assert!(found.is_none_or(|at| bytes(at) as u64 <= budget));
            }
        }
    }

    #[test]
    fn a_plan_that_splits_no_loop_is_asked_once() {
        let whole = PlanWork {
            outside: 7,
            rounds: &[[3, 3], [0, 0]],
        };
        let split = PlanWork {
            outside: 7,
            rounds: &[[3, 3], [1, 0]],
        };
        let plans = [whole, split, whole];
        let mut search = PlanSearch::new(10, &[8, 9], &plans);
        let mut asked = [0; 3];
        while let Some(at) = search.next() {
            asked[at.plan] += 1;
            search.takes(11);
        }
        assert_eq!([asked[0], asked[2]], [1, 1]);
        assert!(asked[1] > 1, "{asked:?}");
    }

    #[test]
    #[should_panic(
        expected = "the memory of `M` is 1024 bytes (1.0 KiB) for n = 2, and its training takes 1500000 bytes (1.5 MiB) at least: with \
                    2147483648 bytes (2.0 GiB) nothing is computed again"
    )]
    fn what_is_possible_is_said() {
        let none = PlanWork {
            outside: 0,
            rounds: &[],
        };
        let plans = [none; 3];
        let mut search = PlanSearch::new(1024, &[], &plans);
        while let Some(at) = search.next() {
            search.takes([1 << 31, 1_500_000, 1_600_000][at.plan]);
        }
        search.chosen("M", "n = 2");
    }
}
