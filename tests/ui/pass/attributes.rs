//! The user's derives and attributes go to the struct, next to those of the expansion.

use attn::{attention, dfdx::prelude::*};

attention! {
    #[derive(Clone)]
    struct OneDerive<heads = 2, d_model = 8>;

    #[derive(Debug, Clone)]
    struct BothDerives<heads = 2, d_model = 8>;

    #[derive(std::clone::Clone)]
    #[derive(::core::fmt::Debug)]
    struct Paths<heads = 2, d_model = 8>;

    #[must_use]
    #[allow(non_camel_case_types)]
    #[doc(alias = "mha")]
    #[repr(C)]
    /// First line.
    ///
    /// # Heading
    /** A block, `{`with`}` "braces" and \ backslashes. */
    #[doc = "\"Quoted\""]
    #[doc = concat!("Made", " of parts")]
    struct many_attributes<heads = 2, d_model = 8>;

    struct r#Raw<heads = 2, d_model = 8>;

    #[allow(non_camel_case_types)]
    struct r#match<heads = 2, d_model = r#type, mask = causal>;

    struct Größe<heads = 2, d_model = 8>;
}

#[allow(non_upper_case_globals)]
const r#type: usize = 8;

#[test]
fn attributes_and_derives_go_to_the_struct() {
    let dev = AutoDevice::default();
    let x: Tensor<Rank2<3, 8>, f32, _> = dev.sample_normal();
    type Model = (
        (OneDerive, BothDerives, Paths),
        (many_attributes, Raw, r#match, Größe),
    );
    let model = dev.build_module::<Model, f32>();
    assert_eq!(
        model.clone().forward(x.clone()).array(),
        model.forward(x).array()
    );
    assert!(format!("{:?}", model.0.1).starts_with("BothDerives { q_proj: Linear"));
    assert!(format!("{:?}", model.1.2).starts_with("match { q_proj: Linear"));
    assert_eq!(
        std::mem::align_of::<many_attributes>(),
        std::mem::align_of::<OneDerive>()
    );
}
