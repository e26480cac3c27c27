//! Values that are combined by the names of their axes.

use super::agree::{agree, tolerance};
use super::*;
use attn::{Backend, Element, model};
use support::compare::assert_same;

support::combined_by_name!(agree);
support::expanded!(agree);

/// Two axes of one size are told apart by their names.
#[test]
fn axes_of_one_size_are_combined_by_name() {
    model! {
        struct Model<rows = 2, cols = 2>;
        fn forward(x: [rows, cols], by_row: [rows], by_col: [cols]) -> [rows, cols] {
            10 * x + by_row + 100 * by_col
        }
    }
    let dev = Cpu::default();
    let model = dev.build_module::<Model, f64>();
    let x = dev.tensor([[1.0, 2.0], [3.0, 4.0]]);
    let y = model.forward((x.clone(), dev.tensor([0.1, 0.2]), dev.tensor([5.0, 6.0])));
    assert_eq!(y.array(), [[510.1, 620.1], [530.2, 640.2]]);
    let y = model
        .composed()
        .forward((x, dev.tensor([0.1, 0.2]), dev.tensor([5.0, 6.0])));
    assert_eq!(y.array(), [[510.1, 620.1], [530.2, 640.2]]);
}
