//! The claims of `ensure` about a mask.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;

use super::Spec;
use super::keys::{Key, Word};
use super::mask::{Atom, MaskExpr};
use super::word::{self, Call};
use crate::diag::Diagnostics;
use crate::messages;
use crate::score::prove::{Claim, Verdict, unknown_sizes};
use crate::score::{Data, Expr, Var, builtin};

/// Parses `causal & every_query_attends`, which may be in braces. `None` after a mistake, which has been reported.
pub(super) fn parse(
    tokens: &TokenStream,
    key: &'static Key,
    words: &'static [Word],
    cx: &Diagnostics,
) -> Option<Vec<Call>> {
    let mut rest = without_braces(tokens).into_iter().peekable();
    let mut claims = Vec::new();
    loop {
        let name = match rest.next() {
            Some(TokenTree::Ident(name)) => name,
            Some(other) => {
                let found = other.into_token_stream();
                cx.error(&found, messages::expected_word(key, &found));
                return None;
            }
            None if claims.is_empty() => {
                cx.error(tokens, messages::expected_word(key, &TokenStream::new()));
                return None;
            }
            None => {
                cx.error(tokens, messages::CLAIM_ENDS);
                return None;
            }
        };
        let args = word::next_group(&mut rest);
        claims.push(word::parse_call(name, args, key, words, cx)?);
        match rest.next() {
            None => return Some(claims),
            Some(TokenTree::Punct(and)) if and.as_char() == '&' => {}
            Some(other) => {
                let found: TokenStream = std::iter::once(other).chain(rest).collect();
                cx.error(&found, messages::expected_claim_operator(&found));
                return None;
            }
        }
    }
}

fn without_braces(tokens: &TokenStream) -> TokenStream {
    let mut list = tokens.clone().into_iter();
    match (list.next(), list.next()) {
        (Some(TokenTree::Group(group)), None) if group.delimiter() != Delimiter::Bracket => {
            without_braces(&group.stream())
        }
        _ => tokens.clone(),
    }
}

/// Whether `expr` reads `var` other than in an index of data.
fn reads_index(expr: &Expr, var: Var) -> bool {
    match expr {
        Expr::Data { .. } => false,
        Expr::Var(found) => *found == var,
        other => other
            .children()
            .into_iter()
            .any(|child| reads_index(child, var)),
    }
}

/// A layer and the predicate of its mask.
pub(super) struct Masked<'a> {
    pub(super) spec: &'a Spec,
    pub(super) predicate: Expr,
}

impl Masked<'_> {
    /// Reports `claim` unless it is proved.
    pub(super) fn check(&self, claim: &Call, cx: &Diagnostics) {
        let word = MaskExpr::Atom(Atom {
            call: claim.clone(),
        });
        let mut subject = self.spec.subject(&self.predicate);
        subject.positive.extend(word.lengths());
        let bound = builtin::mask(&word, None);
        let claimed = match claim.word.name {
            "every_query_attends" => Claim::EveryQueryAttends,
            _ => Claim::Within(bound.clone()),
        };
        let origin = &claim.origin;
        match subject.decide(&claimed) {
            Verdict::Proved => {}
            Verdict::Refuted(found) => {
                let reads = self.reads(&bound);
                cx.error(origin, messages::claim_fails(origin, reads, &found));
            }
            Verdict::GaveUp => {
                let is_mask = matches!(claimed, Claim::Within(_));
                cx.error(origin, messages::claim_given_up(origin, is_mask));
            }
            Verdict::Unknown => {
                let sizes = unknown_sizes(&(self.predicate.clone() & bound));
                cx.error(origin, messages::claim_undecided(origin, &sizes));
            }
        }
    }

    /// Whether keys and values come from a second input.
    pub(super) fn cross(&self) -> bool {
        self.spec.d_context.is_some()
    }

    fn reads(&self, bound: &Expr) -> messages::Reads {
        let both = self.predicate.clone() & bound.clone();
        let reads_data =
            |wanted| both.any(&|part| matches!(part, Expr::Data { data, .. } if *data == wanted));
        messages::Reads {
            batch: reads_index(&self.predicate, Var::B),
            head: reads_index(&self.predicate, Var::H),
            padding: reads_data(Data::Padding),
            document: reads_data(Data::QueryDocument),
            cross: self.cross(),
        }
    }
}
