//! Random texts to expand: declarations without a mistake, token trees of any kind, and mistakes.

pub(super) mod formula;
pub(super) mod spec;
pub(super) mod trees;
pub(super) mod words;
