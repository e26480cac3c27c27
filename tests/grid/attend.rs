//! An `attend` of queries, keys and values on grids.

use attn::{dfdx::prelude::*, model};
use support::compare::flat;

model! {
    struct OnGrids<d = 4>;
    fn forward(x: [batch, 6, d], memory: [batch, seq, d]) -> [batch, 6, d] {
        let x = x + attend::<grid = [2, 3], mask = same_row | same_col>(x, x, x) { fn score(score, q_row, kv_col) { score + (q_row * kv_col) as f32 } };
        attend::<grid = [2, 3], kv_grid = [3, 3], mask = same_col>(x, memory, memory)
    }
}

model! {
    struct ByIndices<d = 4>;
    fn forward(x: [batch, 6, d], memory: [batch, seq, d]) -> [batch, 6, d] {
        let x = x + attend(x, x, x) {
            fn mask(q_idx, kv_idx) { q_idx / 3 == kv_idx / 3 || q_idx % 3 == kv_idx % 3 }
            fn score(score, q_idx, kv_idx) { score + (q_idx / 3 * (kv_idx % 3)) as f32 }
        };
        attend(x, memory, memory) { fn mask(q_idx, kv_idx) { q_idx % 3 == kv_idx % 3 } }
    }
}

#[test]
fn places_on_grids_are_those_of_indices() {
    let dev = Cpu::default();
    let x: Tensor<(usize, Const<6>, Const<4>), f64, _> = dev.sample_normal_like(&(2, Const, Const));
    let memory: Tensor<(usize, usize, Const<4>), f64, _> = dev.sample_normal_like(&(2, 9, Const));
    let on_grids = dev.build_module::<OnGrids, f64>();
    let by_indices = dev.build_module::<ByIndices, f64>();
    let found = on_grids.forward((x.clone(), memory.clone()));
    let expected = by_indices.forward((x.clone(), memory));
    assert_eq!(flat(&found), flat(&expected));
    let composed = on_grids.composed();
    let memory: Tensor<(usize, usize, Const<4>), f64, _> = dev.sample_normal_like(&(2, 8, Const));
    for error in [
        on_grids
            .try_forward((x.clone(), memory.clone()))
            .unwrap_err(),
        composed.try_forward((x, memory)).unwrap_err(),
    ] {
        assert!(error.to_string().contains("9"), "{error}");
    }
}
