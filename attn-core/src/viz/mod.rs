//! Looking inside: what the heads of a model look at, and how its training went.
//!
//! | | |
//! | --- | --- |
//! | [`Viewer`] | an HTML page: choose a layer and a head, point at a token, see the matrix, its mask and the entropies |
//! | [`svg`] | a heat map of a head, for a text |
//! | [`terminal`] | the same in letters, for a look in between |
//! | [`Metrics`] | `metrics.jsonl`: what was measured, step by step, the same whether a run was interrupted or not |
//! | [`LossChart`] | the losses as a chart |
//! | [`Report`] | configuration, parameters, curves, samples and maps of a run on one page |
//! | [`write`](write()) | a drawing as a file |
//!
//! The weights come as [`AttentionMap`](crate::maps::AttentionMap)s; what stands beside queries and keys is [`Labels`].
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
//! Pages need nothing but a browser: they fetch nothing, and a policy in them forbids it. Labels, names and titles are text wherever they
//! come from, and are never run. Files are written under another name and then renamed, so that a page is the old one or the new one.
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
mod metrics;
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
pub use metrics::{Metrics, Record};
pub use report::Report;
pub use svg::{SvgOptions, svg};
pub use terminal::{Terminal, terminal};
pub use viewer::Viewer;
