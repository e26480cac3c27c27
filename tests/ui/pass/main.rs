//! Programs that must compile, and run.

mod attributes;
mod cfg;
mod lints;
mod models;
mod names;
mod networks;
mod renamed;
mod scopes;
mod sizes;
mod through_macros;
