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
