//! Lengths that only the running program knows: those of axes that operations make of others.

use std::fmt;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};

use super::types::Axis;
use crate::spec::Size;

/// An axis of any length that no input has: `rows = (batch, seq)`.
#[derive(Clone, Debug)]
pub(crate) struct MadeAxis {
    pub(crate) name: String,
    pub(crate) length: Length,
}

/// A length, of those of the axes of the inputs.
#[derive(Clone, Debug)]
pub(crate) enum Length {
    /// The length of an axis of an input.
    Symbol(String),
    Constant(Size),
    Sum(Vec<Length>),
    /// In the order of the axes that are merged.
    Product(Vec<Length>),
    /// The number of windows that lie in an axis. Where the step is the size, it is a quotient.
    Windows {
        of: Box<Length>,
        size: Size,
        step: Size,
        /// The call checks that nothing of the axis is left over.
        exact: bool,
    },
    /// The length of an axis in which so many windows lie, without what is left out at its ends.
    OfWindows {
        count: Box<Length>,
        reach: Size,
        stride: Size,
        cut: Size,
    },
}

impl Length {
    pub(crate) fn plus(self, other: Length) -> Length {
        let mut terms = Vec::new();
        let mut constant: Option<Size> = None;
        for term in [self, other].into_iter().flat_map(Length::terms) {
            match (term, &constant) {
                (Length::Constant(size), None) => constant = Some(size),
                (Length::Constant(size), Some(other)) => constant = Some(other.plus(&size)),
                (term, _) => terms.push(term),
            }
        }
        let constant = constant.filter(|size| size.value != Some(0) || terms.is_empty());
        terms.extend(constant.map(Length::Constant));
        one_or(terms, Length::Sum)
    }

    /// The length that is left without so many, if that is known to be a length.
    pub(crate) fn minus(&self, other: &Size) -> Option<Length> {
        let mut terms = self.clone().terms();
        let Some(Length::Constant(size)) = terms.last() else {
            return None;
        };
        let rest = match (size.value, other.value) {
            (Some(size), Some(other)) => Size::known(size.checked_sub(other)?),
            _ if size == other => Size::known(0),
            _ => return None,
        };
        terms.pop();
        let without = one_or(terms, Length::Sum);
        Some(without.plus(Length::Constant(rest)))
    }

    /// The length of axes that are merged.
    pub(crate) fn product(factors: impl IntoIterator<Item = Length>) -> Length {
        let factors = factors.into_iter().flat_map(Length::factors);
        let is_one =
            |factor: &Length| matches!(factor, Length::Constant(size) if size.value == Some(1));
        let mut factors: Vec<_> = factors.filter(|factor| !is_one(factor)).collect();
        // The parts of an axis, in their order, are the axis, if nothing of it was left over.
        let sizes = factors.iter().skip(1).map(Length::constant);
        let sizes: Option<Vec<&Size>> = sizes.collect();
        if let (
            Some(Length::Windows {
                of, size, exact, ..
            }),
            Some(sizes),
        ) = (factors.first(), sizes)
        {
            let product = sizes.into_iter().fold(Size::known(1), |a, b| a.times(b));
            if *exact && *size == product {
                return (**of).clone();
            }
        }
        match factors.len() {
            0 => Length::Constant(Size::known(1)),
            1 => factors.remove(0),
            _ => Length::Product(factors),
        }
    }

    /// A part of an axis that consists of parts, of which the others have this product. The call checks that it is a multiple of that.
    pub(crate) fn quotient(of: Length, product: &Size) -> Length {
        match product.value {
            Some(1) => of,
            _ => Length::Windows {
                of: Box::new(of),
                size: product.clone(),
                step: product.clone(),
                exact: true,
            },
        }
    }

    /// The number of windows in an axis. Those with a step of 1 are as many as the indices but for those of the first window.
    pub(crate) fn windows(of: Length, size: &Size, step: &Size) -> Length {
        let is_dense = step.value == Some(1) && size.value != Some(0);
        if is_dense && size.value == Some(1) {
            return of;
        }
        let rest = is_dense.then(|| of.minus(&size.minus(&Size::known(1))));
        rest.flatten().unwrap_or_else(|| Length::Windows {
            of: Box::new(of),
            size: size.clone(),
            step: step.clone(),
            exact: false,
        })
    }

    /// The length of an axis in which so many windows lie, without what is left out at its ends. Where neither is left over, it is a product.
    pub(crate) fn of_windows(count: Length, reach: &Size, stride: &Size, cut: &Size) -> Length {
        let known = reach.value.zip(stride.value).zip(cut.value);
        match known {
            Some(((reach, 1), cut)) if reach == cut + 1 => count,
            Some(((reach, step), cut)) if reach == step + cut => {
                Length::product([count, Length::Constant(stride.clone())])
            }
            _ => Length::OfWindows {
                count: Box::new(count),
                reach: reach.clone(),
                stride: stride.clone(),
                cut: cut.clone(),
            },
        }
    }

    /// Whether it is a part of an axis of which nothing is left over.
    pub(crate) fn is_exact(&self) -> bool {
        matches!(self, Length::Windows { exact: true, .. })
    }

    /// The axis of which these are all whole parts, with the size of a part, if something of it may be left over.
    pub(crate) fn rounded_down(&self) -> Option<(&Length, &Size)> {
        let Length::Product(factors) = self else {
            return None;
        };
        match factors.as_slice() {
            [
                Length::Windows { of, size, step, .. },
                Length::Constant(part),
            ] if size == step && size == part => Some((&**of, size)),
            _ => None,
        }
    }

    fn constant(&self) -> Option<&Size> {
        match self {
            Length::Constant(size) => Some(size),
            _ => None,
        }
    }

    pub(crate) fn factors(self) -> Vec<Length> {
        match self {
            Length::Product(factors) => factors,
            other => vec![other],
        }
    }

    fn terms(self) -> Vec<Length> {
        match self {
            Length::Sum(terms) => terms,
            other => vec![other],
        }
    }

    /// An expression of type `usize`, where `symbol` is that of an axis of an input. What does not fit is `usize::MAX`.
    pub(crate) fn tokens(&self, symbol: &dyn Fn(&str) -> TokenStream) -> TokenStream {
        let all = |lengths: &[Length]| -> Vec<_> {
            let lengths = lengths.iter();
            lengths.map(|length| length.tokens(symbol)).collect()
        };
        match self {
            Length::Symbol(name) => symbol(name),
            Length::Constant(size) => size.to_token_stream(),
            Length::Sum(terms) => {
                let terms = all(terms);
                quote!(p::sum_of_lengths(&[#(#terms),*]))
            }
            Length::Product(factors) => {
                let factors = all(factors);
                quote!(p::product_of_lengths(&[#(#factors),*]))
            }
            Length::Windows { of, size, step, .. } => {
                let of = of.tokens(symbol);
                quote!(p::layers::count_windows(#of, #size, #step))
            }
            Length::OfWindows {
                count,
                reach,
                stride,
                cut,
            } => {
                let count = count.tokens(symbol);
                quote!(p::layers::length_of_windows(#count, #reach, #stride, #cut))
            }
        }
    }
}

impl From<&Axis> for Length {
    fn from(axis: &Axis) -> Self {
        match axis {
            Axis::Symbol(symbol) => Length::Symbol(symbol.length.clone()),
            Axis::Size(size) => Length::Constant(size.clone()),
        }
    }
}

/// Lengths are the same if they are computed in the same way.
impl PartialEq for Length {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let factor = |length: &Length| match length {
            Length::Sum(_) => format!("({length})"),
            Length::Constant(size) if size.value.is_none() => format!("({size})"),
            other => other.to_string(),
        };
        let joined = |lengths: &[Length], sign: &str| {
            let lengths: Vec<_> = lengths.iter().map(factor).collect();
            lengths.join(sign)
        };
        match self {
            Length::Symbol(name) => f.write_str(name),
            Length::Constant(size) => size.fmt(f),
            Length::Sum(terms) => {
                let terms: Vec<_> = terms.iter().map(Length::to_string).collect();
                f.write_str(&terms.join(" + "))
            }
            Length::Product(factors) => f.write_str(&joined(factors, " * ")),
            Length::Windows { of, size, step, .. } if size == step => {
                write!(f, "{} / {size}", factor(of))
            }
            Length::Windows { of, size, step, .. } if step.value == Some(1) => {
                write!(f, "{of} - {size} + 1")
            }
            Length::Windows { of, size, step, .. } => {
                write!(f, "({of} - {size}) / {step} + 1")
            }
            Length::OfWindows {
                count,
                reach,
                stride,
                cut,
            } => {
                write!(f, "({count} - 1) * {stride} + {reach} - {cut}")
            }
        }
    }
}

/// The only one of them, or all.
fn one_or(mut lengths: Vec<Length>, all: fn(Vec<Length>) -> Length) -> Length {
    match lengths.len() {
        0 => Length::Constant(Size::known(0)),
        1 => lengths.remove(0),
        _ => all(lengths),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(name: &str) -> Length {
        Length::Symbol(name.to_owned())
    }

    fn constant(value: u64) -> Length {
        Length::Constant(Size::known(value))
    }

    fn quotient(of: Length, by: u64) -> Length {
        Length::quotient(of, &Size::known(by))
    }

    #[test]
    fn what_is_added_and_taken_away_again_leaves_the_axis() {
        let all = constant(8).plus(symbol("seq")).plus(constant(1));
        assert_eq!(all.to_string(), "seq + 9");
        assert_eq!(all.minus(&Size::known(9)), Some(symbol("seq")));
        let rest = all.minus(&Size::known(2)).expect("a length");
        assert_eq!(rest.to_string(), "seq + 7");
        assert_eq!(all.minus(&Size::known(10)), None);
        assert_eq!(symbol("seq").minus(&Size::known(1)), None);
    }

    #[test]
    fn windows_of_a_padded_axis_are_as_many_as_the_axis_has_indices() {
        let [two, three] = [2, 3].map(Size::known);
        let padded = symbol("seq").plus(constant(2));
        let dense = Length::windows(padded.clone(), &three, &Size::known(1));
        assert_eq!(dense, symbol("seq"));
        let strided = Length::windows(padded, &three, &two);
        assert_eq!(strided.to_string(), "(seq + 2 - 3) / 2 + 1");
        let short = Length::windows(symbol("seq"), &three, &Size::known(1));
        assert_eq!(short.to_string(), "seq - 3 + 1");
    }

    fn groups_of_four() -> Length {
        quotient(symbol("seq"), 4)
    }

    #[test]
    fn a_transposed_convolution_of_the_parts_of_an_axis_has_its_length() {
        let [two, zero] = [2, 0].map(Size::known);
        let halves = quotient(symbol("seq"), 2);
        let back = Length::of_windows(halves, &two, &two, &zero);
        assert_eq!(back, symbol("seq"));
        let quarters = Length::quotient(quotient(symbol("seq"), 2), &two);
        let once = Length::of_windows(quarters, &two, &two, &zero);
        assert_eq!(once, quotient(symbol("seq"), 2));
        assert_eq!(Length::of_windows(once, &two, &two, &zero), symbol("seq"));
        // An odd length has one window less.
        let windows = Length::windows(symbol("seq"), &two, &two);
        let back = Length::of_windows(windows, &two, &two, &zero);
        assert_eq!(back.to_string(), "seq / 2 * 2");
    }

    #[test]
    fn the_parts_of_an_axis_are_the_axis() {
        let groups = quotient(symbol("seq"), 4);
        assert_eq!(groups.to_string(), "seq / 4");
        let merged = Length::product([groups.clone(), constant(2), constant(1), constant(2)]);
        assert_eq!(merged, symbol("seq"));
        let other = Length::product([constant(4), groups]);
        assert_eq!(other.to_string(), "4 * seq / 4");
        // Windows may leave something over.
        let windows = Length::windows(symbol("seq"), &Size::known(4), &Size::known(4));
        assert_eq!(windows, groups_of_four());
        let merged = Length::product([windows, constant(4)]);
        assert_eq!(merged.to_string(), "seq / 4 * 4");
        assert_eq!(
            merged
                .rounded_down()
                .map(|(of, size)| (of.to_string(), size.value)),
            Some(("seq".to_owned(), Some(4)))
        );
        let rows = Length::product([symbol("batch"), symbol("seq")]);
        assert_ne!(rows, Length::product([symbol("seq"), symbol("batch")]));
    }
}
