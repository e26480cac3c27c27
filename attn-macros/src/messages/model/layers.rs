//! Messages about the layers of a model.

use crate::model::types::Type;
use crate::spec::Size;

pub(crate) fn positions_differ(ids: &Type, vectors: &Type) -> String {
    format!(
        "`position_ids` are a position for each token, with or without `batch`: the vectors are {vectors}, the positions {ids}"
    )
}

pub(crate) fn channels_of_any_number(axis: &str, ty: &Type) -> String {
    format!(
        "`group_norm` has a gain and a bias for every channel, so their number is constant, found the axis `{axis}` of {ty}\n\
        help: name the axis of the channels: `group_norm::<groups, axis = channels>(x)`"
    )
}

pub(crate) fn groups_do_not_divide(groups: &Size, channels: &Size) -> String {
    format!(
        "`groups` must divide the number of channels, found {groups} groups of {channels} channels"
    )
}

pub(crate) fn rows_and_groups_differ(x: &Type, ids: &Type) -> String {
    format!(
        "`grouped_linear`: one group for each row, or several: x is {x}, the groups are {ids}\n\
        help: of the axes of x before the last one and those of the ids, one list begins with the other, as in [batch, seq, 8] and ids[batch, seq, 2]"
    )
}

/// Why a model with this layer has no sessions.
pub(crate) fn session_capacity(name: &str) -> String {
    format!("the `capacity_factor` of its `{name}` counts all tokens, and later ones change it")
}
