//! Programs that must compile, and run. Programs with crate attributes are separate binaries.

mod attributes;
mod blanket_traits;
mod cfg;
mod many_layers;
mod model_names;
mod models;
mod names;
mod networks;
mod prelude;
mod scopes;
mod sizes;
mod through_macros;
