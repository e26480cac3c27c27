//! Models of papers, with small sizes: what PyTorch computes with their formulas.

mod text;
mod vision;
