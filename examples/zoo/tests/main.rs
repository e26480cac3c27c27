//! Networks of the gallery compute what `transformers` computes: results, a loss, the gradients of all parameters, and the likeliest tokens.
//! Their checkpoints are written back bit by bit.
//!
//! `generate.py` made the files. The networks are as small as these, with the blocks of the gallery.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod config;
mod decoders;
mod encoders;
mod images;
mod lora;
mod run;
mod translators;

pub(crate) use run::Run;
