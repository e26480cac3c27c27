//! The integration tests, in one binary.

mod citizen;
mod facts;
mod layers;
mod mistakes;
mod reference;
mod saving;
mod tensors;
