//! An observer records the results of the operations of a pass.

use std::{cell::RefCell, rc::Rc};

/// Observes the results of the operations of a pass in the order of execution, and their gradients.
#[derive(Clone, Debug)]
pub struct Observer {
    keeps_numbers: bool,
    seen: Rc<RefCell<Seen>>,
}

/// The results of a pass and its first gradient that is not finite.
#[derive(Debug, Default)]
pub struct Seen {
    /// The results, in the order of execution.
    pub results: Vec<Observed>,
    /// The result whose gradient was the first one that is not finite, by its index, with the number.
    pub gradient: Option<(usize, f64)>,
}

/// The result of an operation.
#[derive(Debug)]
pub struct Observed {
    /// The size of each axis.
    pub shape: Vec<usize>,
    /// The numbers, row-major, if they are kept.
    pub numbers: Vec<f64>,
    /// The first number that is not finite.
    pub not_finite: Option<f64>,
}

impl Observer {
    /// An observer that keeps all numbers of the results.
    pub fn of_numbers() -> Self {
        Self::new(true)
    }

    /// An observer of numbers that are not finite.
    pub fn of_finiteness() -> Self {
        Self::new(false)
    }

    fn new(keeps_numbers: bool) -> Self {
        Self {
            keeps_numbers,
            seen: Rc::default(),
        }
    }

    /// Notes a result, and returns its index.
    pub(crate) fn result(
        &self,
        shape: Vec<usize>,
        numbers: impl Iterator<Item = f64> + Clone,
    ) -> usize {
        let results = &mut self.seen.borrow_mut().results;
        results.push(Observed {
            shape,
            numbers: match self.keeps_numbers {
                true => numbers.clone().collect(),
                false => Vec::new(),
            },
            not_finite: { numbers }.find(|number| !number.is_finite()),
        });
        results.len() - 1
    }

    /// Notes the first number that is not finite in the gradient of a result.
    pub(crate) fn gradient(&self, result: usize, not_finite: Option<f64>) {
        let first = &mut self.seen.borrow_mut().gradient;
        *first = first.or(not_finite.map(|number| (result, number)));
    }

    /// The first result that is not finite, by its index, with the number.
    pub fn first_result(&self) -> Option<(usize, f64)> {
        let seen = self.seen.borrow();
        let mut results = seen.results.iter().enumerate();
        results.find_map(|(index, result)| Some((index, result.not_finite?)))
    }

    /// Returns the records.
    pub fn into_seen(self) -> Seen {
        std::mem::take(&mut self.seen.borrow_mut())
    }
}
