//! Programs that must compile, and run. Those with attributes of a whole crate are binaries of their own.

mod attributes;
mod cfg;
mod models;
mod names;
mod networks;
mod scopes;
mod sizes;
mod through_macros;
