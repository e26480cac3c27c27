//! Both forms of a layer agree, for every key of the header.

#[macro_use(tests)]
extern crate support;

mod cross;
mod heads;
mod masks;
mod scores;
