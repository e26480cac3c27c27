//! Models of papers, with small sizes: what PyTorch computes with their formulas.

pub(crate) mod text;
pub(crate) mod vision;
