//! `model!`: a whole network as one graph of layers.
//!
//! [`parse`] reads a declaration as it is written ([`syntax`]); [`lower`] resolves its names and infers the shape of every
//! value; [`emit`] writes the struct of the layers and the function that runs them. [`decode`] says whether it can go on token by
//! token.

pub(crate) mod budget;
mod by_group;
mod condition;
mod constants;
pub(crate) mod decode;
pub(crate) mod diff;
pub(crate) mod emit;
pub(crate) mod export;
mod expression;
pub(crate) mod fusion;
pub(crate) mod given;
pub(crate) mod graph;
pub(crate) mod group;
mod header;
mod hoist;
pub(crate) mod import;
mod items;
mod latents;
pub(crate) mod lengths;
pub(crate) mod lora;
mod losses;
pub(crate) mod lower;
mod names;
mod parse;
pub(crate) mod passes;
pub(crate) mod plan;
mod projections;
pub(crate) mod recompute;
mod repeated;
mod reshape;
mod results;
mod scan;
pub(crate) mod signature;
pub(crate) mod sizes;
mod split_products;
mod statement;
mod steps;
pub(crate) mod strips;
pub(crate) mod syntax;
mod transposes;
pub(crate) mod types;

pub(crate) use by_group::keep_by_group;
pub(crate) use group::group;
pub(crate) use hoist::hoist;
pub(crate) use losses::take_logits;
pub(crate) use lower::lower;
pub(crate) use parse::{Declarations, parse};
pub(crate) use projections::take_projections;
pub(crate) use repeated::read_in_place;
pub(crate) use reshape::share_memory;
pub(crate) use results::read_results;
pub(crate) use split_products::split_products;
pub(crate) use steps::all_at_once;
