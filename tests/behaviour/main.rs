//! What a declared layer promises beside its values: that it is a module of dfdx as others are, what it says of mistakes, how it
//! starts, is saved and is trained.

mod blocks;
mod citizen;
mod dropout;
mod empty;
mod facts;
mod initial;
mod mistakes;
mod optimizers;
mod saving;
mod training;
