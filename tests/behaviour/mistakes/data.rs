//! Data of a body that do not fit the input, and indices that they take out of bounds.

use super::{batched, error_of, panic_of, unbatched};
use attn::{Error, attention};
use dfdx::prelude::*;

attention! {
    struct Graph<heads = 2, d_model = 8> {
        param bias: [heads, 4] = zeros;
        data distance: ids[batch, q_len, kv_len];
        fn score(score, b, h, q_idx, kv_idx) { score + bias[h, distance[b, q_idx, kv_idx]] }
    }
    struct Linked<heads = 2, d_model = 8, d_context = 6> {
        data link: ids[q_len];
        data level: [heads, kv_len];
        fn mask(h, q_idx, kv_idx) { level[h, link[q_idx]] <= level[h, kv_idx] }
    }
    /// Chunks with a size per sequence.
    struct Chunked<heads = 2, d_model = 8> {
        data size: ids[batch];
        fn mask(b, q_idx, kv_idx) { kv_idx / size[b] <= q_idx / size[b] }
    }
    struct Guarded<heads = 2, d_model = 8> {
        data size: ids[batch];
        fn mask(b, q_idx, kv_idx) { kv_idx / max(size[b], 1) <= q_idx / max(size[b], 1) }
    }
    struct Periods<heads = 2, d_model = 8> {
        fn score(score, q_idx, kv_idx) { score + (kv_idx % (q_idx - 2)) as f32 }
    }
}

fn ids<S: Shape>(shape: S, cell: impl Fn(usize) -> usize) -> Tensor<S, usize, Cpu> {
    Cpu::default().tensor_from_vec((0..shape.num_elements()).map(cell).collect(), shape)
}

fn zeros<S: Shape>(shape: S) -> Tensor<S, f32, Cpu> {
    Cpu::default().zeros_like(&shape)
}

#[test]
fn data_fit_the_input() {
    assert_mistake!(
        Graph,
        (batched(2, 3), ids((1, 3, 3), |_| 0)),
        Error::DataMismatch {
            axis: 0,
            expected: 2,
            found: 1,
            ..
        },
        "Graph: axis 0 of `distance` has size 1, but `batch` is 2",
    );
    assert_mistake!(
        Graph,
        (batched(2, 3), ids((2, 3, 4), |_| 0)),
        Error::DataMismatch {
            axis: 2,
            expected: 3,
            found: 4,
            ..
        },
        "Graph: axis 2 of `distance` has size 4, but `kv_len` is 3",
    );
    assert_mistake!(
        Graph,
        (unbatched(3), ids((2, 3), |_| 0)),
        Error::DataMismatch {
            axis: 0,
            expected: 3,
            found: 2,
            ..
        },
        "Graph: axis 0 of `distance` has size 2, but `q_len` is 3",
    );
    assert_mistake!(
        Linked,
        (
            batched(2, 3),
            batched(2, 4),
            ids((3,), |_| 0),
            zeros((Const, 3))
        ),
        Error::DataMismatch {
            data: "level",
            axis: 1,
            expected: 4,
            found: 3,
            ..
        },
        "Linked: axis 1 of `level` has size 3, but `kv_len` is 4",
    );
}

#[test]
fn an_id_stays_inside_of_what_it_indexes() {
    assert_mistake!(
        Graph,
        (
            batched(2, 3),
            ids((2, 3, 3), |i| if i < 13 { i % 4 } else { 4 })
        ),
        Error::OutsideOfTensor {
            tensor: "bias",
            axis: 1,
            size: 4,
            index: 4,
            ..
        },
        "Graph: at b = 1, h = 0, q_idx = 1, kv_idx = 1 `bias` is read at index 4 of axis 1, whose size is 4",
    );
    assert_mistake!(
        Linked,
        (
            unbatched(3),
            unbatched(4),
            ids((3,), |i| 2 * i),
            zeros((Const, 4))
        ),
        Error::OutsideOfTensor {
            tensor: "level",
            index: 4,
            ..
        },
        "Linked: at b = 0, h = 0, q_idx = 2, kv_idx = 0 `level` is read at index 4 of axis 1, whose size is 4",
    );
}

#[test]
fn division_of_integers_by_zero_is_an_error() {
    assert_mistake!(
        Chunked,
        (batched(2, 3), ids((2,), |i| 1 - i)),
        Error::DivisionByZero {
            divisor: "size[b]",
            place: [1, 0, 0, 0],
            ..
        },
        "Chunked: at b = 1, h = 0, q_idx = 0, kv_idx = 0 an integer is divided by `size[b]`, which is 0",
    );
    assert_mistake!(
        Periods,
        unbatched(3),
        Error::DivisionByZero {
            place: [0, 0, 2, 0],
            ..
        },
        "Periods: at b = 0, h = 0, q_idx = 2, kv_idx = 0 an integer is divided by `q_idx - 2`, which is 0",
    );
    let dev = Cpu::default();
    let guarded = dev.build_module::<Guarded, f32>();
    assert!(
        guarded
            .try_forward((batched(2, 3), ids((2,), |i| 1 - i)))
            .is_ok()
    );
    let periods = dev.build_module::<Periods, f32>();
    assert!(periods.try_forward(unbatched(2)).is_ok());
}

#[test]
fn an_id_has_a_limit() {
    assert_mistake!(
        Graph,
        (batched(1, 2), ids((1, 2, 2), |i| i << 33)),
        Error::OutOfRange {
            what: "distance",
            ..
        },
        "Graph: the distance at [0, 0, 1] is 8589934592, but there are 2147483648: 0 to 2147483647",
    );
}
