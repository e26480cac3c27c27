//! Blocks of other modules of a crate, which are declared before or behind their use, and are as visible as they say.

use super::*;

mod inner {
    attn::model! {
        pub(crate) block scaled(x: [.., n], by = 2) -> [.., n] { by * gain(x) }
        block gain(x: [.., n]) -> [.., n] { param gain: [n] = 3; x * gain }
    }

    pub(super) mod deeper {
        attn::model! {
            use super::scaled as twice;

            pub(crate) block quadrupled(x: [.., n]) -> [.., n] { twice(twice::<name = again>(x)) }
            pub(in super::super) block eightfold(x: [.., n]) -> [.., n] { quadrupled(twice(x)) }
        }
    }

    pub(super) use deeper::quadrupled;
}

attn::model! {
    use inner::{deeper::eightfold, quadrupled, scaled};
    use here;

    struct One<d = 4>;

    fn forward(x: [batch, d]) -> [batch, d] {
        here(scaled(x) + quadrupled(x) + eightfold(x) + scaled::<0.5, name = half>(x))
    }
}

attn::model! {
    use self::inner::scaled;

    struct Two<d = 4>;

    /// Declared beside a model, and used before.
    pub(self) block here(x: [batch, n]) -> [batch, n] { x + 0 * scaled(x) }

    fn forward(x: [batch, d]) -> [batch, d] { here(scaled(x)) }
}

attn::model! {
    use crate::modules::inner::scaled;

    struct Left<d = 4>;
    fn forward(x: [batch, d]) -> [batch, d] { scaled(x) }

    /// Both models call it.
    struct Right<d = 6>;
    fn forward(x: [batch, d]) -> [batch, d] { scaled::<3>(x) }
}

#[test]
fn every_call_has_its_parameters() {
    let _alone = alone();
    let dev = Cpu::default();
    let x = dev.ones::<Rank2<1, 4>>();
    let one = dev.build_module::<One, f64>();
    // 2 * 3, (2 * 3)^2, (2 * 3)^3 and 0.5 * 3
    assert_eq!(
        one.forward(x.clone()).array(),
        [[6.0 + 36.0 + 216.0 + 1.5; 4]]
    );
    let names = named(&one).into_iter().map(|(name, _)| name);
    assert_eq!(
        names.collect::<Vec<_>>(),
        [
            "scaled.gain.gain.weight",
            "quadrupled.again.gain.gain.weight",
            "quadrupled.twice.gain.gain.weight",
            "eightfold.twice.gain.gain.weight",
            "eightfold.quadrupled.again.gain.gain.weight",
            "eightfold.quadrupled.twice.gain.gain.weight",
            "half.gain.gain.weight",
            "here.scaled.gain.gain.weight",
        ]
    );
    let two = dev.build_module::<Two, f64>();
    assert_eq!(two.forward(x.clone()).array(), [[6.0; 4]]);
    let left = dev.build_module::<Left, f64>();
    assert_eq!(left.forward(x).array(), [[6.0; 4]]);
    let right = dev.build_module::<Right, f64>();
    assert_eq!(right.forward(dev.ones::<Rank2<1, 6>>()).array(), [[9.0; 6]]);
}

#[test]
fn a_block_may_be_local() {
    let _alone = alone();
    attn::model! {
        pub block local(x: [.., n]) -> [.., n] { 2 * x }
    }
    attn::model! {
        use local;

        struct M<d = 4>;
        fn forward(x: [batch, d]) -> [batch, d] { local(x) }
    }
    let dev = Cpu::default();
    let model = dev.build_module::<M, f64>();
    assert_eq!(model.forward(dev.ones::<Rank2<1, 4>>()).array(), [[2.0; 4]]);
}
