//! What names stand for at a call: axes of any length and constant ones, sizes that only rustc knows, keys and defaults.

use super::*;
use attn::model;

const WIDTH: usize = 6;
const SCALE: f64 = 0.5;

model! {
    struct Bound<width = 6, hidden = 3>;

    block widen(x: [.., n], times = 2, out = { times * n }) -> [.., out] {
        linear::<out, bias = false>(x)
    }

    /// The key hides the size of the header.
    block bottle(x: [.., width], hidden, by = { 2.0 * SCALE }) -> [.., width] {
        linear::<width, bias = false>(by * linear::<hidden, bias = false>(x))
    }

    block centred(x: [batch, seq, n]) -> [batch, seq, n] { x - mean::<n>(x) + mean::<seq>(x) }

    fn forward(x: [batch, seq, width]) -> [batch, seq, width] {
        let y = bottle::<hidden>(x) + bottle::<{ WIDTH + 1 }, by = 2>(x);
        linear::<width, bias = false>(centred(widen::<4>(y)) + centred(widen(widen(y))))
    }
}

model! {
    struct Written<width = 6, hidden = 3>;

    fn forward(x: [batch, seq, width]) -> [batch, seq, width] {
        let one = linear::<width, bias = false>({ 2.0 * SCALE } * linear::<hidden, bias = false>(x));
        let two = linear::<width, bias = false>(2 * linear::<{ WIDTH + 1 }, bias = false>(x));
        let y = one + two;
        let z = linear::<24, bias = false>(y);
        let z = z - mean::<24>(z) + mean::<seq>(z);
        let u = linear::<24, bias = false>(linear::<12, bias = false>(y));
        let u = u - mean::<24>(u) + mean::<seq>(u);
        linear::<width, bias = false>(z + u)
    }
}

/// Asserts that the two models have the same results and gradients.
macro_rules! same {
    ($A:ident, $B:ident, $x:expr) => {{
        let dev = Cpu::default();
        let mut a = dev.build_module::<$A, f64>();
        let mut b = dev.build_module::<$B, f64>();
        scatter(&mut a);
        scatter(&mut b);
        let x = $x;
        let weights = tensor::<_, f64>("loss", *x.shape());
        let (y, z) = (
            a.forward(x.clone().leaky_traced()),
            b.forward(x.clone().leaky_traced()),
        );
        assert_eq!(
            tensors::flat(&y.with_empty_tape()),
            tensors::flat(&z.with_empty_tape())
        );
        let (dy, dz) = (
            (y * weights.clone()).sum().backward(),
            (z * weights).sum().backward(),
        );
        assert_eq!(gradients(&a, &dy), gradients(&b, &dz));
        assert_eq!(tensors::flat(&dy.get(&x)), tensors::flat(&dz.get(&x)));
    }};
}

#[test]
fn names_are_bound_at_every_call() {
    let _alone = alone();
    same!(Bound, Written, tensor::<_, f64>("x", (2, 3, Const::<6>)));
    same!(Bound, Written, tensor::<_, f64>("x", (1, 1, Const::<6>)));
}

/// The axes of a call of the model may be constants of dfdx.
#[test]
fn axes_are_constants_of_the_call() {
    let _alone = alone();
    same!(
        Bound,
        Written,
        tensor::<Rank3<2, 5, 6>, f64>("x", Default::default())
    );
}

model! {
    /// Sizes that only rustc knows, and two that are the same for rustc alone.
    struct Later<width = WIDTH>;

    block both(x: [.., n], y: [.., n], hidden = { n + 1 }) -> [.., width] {
        linear::<n>(gelu(linear::<hidden>(x + y)))
    }

    fn forward(x: [batch, width]) -> [batch, width] {
        both(x, linear::<{ WIDTH * 1 }>(x))
    }
}

model! {
    struct LaterWritten<width = WIDTH>;

    fn forward(x: [batch, width]) -> [batch, width] {
        let y = linear::<width>(x);
        linear::<width>(gelu(linear::<{ WIDTH + 1 }>(x + y)))
    }
}

#[test]
fn sizes_that_only_rustc_knows() {
    let _alone = alone();
    same!(
        Later,
        LaterWritten,
        tensor::<_, f64>("x", (4, Const::<WIDTH>))
    );
}
