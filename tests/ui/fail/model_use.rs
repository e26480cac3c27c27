//! Blocks of other declarations that cannot be used so.

mod layers {
    attn::model! {
        pub block mlp(x: [.., n], hidden) -> [.., n] { linear::<n>(narrow(linear::<hidden>(x))) }
        block narrow(x: [.., n]) -> [.., n] { x * linear::<{ n - 1 }>(x) }
        block private(x: [..]) -> [..] { x + x }
        pub block wide(x: [.., n]) -> [.., n] { linear::<n>(linear::<WIDTH>(x)) }
    }
}

mod others {
    attn::model! {
        pub block mlp(x: [.., n], hidden) -> [.., n] { linear::<n>(narrow(linear::<hidden>(x))) }
        block narrow(x: [.., n]) -> [.., n] { x * linear::<{ n - 1 }>(x) }
    }
    pub struct Encoder;
}

attn::model! {
    use others::mlp;

    struct Calls<d = 8>;
    fn forward(x: [batch, d]) -> [batch, d] { mlp::<4>(mlp(x)) }
}

attn::model! {
    use others::narrow;

    struct Private<d = 8>;
    fn forward(x: [batch, d]) -> [batch, d] { narrow(x) }
}

attn::model! {
    use others::Encoder;

    struct Struct<d = 8>;
    fn forward(x: [batch, d]) -> [batch, d] { Encoder(x) }
}

attn::model! {
    use others::*;

    struct All<d = 8>;
    fn forward(x: [batch, d]) -> [batch, d] { mlp::<4>(x) }
}

fn main() {}
