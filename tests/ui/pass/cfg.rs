//! `#[cfg]` applies to all items that a declaration emits.

use attn::{attention, dfdx::prelude::*};

attention! {
    #[cfg(any())]
    pub struct Layer<heads = ABSENT, d_model = 8, dropout = ABSENT>;

    #[cfg(all())]
    #[cfg_attr(all(), must_use, allow(dead_code))]
    #[cfg_attr(any(), derive(Missing))]
    pub struct Layer<heads = PRESENT, d_model = 8, dropout = 0.5>;

    /// A name that the expansion uses itself.
    #[cfg(any())]
    struct B<heads = ABSENT, d_model = 8>;

    #[cfg(all())]
    #[cfg(not(any()))]
    struct B<heads = 4, d_model = 8>;
}

#[cfg(all())]
const PRESENT: usize = 2;

#[test]
fn cfg_holds_for_all_that_is_emitted() {
    let dev = AutoDevice::default();
    let x: Tensor<Rank3<1, 2, 8>, f32, _> = dev.sample_normal();
    let y = dev.build_module::<Layer, f32>().forward(x);
    let y = dev.build_module::<B, f32>().forward(y);
    assert_eq!(y.shape().concrete(), [1, 2, 8]);
    assert_eq!((Layer::HEADS, B::HEADS), (2, 4));
}
