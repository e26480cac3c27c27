//! `attend::<mask = causal>(q, k, v, padding = lens) { body }`: attention to given keys and values. In the graph it is an
//! [`Attention`](super::Attention) without projections.

use super::{Lower, Operation};
use crate::spec::keys::ATTEND_KEYS;

pub(super) static ATTEND: Operation = Operation {
    name: "attend",
    keys: ATTEND_KEYS,
    positional: 0,
    may_be_tied: false,
    signature: "`[batch, q, heads, d]`, `[batch, kv, heads, d]` and `[batch, kv, heads, e]` to `[batch, q, heads, e]`, perhaps with `[batch, heads, q, kv]` and `[batch, heads, q]`",
    doc: "Attention of queries to keys and values, with a body in braces after the operands, and data by name as in `attention`. The axis of the heads stands anywhere before the last one, or is left out: one head. Keys and values may have fewer heads (grouped-query attention), or one for all. `let (y, weights, lse) = attend(q, k, v);` has the weights beside the result, and the logarithms of the sums that they are divided by. PyTorch: `F.scaled_dot_product_attention`, `flex_attention`.",
    lower: Lower::Attention(|lowering, call, arguments, names, builder| {
        lowering.attend(call, arguments, names, builder)
    }),
};
