//! Looking inside: what the heads of a model look at.

mod chart;
mod colour;
mod encode;
mod error;
mod files;
mod grid;
mod html;
mod label;
mod metrics;
mod report;
mod svg;
mod terminal;
mod viewer;

pub use chart::LossChart;
pub use colour::Theme;
pub use error::VizError;
pub use grid::{Head, Scale};
pub use label::Labels;
pub use metrics::{Metrics, Record};
pub use report::Report;
pub use svg::{SvgOptions, svg};
pub use terminal::{Terminal, terminal};
pub use viewer::Viewer;
