//! Budgets of steps for analyses.
//!
//! Proofs, and the test whether a derivative vanishes, take exponentially many steps for some expressions. Each of these analyses
//! counts its steps and gives up when none are left. Its answer is "unknown" then, which is always correct: the layer is slower,
//! not wrong.

use std::cell::Cell;

/// The steps that are left to an analysis. A step is a few microseconds in a macro that is compiled without optimisation.
pub(crate) struct Budget {
    steps: usize,
    left: Cell<usize>,
}

impl Budget {
    pub(crate) fn new(steps: usize) -> Self {
        Budget {
            steps,
            left: Cell::new(steps),
        }
    }

    /// Takes `steps`. `false` if there are not as many left, and then none are.
    pub(crate) fn take(&self, steps: usize) -> bool {
        count(steps.min(self.left.get()));
        let left = self.left.get().checked_sub(steps);
        self.left.set(left.unwrap_or(0));
        left.is_some()
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.left.get() == 0
    }

    /// The steps that were taken.
    pub(crate) fn taken(&self) -> usize {
        self.steps - self.left.get()
    }
}

/// Counts the steps of the whole expansion for tests: those of budgets, and the parts of expressions that are built, read and
/// written.
pub(super) fn count(steps: usize) {
    #[cfg(test)]
    COUNTED.set(COUNTED.get() + steps);
    let _ = steps;
}

#[cfg(test)]
thread_local! {
    static COUNTED: Cell<usize> = const { Cell::new(0) };
}

/// The steps of this thread since the last call.
#[cfg(test)]
pub(crate) fn counted() -> usize {
    COUNTED.replace(0)
}
