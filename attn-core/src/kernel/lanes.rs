//! Loops over several slices at once, vector by vector.

/// Runs `body` for every chunk of [`LANES`](crate::simd::Vector::LANES) elements of slices of one length, and for what
/// is left at their ends:
///
/// ```ignore
/// for_lanes!(V, len, [x, y], [to], store_any(load_any::<V>(x) + load_any(y), to));
/// ```
///
/// reads `x` and `y` and writes `to`, three slices that the body sees chunk by chunk under the same names.
///
/// A loop over zipped `chunks` would ask every slice for its length at every chunk. Here whole vectors are known to be
/// whole, so that `load_any` and `store_any` are single instructions.
macro_rules! for_lanes {
    ($vector:ident, $len:expr, [$($from:ident),*], [$($to:ident),*], $body:expr) => {{
        let len: usize = $len;
        $(let $from = &$from[..len];)*
        $(let $to = &mut $to[..len];)*
        let mut start = 0;
        while start + $vector::LANES <= len {
            let end = start + $vector::LANES;
            $(let $from = &$from[start..end];)*
            $(let $to = &mut $to[start..end];)*
            $body;
            start = end;
        }
        if start < len {
            $(let $from = &$from[start..];)*
            $(let $to = &mut $to[start..];)*
            $body;
        }
    }};
}

pub(super) use for_lanes;
