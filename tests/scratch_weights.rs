#[path = "suite/weights/mod.rs"]
mod weights;
