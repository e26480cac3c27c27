//! The integration tests, in one binary.

mod layers;
mod mistakes;
mod reference;
mod tensors;
