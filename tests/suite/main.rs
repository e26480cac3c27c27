//! The integration tests, in one binary.

mod blocks;
mod citizen;
mod dropout;
mod empty;
mod facts;
mod fused;
mod initial;
mod layers;
mod mistakes;
mod model;
mod nn;
mod optimizers;
mod reference;
mod saving;
mod tensors;
mod training;
mod weights;
