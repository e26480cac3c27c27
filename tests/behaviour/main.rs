//! Properties of a declared layer other than its values: it is a module of dfdx, reports mistakes, and is initialised, saved and
//! trained.

mod blocks;
mod dfdx_module;
mod dropout;
mod empty;
mod facts;
mod initial;
mod mistakes;
mod optimizers;
mod saving;
mod training;
