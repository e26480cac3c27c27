//! What the attentions of a model look at: [`AttentionMap`], the weights of one of them.

mod attention_map;

pub use attention_map::AttentionMap;
