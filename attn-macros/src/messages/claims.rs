//! Messages of `ensure`.

use proc_macro2::TokenStream;

use super::{listed, quoted};
use crate::score::prove::{Counterexample, QueryPoint, Truths};
use crate::spec::text;

pub(crate) const CLAIM_ENDS: &str = "expected a claim after `&`, found the end";

pub(crate) fn expected_claim_operator(found: &TokenStream) -> String {
    format!(
        "expected `&` between claims, found {}\nhelp: `ensure = {{ causal & every_query_attends }}`",
        quoted(found)
    )
}

/// `claim` as written, and its counterexample.
pub(crate) fn claim_fails(
    claim: &TokenStream,
    mask_reads: Reads,
    found: &Counterexample,
) -> String {
    let QueryPoint {
        b,
        h,
        q_idx,
        q_len,
        kv_len,
    } = found.place;
    let attends = match found.kv_idx {
        Some(kv_idx) => format!("attends to kv_idx = {kv_idx}"),
        None => "attends to no key".to_owned(),
    };
    let batch = mask_reads.batch.then(|| format!(", b = {b}"));
    let head = mask_reads.head.then(|| format!(", h = {h}"));
    let place = [batch, head].map(Option::unwrap_or_default).concat();
    format!(
        "`ensure = {}`: q_idx = {q_idx} {attends} (q_len = {q_len}, kv_len = {kv_len}{place}){}",
        text::of(claim),
        data(mask_reads, found)
    )
}

/// The inputs of a mask beside positions.
#[derive(Clone, Copy)]
pub(crate) struct Reads {
    pub(crate) batch: bool,
    pub(crate) head: bool,
    pub(crate) padding: bool,
    pub(crate) document: bool,
    /// Queries and keys are tokens of two sequences.
    pub(crate) cross: bool,
}

/// `, where the key is padding`
fn data(reads: Reads, found: &Counterexample) -> String {
    let Some(Truths {
        padding,
        document,
        ids,
    }) = &found.data
    else {
        return ", for some data".to_owned();
    };
    let padding = match (found.kv_idx, padding) {
        (Some(_), true) => "the key is valid",
        (Some(_), false) => "the key is padding",
        (None, true) => "every key is valid",
        (None, false) => "every key is padding",
    };
    let document = match (found.kv_idx, document) {
        (Some(_), true) => "both are of one document",
        (Some(_), false) => "they are of two documents",
        (None, true) => "all tokens are of one document",
        (None, false) if reads.cross => "no key is of the query's document",
        (None, false) => "every token is a document of its own",
    };
    let ids = ids.iter().map(|ids| {
        let text = &ids.expr;
        let other = if ids.is_of_itself() { "" } else { "other " };
        match (found.kv_idx, ids.holds) {
            (Some(_), true) => format!("`{text}`"),
            (Some(_), false) => format!("not `{text}`"),
            (None, true) => format!("`{text}` for every {other}key"),
            (None, false) => format!("`{text}` for no {other}key"),
        }
    });
    let parts = [(reads.padding, padding), (reads.document, document)];
    let parts = parts.into_iter().filter(|(read, _)| *read);
    let parts = parts.map(|(_, part)| part.to_owned()).chain(ids);
    let parts: Vec<_> = parts.collect();
    if parts.is_empty() {
        String::new()
    } else {
        format!(", where {}", parts.join(" and "))
    }
}

/// `sizes` are those of the mask that only rustc can evaluate.
/// `is_mask`: the claim is also a word for masks.
pub(crate) fn claim_given_up(claim: &TokenStream, is_mask: bool) -> String {
    let claim = text::of(claim);
    let at_once = if is_mask {
        format!(
            "\nhelp: it is seen to hold at once where the `mask` of the header is `{claim}`, or `{claim} & (..)`"
        )
    } else {
        String::new()
    };
    format!(
        "`ensure = {claim}`: the proof was given up, as the mask takes too many steps\n\
         help: write fewer `abs`, `min`, `max`, `clamp`, `if`, `/` and `%` in one sum, and fewer `||` and `!` around them{at_once}"
    )
}

pub(crate) fn claim_undecided(claim: &TokenStream, sizes: &[String]) -> String {
    let claim = text::of(claim);
    if sizes.is_empty() {
        return format!(
            "`ensure = {claim}`: cannot decide whether this holds\n\
             help: what can be decided are sums of indices, lengths and sizes, and their quotients and remainders by numbers"
        );
    }
    format!(
        "`ensure = {claim}`: cannot decide whether this holds, as only rustc can evaluate {}\n\
         help: write the number itself",
        listed(sizes.iter().map(String::as_str))
    )
}
