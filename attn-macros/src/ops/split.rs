//! `let (a, b) = split::<axis>(x);`: a slice for each name.

use proc_macro2::Ident;

use super::{CallSite, Lower, Operation};
use crate::model::graph::ValueId;
use crate::model::lower::{Lowering, RegionBuilder};
use crate::spec::keys::{Key, KeyKind};

pub(super) static SPLIT: Operation = Operation {
    name: "split",
    keys: &[Key {
        name: "axis",
        kind: KeyKind::Axes,
        default: "the last one",
        doc: "Which axis is cut.",
    }],
    positional: 1,
    may_be_tied: false,
    signature: "`[.., n * d]` to `n` times `[.., d]`",
    doc: "Parts of an axis, of one size, as many as there are names: `let (a, b) = split::<axis>(x);`. PyTorch: `x.chunk(n, dim)`.",
    lower: Lower::Parts(&lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    names: &[Ident],
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<Vec<ValueId>> {
    lowering.split(names, call, builder)
}
