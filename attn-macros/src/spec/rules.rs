//! Rules about the numbers of a declaration, which are decided here or, if only rustc can evaluate them, left to it.

use proc_macro2::TokenStream;
use quote::quote;

use super::check::is_bounded;
use super::value::{Numbers, Real, Size};
use crate::messages;

/// Who reports broken rules, and notes those that rustc has to check.
pub(crate) trait Rules {
    /// Whether a rule holds, or may: it is reported at these tokens if it does not. `None` leaves the condition to rustc.
    fn require(
        &mut self,
        at: &TokenStream,
        holds: Option<bool>,
        condition: TokenStream,
        message: impl FnOnce() -> String,
    ) -> bool;

    fn bounded(&mut self, size: &Size, what: &str, largest: u64) -> bool {
        let holds = size.value.map(|value| (1..=largest).contains(&value));
        let condition = is_bounded(size, largest);
        self.require(&size.origin, holds, condition, || {
            messages::size_out_of_bounds(what, size, largest)
        })
    }

    /// Whether a number is positive and finite as an `f32`, in which it is computed.
    fn is_positive(&mut self, number: &Real, what: &str) -> bool {
        let holds = number.value.map(|value| value as f32);
        let holds = holds.map(|value| value > 0.0 && value < f32::INFINITY);
        let condition = is_positive(&quote!(#number));
        self.require(&number.origin, holds, condition, || {
            messages::not_positive(what, number)
        })
    }

    /// The same for all numbers of a list. Of those that stand there, each one that is wrong is reported.
    fn are_positive(&mut self, numbers: &Numbers, what: &str) -> bool {
        match &numbers.list {
            Some(list) => {
                let broken = list.iter();
                let broken = broken.filter(|number| !self.is_positive(number, what));
                broken.count() == 0
            }
            None => {
                let is_positive = is_positive(&quote!(list[at]));
                let condition = quote!({
                    let list: &[f64] = #numbers;
                    let mut at = 0;
                    while at < list.len() && #is_positive {
                        at += 1;
                    }
                    at == list.len()
                });
                let message = || messages::not_all_positive(what, numbers);
                self.require(&numbers.origin, None, condition, message)
            }
        }
    }
}

/// [`Rules::is_positive`], for rustc to find out.
fn is_positive(number: &TokenStream) -> TokenStream {
    quote!(((#number) as f32) > 0.0 && ((#number) as f32) < f32::INFINITY)
}
