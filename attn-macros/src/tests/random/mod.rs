//! Random inputs: valid declarations, arbitrary token trees, and declarations with mistakes.

pub(super) mod formula;
mod graphs;
pub(super) mod spec;
pub(super) mod trees;
pub(super) mod words;
