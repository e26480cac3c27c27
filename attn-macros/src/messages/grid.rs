//! Messages about tokens on a grid.

use std::fmt::Display;

pub(crate) const GRID_OF_KEYS_ALONE: &str = "in self-attention the keys are on the grid of the queries\n\
    help: remove `kv_grid`; it is for a `d_context`";
pub(crate) const GRID_WITHOUT_READER: &str = "`grid` has no effect: neither the mask nor a function of the body reads rows or columns\n\
    help: add a mask such as `mask = neighborhood(7)`, read `q_row`, `q_col`, `kv_row`, `kv_col` in a body, or remove `grid`";

pub(crate) fn expected_sizes(key: &str, found: &str) -> String {
    format!(
        "`{key}` takes sizes in brackets, found {found}\nhelp: write `{key} = [rows, cols]`, or `[frames, rows, cols]`"
    )
}

pub(crate) fn number_of_axes(key: &str, found: usize) -> String {
    let sizes = if found == 1 { "size" } else { "sizes" };
    format!(
        "`{key}` has {found} {sizes}, a grid has two or three\nhelp: write `{key} = [rows, cols]`, or `[frames, rows, cols]`"
    )
}

pub(crate) fn too_many_places(most: u64) -> String {
    format!("a grid has at most {most} places")
}

pub(crate) fn prefix_too_long(found: impl Display, most: u64) -> String {
    format!("`prefix_tokens` is at most {most}, found {found}")
}

pub(crate) fn without_grid(key: &str) -> String {
    format!("`{key}` has no effect without a grid\nhelp: add `grid = [rows, cols]`")
}

pub(crate) fn other_axes(queries: usize, keys: usize) -> String {
    format!(
        "`grid` has {queries} axes and `kv_grid` {keys}\nhelp: give both the same axes; one that a sequence lacks has the size 1"
    )
}

pub(crate) fn word_without_grid(word: &str) -> String {
    let of_sequence = match word {
        "local" | "window" => "; the window of a sequence is `sliding_window(n)`",
        _ => "",
    };
    format!(
        "`{word}` compares places on a grid, and the layer has none\nhelp: add the size of the grid, as `grid = [14, 14]` for 14 rows of 14 tokens{of_sequence}"
    )
}

/// A coordinate in a body of a layer that has no grid.
pub(crate) fn coordinate_without_grid(name: &str) -> String {
    format!(
        "`{name}` is a place on a grid, and the layer has none\nhelp: add the size of the grid to the keys, as `grid = [14, 14]`; it takes the place of `q_idx / 14` and `q_idx % 14`"
    )
}

/// What is about frames, on a grid of two axes.
pub(crate) fn no_axis(found: &str) -> String {
    format!(
        "`{found}` is about frames, and the grid has rows and columns alone\nhelp: write `grid = [frames, rows, cols]`"
    )
}

pub(crate) fn shift_too_large(shift: impl Display, window: impl Display) -> String {
    format!(
        "the shift {shift} must be less than the window {window}\nhelp: Swin shifts every other layer by half a window, `window(8, shift = 4)`"
    )
}

/// The length of a sequence of a model that is not that of the grid.
pub(crate) fn length_differs(length: impl Display, grid: impl Display, ty: impl Display) -> String {
    format!(
        "the grid has {grid} tokens, but the sequence {length}: `{ty}`\nhelp: tokens before the grid, as a class token, are counted by `prefix_tokens`"
    )
}
