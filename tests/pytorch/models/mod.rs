//! Models of papers.
