//! Tokens that stand on a grid, as the patches of an image or of a video: the coordinates of queries and keys.

use quote::{ToTokens, quote};

use super::check::{Checker, LARGEST_LENGTH, LARGEST_SIZE};
use super::parse::{Entry, Value};
use super::rules::Rules;
use super::value::Size;
use super::{Atom, MaskExpr};
use crate::messages::grid as messages;
use crate::score::{Expr, Var};

/// The places of the tokens: after some tokens that stand on no grid, they follow in row-major order.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    /// The number of tokens before the grid.
    pub(crate) prefix: Option<Size>,
    /// The sizes of the grid of the queries: `[rows, cols]` or `[frames, rows, cols]`.
    queries: Vec<Size>,
    /// Those of the keys.
    keys: Vec<Size>,
}

/// An axis of a grid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GridAxis {
    Frame,
    Row,
    Col,
}

/// The axes of a grid of three. One of two has the last two.
const AXES: [GridAxis; 3] = [GridAxis::Frame, GridAxis::Row, GridAxis::Col];

impl GridAxis {
    /// The argument of a mask that is a size along this axis.
    pub(crate) fn sizes(self) -> &'static str {
        match self {
            GridAxis::Frame => "frames",
            GridAxis::Row => "rows",
            GridAxis::Col => "cols",
        }
    }

    fn name(self) -> &'static str {
        match self {
            GridAxis::Frame => "frame",
            GridAxis::Row => "row",
            GridAxis::Col => "col",
        }
    }
}

/// The coordinate of a query or of a key along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Coordinate {
    of: Var,
    axis: GridAxis,
}

impl Coordinate {
    /// All coordinates, in the order of the documentation.
    pub(crate) fn all() -> impl Iterator<Item = Coordinate> {
        let of = [Var::QIdx, Var::KvIdx].into_iter();
        of.flat_map(|of| AXES.map(|axis| Coordinate { of, axis }))
    }

    /// The coordinate of this name.
    pub(crate) fn find(name: &str) -> Option<Coordinate> {
        Coordinate::all().find(|coordinate| coordinate.name() == name)
    }

    /// `q_row`
    pub(crate) fn name(self) -> String {
        let of = if self.of == Var::QIdx { "q" } else { "kv" };
        format!("{of}_{}", self.axis.name())
    }
}

impl Grid {
    /// The sizes of the grid on which the queries are, or the keys.
    pub(crate) fn sizes(&self, of: Var) -> &[Size] {
        match of {
            Var::KvIdx => &self.keys,
            _ => &self.queries,
        }
    }

    pub(crate) fn axes(&self) -> &'static [GridAxis] {
        &AXES[3 - self.queries.len().clamp(1, 3)..]
    }

    /// The number of keys along an axis.
    pub(crate) fn keys_along(&self, axis: GridAxis) -> Option<&Size> {
        let index = self.axes().iter().position(|other| *other == axis)?;
        self.keys.get(index)
    }

    /// The number of queries or keys, those before the grid included.
    pub(crate) fn len(&self, of: Var) -> Size {
        let sizes = self.sizes(of).iter();
        let cells = sizes.fold(Size::known(1), |cells, size| cells.times(size));
        match &self.prefix {
            Some(prefix) => prefix.plus(&cells),
            None => cells,
        }
    }

    /// The coordinate as an expression of the index, or `None` if the grid has no such axis. Tokens before the grid have those of its
    /// first place.
    pub(crate) fn coordinate(&self, coordinate: Coordinate) -> Option<Expr> {
        self.along(coordinate.of, coordinate.axis)
    }

    pub(crate) fn along(&self, of: Var, axis: GridAxis) -> Option<Expr> {
        let index = self.axes().iter().position(|other| *other == axis)?;
        let sizes = self.sizes(of);
        let behind = sizes[index + 1..].iter();
        let step = behind.fold(Size::known(1), |step, size| step.times(size));
        let place = match &self.prefix {
            Some(prefix) => (Expr::from(of) - prefix).max(0),
            None => of.into(),
        };
        let place = match step.value {
            Some(1) => place,
            _ => place / &step,
        };
        // A sequence of a wrong length is an error before this is computed, so the rest only bounds the first coordinate.
        Some(place % &sizes[index])
    }

    /// Whether the query or the key stands before the grid.
    pub(crate) fn outside(&self) -> Option<Expr> {
        let prefix = self.prefix.as_ref()?;
        let before = |var: Var| Expr::from(var).less(prefix);
        Some(before(Var::QIdx) | before(Var::KvIdx))
    }

    /// The sizes that coordinates are divided by. None of them is 0.
    pub(crate) fn lengths(&self) -> Vec<Size> {
        let of = |sizes: &[Size]| {
            let from = (0..sizes.len()).map(|first| {
                let sizes = sizes[first..].iter();
                sizes.fold(Size::known(1), |step, size| step.times(size))
            });
            [sizes, &from.collect::<Vec<_>>()].concat()
        };
        [of(&self.queries), of(&self.keys)].concat()
    }
}

impl Atom {
    /// Whether it compares places on a grid.
    pub(crate) fn reads_grid(&self) -> bool {
        matches!(
            self.name(),
            "neighborhood" | "local" | "window" | "same_frame" | "same_row" | "same_col"
        )
    }

    /// How many places it spans along an axis.
    pub(crate) fn extent(&self, axis: GridAxis) -> Size {
        let own = self.call.optional_size(axis.sizes());
        own.unwrap_or_else(|| self.size("n"))
    }
}

impl Checker<'_> {
    /// The keys `grid`, `kv_grid` and `prefix_tokens`.
    pub(super) fn grid(&mut self, cross: bool) -> Option<Grid> {
        let queries = self.sizes("grid");
        let keys = self.sizes("kv_grid");
        let prefix = match self.entry("prefix_tokens").map(|entry| &entry.value) {
            Some(Value::Size(size)) => Some(size.clone()),
            _ => None,
        };
        let prefix = prefix.filter(|size| {
            let holds = size.value.map(|value| value <= LARGEST_SIZE);
            let condition = quote!(#size as u64 <= #LARGEST_SIZE);
            let message = || messages::prefix_too_long(size, LARGEST_SIZE);
            self.require(&size.origin, holds, condition, message) && size.value != Some(0)
        });
        for key in ["kv_grid", "prefix_tokens"] {
            if self.has(key) && !self.has("grid") {
                self.contradiction(key, &messages::without_grid(key));
            }
        }
        if self.has("grid") && self.has("kv_grid") && !cross {
            self.contradiction("kv_grid", messages::GRID_OF_KEYS_ALONE);
        }
        let queries = queries?;
        let keys = keys.unwrap_or_else(|| queries.clone());
        if keys.len() != queries.len() {
            let message = messages::other_axes(queries.len(), keys.len());
            self.contradiction("kv_grid", &message);
            return None;
        }
        Some(Grid {
            prefix,
            queries,
            keys,
        })
    }

    /// Two or three sizes that are within bounds.
    fn sizes(&mut self, key: &'static str) -> Option<Vec<Size>> {
        let Some(Entry {
            value: Value::Sizes(sizes),
            ..
        }) = self.entry(key)
        else {
            return None;
        };
        let sizes = sizes.clone();
        if !(2..=3).contains(&sizes.len()) {
            self.contradiction(key, &messages::number_of_axes(key, sizes.len()));
            return None;
        }
        let sound = sizes
            .iter()
            .map(|size| self.bounded(size, key, LARGEST_SIZE));
        let sound = sound.collect::<Vec<_>>().into_iter().all(|sound| sound);
        let mut known = sizes.iter().map(|size| size.value);
        let places = known.try_fold(1_u64, |places, size| places.checked_mul(size?));
        if sound && places.is_some_and(|places| places > LARGEST_LENGTH) {
            self.contradiction(key, &messages::too_many_places(LARGEST_LENGTH));
            return None;
        }
        sound.then_some(sizes)
    }

    /// Checks a word that compares places on a grid.
    pub(super) fn grid_word(&mut self, atom: &Atom, grid: Option<&Grid>) {
        if !atom.reads_grid() {
            return;
        }
        let call = &atom.call;
        let Some(grid) = grid else {
            if !self.has("grid") {
                self.cx
                    .error(&call.origin, messages::word_without_grid(atom.name()));
            }
            return;
        };
        for axis in AXES {
            let is_there = grid.axes().contains(&axis);
            let own = call.optional_size(axis.sizes());
            if let (Some(size), false) = (&own, is_there) {
                let message = messages::no_axis(axis.sizes());
                self.cx.error(&size.origin, message);
                continue;
            }
            if let Some(size) = &own {
                let what = format!("{}` of `{}", axis.sizes(), atom.name());
                self.bounded(size, &what, LARGEST_LENGTH);
            }
            if is_there && atom.name() == "window" {
                self.shift(atom, axis);
            }
        }
        if atom.name() == "same_frame" && grid.axes().len() == 2 {
            self.cx.error(&call.origin, messages::no_axis("same_frame"));
        }
    }

    /// A shift is less than the window, as a larger one is the same as its rest.
    fn shift(&mut self, atom: &Atom, axis: GridAxis) {
        let [shift, extent] = [atom.size("shift"), atom.extent(axis)];
        let holds = match (shift.value, extent.value) {
            (Some(0), _) => Some(true),
            (shift, extent) => shift.zip(extent).map(|(shift, extent)| shift < extent),
        };
        let at = match shift.origin.is_empty() {
            true => atom.call.origin.to_token_stream(),
            false => shift.origin.clone(),
        };
        self.require(&at, holds, quote!(#shift < #extent), || {
            messages::shift_too_large(&shift, &extent)
        });
    }

    /// A grid that neither a mask nor a body reads has no effect.
    pub(super) fn grid_is_read(&self, mask: &MaskExpr, body_reads: bool) {
        let reads = mask.atoms().into_iter().any(Atom::reads_grid) || body_reads;
        if self.has("grid") && !reads {
            self.contradiction("grid", messages::GRID_WITHOUT_READER);
        }
    }
}
