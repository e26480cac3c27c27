//! Both forms of a layer agree: bodies, data of the call, and dropout.

#[macro_use(subject, tests)]
extern crate support;

mod bodies;
mod data;
mod dropout;
