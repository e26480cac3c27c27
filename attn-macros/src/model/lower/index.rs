//! Loops whose layers differ by their number: `repeat layers as i { .. if i % 6 == 5 { .. } .. }`.
//!
//! The index is read as a remainder alone, so the layers repeat after a period. A round of the loop is a period: each of its layers is lowered with
//! the index of the first round, and neighbours that are alike are a loop of their own. What is left behind the last round is one more round.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::quote;

use super::statements::Later;
use super::{Lowering, RegionBuilder};
use crate::messages::model as messages;
use crate::model::graph::{ParamPath, Submodule};
use crate::model::sizes::{ConstValue, is_value};
use crate::model::syntax::{self, Comparison, LoopIndex};
use crate::spec::Size;

/// More bodies take too long to compile.
const MAX_PERIOD: u64 = 64;

/// `i % 6`, `i % 6 == 5`
struct Remainder {
    modulus: u64,
    /// The number that it is compared with, where nothing else is read of it.
    comparison: Option<(Comparison, u64)>,
}

impl Remainder {
    /// The value that is read in the layer of this number.
    fn of(&self, number: u64) -> u64 {
        let rest = number % self.modulus;
        match self.comparison {
            None => rest,
            Some((comparison, other)) => u64::from(comparison.holds(rest as f64, other as f64)),
        }
    }
}

/// Neighbouring layers that are alike.
#[derive(Clone, Copy)]
struct Run {
    first: u64,
    len: u64,
}

/// The layers of a round.
struct Period {
    len: u64,
    runs: Vec<Run>,
}

impl Period {
    fn of(remainders: &[Remainder]) -> Self {
        let len = remainders.iter().fold(1, |len, of| lcm(len, of.modulus));
        let mut runs: Vec<Run> = Vec::new();
        for number in 0..len.min(MAX_PERIOD) {
            let is_alike = |run: &Run| {
                remainders
                    .iter()
                    .all(|of| of.of(run.first) == of.of(number))
            };
            match runs.last_mut().filter(|run| is_alike(run)) {
                Some(run) => run.len += 1,
                None => runs.push(Run {
                    first: number,
                    len: 1,
                }),
            }
        }
        Period { len, runs }
    }

    /// The first layers alone.
    fn first(&self, layers: u64) -> Vec<Run> {
        let runs = self.runs.iter().filter(|run| run.first < layers);
        let cut = |run: &Run| Run {
            len: run.len.min(layers - run.first),
            ..*run
        };
        runs.map(cut).collect()
    }
}

/// Rounds of layers that have numbers.
struct Layers<'r> {
    /// The name of the loop, and the one that was asked for.
    asked: (&'r str, Option<&'r Ident>),
    rounds: Size,
    per_round: u64,
    runs: &'r [Run],
    /// The number of the first layer.
    first: u64,
}

impl Lowering<'_> {
    pub(super) fn repeat_with_index(
        &mut self,
        repeat: &syntax::Repeat,
        index: &LoopIndex,
        later: &Later<'_>,
        builder: &mut RegionBuilder,
    ) {
        let count = self.size(&repeat.count, "repeat");
        let (name, share, tied) = self.repeat_options(repeat);
        if share || tied.is_some() {
            self.cx.error(&index.name, messages::INDEX_OF_SHARED);
        }
        let period = self.period(index);
        let (Some(count), Some(period)) = (count, period) else {
            return self.skip(&repeat.statements);
        };
        let at = syntax::first(&repeat.count);
        self.at_least_one(&count, at, messages::REPEAT_NOTHING.to_owned());
        let per_round = Size::known(period.len);
        let rest = match count.value {
            Some(count) => count % period.len,
            None => {
                let message = messages::unknown_rest_of_rounds(&count, period.len);
                self.assume(vec![quote!(#count % #per_round == 0)], at, message);
                0
            }
        };
        let rounds = match count.value {
            Some(count) => Size::known(count / period.len),
            None => count.in_groups(&per_round),
        };
        let sizes = self.sizes.clone();
        let mut saved = None;
        if rounds.value != Some(0) {
            let layers = Layers {
                asked: ("blocks", name.as_ref()),
                rounds: rounds.clone(),
                per_round: period.len,
                runs: &period.runs,
                first: 0,
            };
            let place = self.numbered(repeat, index, layers, later, builder);
            saved = Some(place.field);
        }
        if rest > 0 {
            let first = rounds.value.unwrap_or(0) * period.len;
            let of_rest = saved.as_ref().map(|name| format!("{name}_rest"));
            let asked = match &of_rest {
                Some(name) => (name.as_str(), None),
                None => ("blocks", name.as_ref()),
            };
            let layers = Layers {
                asked,
                rounds: Size::known(1),
                per_round: period.len,
                runs: &period.first(rest),
                first,
            };
            let place = self.numbered(repeat, index, layers, later, builder);
            if let (Some(saved), Some(field)) = (saved, self.field_at(&place)) {
                field.saved = saved;
            }
        }
        self.sizes = sizes;
    }

    /// The layers of a loop: where their parameters are.
    fn numbered(
        &mut self,
        repeat: &syntax::Repeat,
        index: &LoopIndex,
        layers: Layers<'_>,
        later: &Later<'_>,
        builder: &mut RegionBuilder,
    ) -> ParamPath {
        let Layers {
            asked,
            rounds: count,
            per_round,
            runs,
            first,
        } = layers;
        let at = repeat.at.span();
        let per_round = usize::try_from(per_round).ok();
        let layer = |module| Submodule::Repeat {
            module,
            count: count.clone(),
            share: false,
            per_round,
        };
        let made = self.submodule(builder.module, asked, layer, at);
        let rounds = (made.place.clone(), made.module, count.clone(), false);
        self.loop_over(repeat, rounds, builder, &mut |this, round| {
            for run in runs {
                let value = ConstValue::Size(Size::known(run.first));
                this.sizes.declare(&index.name, Some(value));
                this.run_of_layers(repeat, *run, first, later, round);
            }
        });
        made.place
    }

    /// The layers of a run: one, or a loop.
    fn run_of_layers(
        &mut self,
        repeat: &syntax::Repeat,
        run: Run,
        first: u64,
        later: &Later<'_>,
        round: &mut RegionBuilder,
    ) {
        let number = first + run.first;
        let asked = format!("layer_{number}");
        let count = Size::known(run.len);
        let layer = |module| match run.len {
            1 => Submodule::Block {
                module,
                block: "layer".to_owned(),
            },
            _ => Submodule::Repeat {
                module,
                count: count.clone(),
                share: false,
                per_round: None,
            },
        };
        let made = self.submodule(round.module, (&asked, None), layer, repeat.at.span());
        if let Some(field) = self.field_at(&made.place) {
            field.saved = format!("+{number}");
        }
        if run.len == 1 {
            let outer = std::mem::replace(&mut round.module, made.module);
            self.body_of_round(repeat, later, round);
            round.module = outer;
            return;
        }
        let rounds = (made.place, made.module, count.clone(), false);
        self.loop_over(repeat, rounds, round, &mut |this, inner| {
            this.body_of_round(repeat, later, inner);
        });
    }

    /// The period of what the statements read of the index. `None` after a mistake.
    fn period(&mut self, index: &LoopIndex) -> Option<Period> {
        let mut remainders = Vec::new();
        let is_understood = self.remainders(&index.name, &index.body, &mut remainders);
        if !is_understood {
            return None;
        }
        if remainders.is_empty() {
            self.cx
                .error(&index.name, messages::unread_index(&index.name));
            return None;
        }
        let period = Period::of(&remainders);
        if period.len > MAX_PERIOD {
            let message = messages::long_period(&index.name, period.len, MAX_PERIOD);
            self.cx.error(&index.name, message);
            return None;
        }
        Some(period)
    }

    /// Collects what `tokens` read of the index. Whether all of it was understood.
    fn remainders(
        &mut self,
        name: &Ident,
        tokens: &TokenStream,
        found: &mut Vec<Remainder>,
    ) -> bool {
        let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
        let mut is_understood = true;
        for (place, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => {
                    is_understood &= self.remainders(name, &group.stream(), found);
                }
                TokenTree::Ident(ident) if ident == name && is_value(&tokens, place) => {
                    let before = place.checked_sub(1).map(|before| &tokens[before]);
                    match self.remainder(before, &tokens[place + 1..]) {
                        Some(remainder) => found.push(remainder),
                        None => {
                            self.cx.error(ident, messages::index_alone(name));
                            is_understood = false;
                        }
                    }
                }
                _ => {}
            }
        }
        is_understood
    }

    /// `% 6`, `% 6 == 5`, and the token before the index.
    ///
    /// The comparison is read only if the remainder is a whole side of it, and the literal behind it the other one. Else layers are alike if
    /// their remainders are.
    fn remainder(&self, before: Option<&TokenTree>, tokens: &[TokenTree]) -> Option<Remainder> {
        let is = |token: Option<&TokenTree>, signs: &str| matches!(token, Some(TokenTree::Punct(sign)) if signs.contains(sign.as_char()));
        // `60 / i % 6` divides first, by the index itself.
        if is(before, "/%") || !is(tokens.first(), "%") {
            return None;
        }
        let modulus = self.number_of_index(tokens.get(1)?)?;
        let behind = &tokens[2..];
        let signs = behind
            .iter()
            .take(2)
            .take_while(|token| is(Some(token), "=!<>"));
        let signs: String = signs.map(ToString::to_string).collect();
        let other = behind.get(signs.len());
        let after = behind.get(signs.len() + 1);
        let starts_here = match before {
            Some(TokenTree::Punct(_)) => is(before, "&|,;"),
            _ => true,
        };
        let ends_here = match after {
            Some(TokenTree::Punct(_)) => is(after, "&|,;"),
            _ => true,
        };
        let comparison = Comparison::find(&signs).filter(|_| starts_here && ends_here);
        let comparison = comparison.zip(other.and_then(|other| self.number_of_index(other)));
        (modulus > 0).then_some(Remainder {
            modulus,
            comparison,
        })
    }

    /// A literal, or a constant that the macro knows.
    fn number_of_index(&self, token: &TokenTree) -> Option<u64> {
        match token {
            TokenTree::Literal(literal) => literal.to_string().parse().ok(),
            TokenTree::Ident(name) => match self.sizes.get(name)? {
                ConstValue::Size(size) => size.value,
                _ => None,
            },
            _ => None,
        }
    }
}

fn lcm(a: u64, b: u64) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (a / gcd(a, b)).saturating_mul(b)
}
