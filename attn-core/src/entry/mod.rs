//! The call of a layer: the inputs before the first operation, and the output after the last one.

mod absent;
mod attended;
mod batch;
mod checks;
mod layer;
mod observer;
mod options;
mod recorder;

pub use absent::{or_count, or_full, or_marks};
pub use attended::{Attended, Wanted, into_device, output, wanted, with_weights};
pub use batch::{add_batch, drop_batch, in_shape};
pub use checks::{
    Tokens, Widths, check_axes, check_batch, check_grid, check_grid_capacity, check_inputs,
    check_mask_lengths, check_one_sequence, check_room, check_sizes, check_values,
};
pub use layer::{Attends, Composed, Layer};
pub use observer::{Observed, Observer, Seen};
pub use options::ForwardOptions;
pub use recorder::{AttentionWeights, Recorder};
