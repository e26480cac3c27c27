//! Loops over several slices at once, in vectors.

/// Runs `body` for every chunk of [`LANES`](crate::simd::Vector::LANES) elements of slices of one length, and for the remainder:
///
/// ```ignore
/// for_lanes!(V, len, [x, y], [to], store_any(load_any::<V>(x) + load_any(y), to));
/// ```
///
/// reads `x` and `y` and writes `to`. In the body these names are the chunks of the three slices.
///
/// A loop over zipped `chunks` would check the length of every chunk of every slice. Here the chunks are known to be whole
/// vectors, so that `load_any` and `store_any` are single instructions.
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
