//! The rules of `position = rope(..)`.

use proc_macro2::TokenStream;
use quote::quote;

use super::check::{Checker, LARGEST_LENGTH, LARGEST_SIZE, divides, unless_out_of_bounds};
use super::rules::Rules;
use super::value::{Real, Size};
use super::word::Call;
use super::{Position, Rotary, Spec};
use crate::messages;

impl Checker<'_> {
    pub(super) fn rope(&mut self, call: &Call, spec: &Spec) -> Position {
        let is_sound = has_frequencies(self, call);
        let dims = match call.optional_size("dims") {
            Some(dims) => {
                let width_is_sound = self.are_sound(match self.entry("head_dim") {
                    Some(_) => &["head_dim"],
                    None => &["heads", "d_model"],
                });
                let width = (&spec.head_dim, "head", width_is_sound);
                rotated_dims(self, dims, width)
            }
            None => self.whole_width(call, &spec.head_dim, (&spec.d_model, &spec.heads)),
        };
        match dims {
            Some(dims) if is_sound && fits(self, call, &dims) => Position::Rope(rotary(call, dims)),
            _ => Position::None,
        }
    }

    /// A rotation acts on pairs of coordinates. A width `d_model / heads` with a remainder is reported elsewhere.
    fn whole_width(
        &mut self,
        call: &Call,
        head_dim: &Size,
        (d_model, heads): (&Size, &Size),
    ) -> Option<Size> {
        let given = self.entry("head_dim").is_some();
        let sound = if given {
            self.are_sound(&["head_dim"])
        } else {
            self.are_sound(&["heads", "d_model"])
        };
        let comes_out = if given {
            Some(true)
        } else {
            divides(d_model, heads)
        };
        let even = match (sound, comes_out) {
            (true, Some(true)) => head_dim.value.map(|value| value % 2 == 0),
            (true, None) => None,
            _ => return None,
        };
        let condition = match comes_out {
            Some(_) => unless_out_of_bounds(&[head_dim], quote!(#head_dim % 2 == 0)),
            None => unless_out_of_bounds(
                &[d_model, heads],
                quote!(#d_model % #heads != 0 || #head_dim % 2 == 0),
            ),
        };
        let message = || messages::odd_rope(head_dim);
        let even = self.require(&call.origin, even, condition, message);
        even.then(|| head_dim.clone())
    }
}

impl Rotary {
    /// The rotation of vectors of a width, by the arguments of `rope`. `None` after a mistake.
    pub(crate) fn of_vectors(rules: &mut impl Rules, call: &Call, width: &Size) -> Option<Rotary> {
        let is_sound = has_frequencies(rules, call);
        let dims = match call.optional_size("dims") {
            Some(dims) => rotated_dims(rules, dims, (width, "vector", true))?,
            None => {
                let even = width.value.map(|width| width % 2 == 0);
                let condition = quote!(#width % 2 == 0);
                let message = || messages::odd_vectors(width);
                let is_even = rules.require(&call.origin, even, condition, message);
                is_even.then(|| width.clone())?
            }
        };
        (is_sound && fits(rules, call, &dims)).then(|| rotary(call, dims))
    }
}

/// The rotation of so many coordinates.
fn rotary(call: &Call, dims: Size) -> Rotary {
    let scaling = call.choice("scaling");
    Rotary {
        theta: call.number("theta"),
        scaling: scaling.filter(|call| call.word.name != "none").cloned(),
        dims,
        interleaved: call.is_true("interleaved"),
        position_ids: call.is_true("position_ids"),
    }
}

/// Whether the lists of a scaling have a number for each pair of so many coordinates.
fn fits(rules: &mut impl Rules, call: &Call, dims: &Size) -> bool {
    let Some(scaling) = call.choice("scaling") else {
        return true;
    };
    let args = scaling.word.args.iter();
    let lists = args.filter_map(|arg| Some((arg.name, scaling.numbers(arg.name)?)));
    let mut fits = true;
    for (name, list) in lists {
        let what = format!("{name}` of `{}", scaling.word.name);
        let known = list.list.as_ref().zip(dims.value);
        let holds = known.map(|(list, dims)| list.len() as u64 * 2 == dims);
        let condition = quote!({ let list: &[f64] = #list; list.len() * 2 == #dims });
        let condition = unless_out_of_bounds(&[dims], condition);
        let message = || messages::factors_of_pairs(&what, list, dims);
        fits &= rules.require(&list.origin, holds, condition, message);
    }
    fits
}

/// Whether the numbers that make the frequencies are sound.
fn has_frequencies(rules: &mut impl Rules, call: &Call) -> bool {
    let theta = call.number("theta");
    let positive = theta.origin.is_empty() || rules.is_positive(&theta, "theta` of `rope");
    let scaling = call
        .choice("scaling")
        .filter(|call| call.word.name != "none");
    let scaled = scaling.is_none_or(|call| scaling_is_sound(rules, call));
    positive && scaled
}

/// The coordinates that are rotated are pairs, and what has them, a head or a vector, has as many.
fn rotated_dims(
    rules: &mut impl Rules,
    dims: Size,
    (width, of, width_is_sound): (&Size, &str, bool),
) -> Option<Size> {
    let at = dims.origin.clone();
    if !rules.bounded(&dims, "dims` of `rope", LARGEST_SIZE) {
        return None;
    }
    let even = dims.value.map(|dims| dims % 2 == 0);
    let condition = unless_out_of_bounds(&[&dims], quote!(#dims % 2 == 0));
    if !rules.require(&at, even, condition, || messages::odd_rope_dims(&dims)) {
        return None;
    }
    let fits = dims.value.zip(width.value);
    let fits = fits.map(|(dims, width)| dims <= width || !width_is_sound);
    let condition = unless_out_of_bounds(&[&dims], quote!(#dims <= #width));
    let message = || messages::too_many_rope_dims(&dims, of, width);
    rules.require(&at, fits, condition, message).then_some(dims)
}

/// The numbers of a scaling are positive, and the first of two bounds is less than the second.
fn scaling_is_sound(rules: &mut impl Rules, call: &Call) -> bool {
    let name = call.word.name;
    let mut sound = true;
    for arg in call.word.args {
        let what = format!("{}` of `{name}", arg.name);
        if let Some(number) = call.optional_number(arg.name) {
            sound &= number.origin.is_empty() || rules.is_positive(&number, &what);
        }
        if let Some(list) = call.numbers(arg.name) {
            sound &= rules.are_positive(list, &what);
        }
        if let Some(size) = call.optional_size(arg.name) {
            sound &= rules.bounded(&size, &what, LARGEST_LENGTH);
        }
    }
    let bounds = match name {
        "llama3" => ["low_freq_factor", "high_freq_factor"],
        "yarn" => ["beta_slow", "beta_fast"],
        _ => return sound,
    };
    sound && is_less(rules, call, bounds)
}

fn is_less(rules: &mut impl Rules, call: &Call, names: [&str; 2]) -> bool {
    let [low, high] = names.map(|name| call.number(name));
    let holds = low.value.zip(high.value).map(|(low, high)| low < high);
    let condition = quote!(!(#low > 0.0 && #high > 0.0) || #low < #high);
    let at = written([&high, &low]).unwrap_or_else(|| call.origin.clone());
    let message = || messages::not_less(call, names.into_iter().zip([&low, &high]));
    rules.require(&at, holds, condition, message)
}

/// The tokens of the first number that the user wrote.
fn written(numbers: [&Real; 2]) -> Option<TokenStream> {
    let mut origins = numbers.into_iter().map(|number| &number.origin);
    origins.find(|origin| !origin.is_empty()).cloned()
}
