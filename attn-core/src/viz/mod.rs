//! Visualisation of the attention of a model, and of its training.
//!
//! | | |
//! | --- | --- |
//! | [`Viewer`] | an HTML page: choose a layer and a head, point at a token, see the matrix, its mask and the entropies |
//! | [`svg`] | a heat map of a head, for documents |
//! | [`terminal`] | the same as characters, for the terminal |
//! | [`TrainingLog`] | the records of a run of [`Trainer::fit`](crate::train::Trainer::fit): progress, metrics, chart and report |
//! | [`Progress`] | a progress bar, or lines from time to time |
//! | [`Metrics`] | `metrics.jsonl`: metrics by step, the same for an interrupted and an uninterrupted run |
//! | [`LossChart`] | a chart of the losses |
//! | [`Report`] | configuration, parameters, curves, samples and maps of a run on one page |
//! | [`write`](write()) | writes a drawing to a file |
//!
//! The weights come from [`AttentionMap`](crate::maps::AttentionMap)s, and [`Labels`] name queries and keys.
//!
//! ```
//! use attn::{maps::AttentionMap, viz::{Head, Labels, terminal}};
//!
//! // Four characters, each of which looks back.
//! let weights = vec![
//!     1.0, 0.0, 0.0, 0.0, //
//!     0.6, 0.4, 0.0, 0.0, //
//!     0.1, 0.7, 0.2, 0.0, //
//!     0.1, 0.1, 0.1, 0.7,
//! ];
//! let map = AttentionMap::new("blocks.0.attention", [1, 1, 4, 4], weights);
//! let view = terminal(&map, 0, Head::Mean, &Labels::same([["T", "h", "o", "u"]]))?;
//! assert_eq!(
//!     view.to_string(),
//!     concat!(
//!         "   Thou\n",
//!         "T  █\n",
//!         "h  █▓\n",
//!         "o  ░█░\n",
//!         "u  ░░░█\n",
//!     )
//! );
//! # Ok::<_, attn::viz::VizError>(())
//! ```
//!
//! The page of the same map:
//!
//! ```text
//! Mean entropy of each head, in bits
//!                      head 0
//! blocks.0.attention   [0.87]  [mean]         what is pointed at, in words:
//!                                             Query 2 “o”: sum 1, entropy 1.16 bits. It looks at
//! Layer [..] Head [..] [x] exact zeros          1 h  ███████████████  0.7000
//!     T  h  o  u                                2 o  ████             0.2000
//!  T  █                                         0 T  ██               0.1000
//!  h  █  ▓              full, partial and
//!  o  ░  █  ░           empty blocks of       Queries   T  h [o] u
//!  u  ░  ░  ░  █        the mask over it      Keys      T  h  o  u   coloured by weight
//! ```
//!
//! Pages need only a browser. They make no requests, and their content policy forbids requests. Labels, names and titles are text
//! and are never executed. Files are written under another name and then renamed, so that a page is always complete.
//!
//! PyTorch: TensorBoard and BertViz show the same from Python, with a server or a notebook.

mod chart;
mod colour;
mod encode;
mod error;
mod files;
mod grid;
mod html;
mod label;
mod log;
mod metrics;
mod progress;
mod report;
mod svg;
mod terminal;
mod viewer;

pub use chart::LossChart;
pub use colour::Theme;
pub use error::VizError;
pub use files::write;
pub use grid::{Head, Scale};
pub use label::Labels;
pub use log::TrainingLog;
pub use metrics::{Metrics, Record};
pub use progress::{Progress, thousands};
pub use report::Report;
pub use svg::{SvgOptions, svg};
pub use terminal::{Terminal, terminal};
pub use viewer::Viewer;
