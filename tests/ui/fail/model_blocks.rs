//! Blocks that cannot be declared or called so.

use attn::model;

const WIDTH: usize = 8;

model! {
    struct Calls<d = 8>;

    block mlp(x: [.., d], hidden) -> [.., d] {
        linear::<d>(gelu(linear::<hidden>(x)))
    }

    block pair(x: [.., n], y: [.., n]) -> ([.., n], [..]) { (x + y, sum::<n>(x)) }

    fn forward(x: [batch, seq, d], short: [batch, d]) -> [batch, seq, d] {
        let a = mlp(x);
        let b = mlp::<hiden = 32>(x);
        let c = mlp::<32>(linear::<12>(x));
        let e = mlpp::<32>(x);
        let f = mlp::<32, 16>(x, x);
        let g = mlp(x, 32);
        let h = pair(x, short);
        let (i, j) = pair(x, short);
        a + b + c + e + f + g + h + i + j
    }
}

model! {
    struct Bodies<d = 8>;

    /// Reported once, however often it is called.
    block typo(x: [.., d], hidden) -> [.., d] { linear::<d>(linear::<hiden>(x) + y) }

    block narrow(x: [.., d]) -> [.., d] { linear::<7>(x) }

    block round(x: [..]) -> [..] { trip(x) }

    block trip(x: [..]) -> [..] { round(x) }

    fn forward(x: [batch, d]) -> [batch, d] {
        typo::<3>(x) + typo::<4>(x) + typo::<3>(x) + narrow(narrow(x)) + round(x)
    }
}

model! {
    struct Uncalled<d = 8>;
    block never(x: [.., d]) -> [.., d] { x }
    fn forward(x: [batch, d]) -> [batch, d] { x }
}

model! {
    struct Unread<d = 8>;
    block often(x: [.., d], size) -> [.., d] { x }
    block spelt(x: [.., d], size) -> [.., d] { linear::<d>(linear::<sise>(x)) }
    fn forward(x: [batch, d]) -> [batch, d] { often::<3>(often::<4>(spelt::<2>(x))) }
}

model! {
    struct Names<d = 8>;
    block linear(x: [..]) -> [..] { x }
    block twice(x: [..]) -> [..] { x }
    block twice(x: [..], x) -> [..] { x }
    block typed(x: [d, ..], hidden: usize) -> [.., d] { x }
    fn forward(x: [batch, d]) -> [batch, d] { linear(twice(typed(x))) }
}

model! {
    struct Sizes<d = WIDTH>;
    block same(x: [.., n], y: [.., n]) -> [.., n] { x + y }
    fn forward(x: [batch, d]) -> [batch, d] { same(x, linear::<{ WIDTH + 1 }>(x)) }
}

model! {
    struct Places<d = 8>;
    fn forward(x: [batch, d]) -> [batch, d] {
        block inner(x: [..]) -> [..] { x }
        let y = block other(x: [..]) -> [..] { x };
        inner(y)
    }
    fn linear(x: [batch, d]) -> [batch, d] { x }
}

model! {
    struct Open<d = 8>;
    block open(x: [.., d]) { x }
    fn forward(x: [batch, d]) -> [batch, d] { open(x) }
}

model! {
    struct Rest<d = 8, hidden = 3>;
    block narrow(x: [.., d], hidden, depth) -> [.., d] { linear::<d>(linear::<hidden>(linear::<depth>(x))) }
    block plain(x: [.., d]) -> [.., d] { x }
    fn forward(x: [batch, d]) -> [batch, d] {
        let x = narrow::<..>(x);
        let x = narrow::<.., 5>(x);
        let x = narrow::<hidden = 4, depth = 5, ..>(x);
        let x = plain::<..>(x);
        linear::<..>(x)
    }
}

fn main() {}
