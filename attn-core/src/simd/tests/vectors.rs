use std::fmt::Debug;

use crate::simd::{Isa, Kernel, Mask, Real, Vector};

/// Every operation of a vector, lane by lane against plain Rust.
struct Operations<E>([E; 16], [E; 16], Plain<E>);

/// The operations of one number.
struct Plain<E> {
    fused: fn(E, E, E) -> E,
    sqrt: fn(E) -> E,
    round: fn(E) -> E,
    copysign: fn(E, E) -> E,
}

fn lanes<V: Vector>(v: V) -> Vec<V::Element> {
    let mut lanes = vec![V::Element::ZERO; V::LANES];
    v.store(&mut lanes);
    lanes
}

fn flags<V: Vector>(mask: V::Mask) -> Vec<bool> {
    lanes(V::select(mask, V::splat(V::Element::ONE), V::zero()))
        .iter()
        .map(|&x| x == V::Element::ONE)
        .collect()
}

fn is_nan<E: Real>(x: E) -> bool {
    x.partial_cmp(&x).is_none()
}

fn is_finite<E: Real>(x: E) -> bool {
    -E::INFINITY < x && x < E::INFINITY
}

fn assert_lanes<E: Real>(got: &[E], want: impl Fn(usize) -> E, what: &str) {
    for (i, &got) in got.iter().enumerate() {
        let want = want(i);
        assert!(
            got == want || (is_nan(got) && is_nan(want)),
            "{what}, lane {i}: {got:?}, not {want:?}"
        );
    }
}

fn assert_flags(got: Vec<bool>, want: impl Fn(usize) -> bool, what: &str) {
    for (i, &got) in got.iter().enumerate() {
        assert_eq!(got, want(i), "{what}, lane {i}");
    }
}

impl<E: Real + Debug> Kernel for Operations<E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Self(x, y, plain) = self;
        let a = V::load(&x);
        let b = V::load(&y);
        assert_lanes(&lanes(a + b), |i| x[i] + y[i], "+");
        assert_lanes(&lanes(a - b), |i| x[i] - y[i], "-");
        assert_lanes(&lanes(a * b), |i| x[i] * y[i], "*");
        assert_lanes(&lanes(a / b), |i| x[i] / y[i], "/");
        assert_lanes(&lanes(-a), |i| -x[i], "neg");
        let fused = lanes(a.mul_add(b, a));
        assert!((0..V::LANES).all(|i| {
            fused[i] == (plain.fused)(x[i], y[i], x[i])
                || fused[i] == x[i] * y[i] + x[i]
                || is_nan(fused[i])
        }));
        assert_lanes(
            &lanes(a.min(b)),
            |i| if x[i] < y[i] { x[i] } else { y[i] },
            "min",
        );
        assert_lanes(
            &lanes(a.max(b)),
            |i| if x[i] > y[i] { x[i] } else { y[i] },
            "max",
        );
        assert_lanes(
            &lanes(a.abs()),
            |i| if x[i] < E::ZERO { -x[i] } else { x[i] },
            "abs",
        );
        assert_lanes(
            &lanes(a.copysign(b)),
            |i| (plain.copysign)(x[i], y[i]),
            "copysign",
        );
        let (low, high) = a.interleave(b);
        let in_turn = |i: usize| {
            if i.is_multiple_of(2) {
                x[i / 2]
            } else {
                y[i / 2]
            }
        };
        assert_lanes(&lanes(low), in_turn, "interleave, lower halves");
        assert_lanes(
            &lanes(high),
            |i| in_turn(V::LANES + i),
            "interleave, upper halves",
        );
        assert_lanes(&lanes(a.sqrt()), |i| (plain.sqrt)(x[i]), "sqrt");
        assert_lanes(&lanes(a.round()), |i| (plain.round)(x[i]), "round");

        assert_flags(flags::<V>(a.eq(b)), |i| x[i] == y[i], "eq");
        assert_flags(flags::<V>(a.ne(b)), |i| x[i] != y[i], "ne");
        assert_flags(flags::<V>(a.lt(b)), |i| x[i] < y[i], "lt");
        assert_flags(flags::<V>(a.le(b)), |i| x[i] <= y[i], "le");
        assert_flags(flags::<V>(a.gt(b)), |i| x[i] > y[i], "gt");
        assert_flags(flags::<V>(a.ge(b)), |i| x[i] >= y[i], "ge");
        assert_flags(
            flags::<V>(a.lt(b) & a.lt(a.abs())),
            |i| x[i] < y[i] && x[i] < E::ZERO,
            "&",
        );
        assert_flags(flags::<V>(a.lt(b) | a.eq(b)), |i| x[i] <= y[i], "|");
        for count in 0..=V::LANES + 1 {
            let first = V::first_lanes(count);
            assert_flags(flags::<V>(first), |i| i < count, "first_lanes");
            assert_eq!((first.any(), first.all()), (count > 0, count >= V::LANES));
        }

        let sevens = V::load_partial(&x[..1], E::TWO);
        assert_lanes(
            &lanes(sevens),
            |i| if i == 0 { x[0] } else { E::TWO },
            "load_partial",
        );
        for count in 0..=16 {
            let loaded = lanes(V::load_partial(&x[..count], E::TWO));
            assert_lanes(
                &loaded,
                |i| if i < count { x[i] } else { E::TWO },
                "load_partial",
            );
            let mut stored = y;
            a.store_partial(&mut stored[..count]);
            assert_lanes(
                &stored,
                |i| if i < count.min(V::LANES) { x[i] } else { y[i] },
                "store_partial",
            );
        }

        let powers = V::lane_indices() - V::splat(E::of_f64(3.0));
        assert_lanes(
            &lanes(powers.exp2_of_integer()),
            |i| E::of_f64(2.0_f64.powi(i as i32 - 3)),
            "exp2_of_integer",
        );
        let (m, e) = (V::lane_indices() + V::splat(E::of_f64(0.125))).split_exponent();
        let whole = lanes(m * e.exp2_of_integer());
        let m = lanes(m);
        assert_lanes(&whole, |i| E::of_f64(i as f64 + 0.125), "split_exponent");
        assert!(
            m.iter()
                .all(|&m| E::of_f64(0.707) < m && m < E::of_f64(1.415))
        );

        let indices = V::lane_indices();
        let last = E::of_f64((V::LANES - 1) as f64);
        assert_eq!(
            indices.reduce_sum(),
            last * E::of_f64(V::LANES as f64) * E::HALF
        );
        assert_eq!(indices.reduce_max(), last);
        assert_eq!(indices.reduce_min(), E::ZERO);
        // The order of halving is visible if the additions are not exact.
        let mut halved = lanes(V::load(&x.map(|x| if is_finite(x) { x } else { E::ONE })));
        let v = V::load_partial(&halved, E::ZERO);
        while halved.len() > 1 {
            let upper = halved.split_off(halved.len() / 2);
            halved
                .iter_mut()
                .zip(upper)
                .for_each(|(low, high)| *low += high);
        }
        assert_eq!(v.reduce_sum(), halved[0]);
    }
}

macro_rules! operations {
    ($name:ident, $element:ident) => {
        #[test]
        fn $name() {
            const NAN: $element = $element::NAN;
            const INF: $element = $element::INFINITY;
            let x = [
                0.1, -0.5, 1.5, 2.5, NAN, -0.0, 1e9, -3.7, INF, 0.5, -2.5, 8388608.5, 7.1, NAN,
                -INF, 1e-40,
            ];
            let mut y = [
                0.2, -0.5, 1.25, -2.5, 1.0, 0.0, 3.0, NAN, -1.0, 0.5, -2.0, -7.0, 7.1, NAN, 5.0,
                -1.0,
            ];
            for isa in Isa::available() {
                // Every value reaches every lane, also of the narrowest vectors.
                for turn in 0..16 {
                    let mut x = x;
                    x.rotate_left(turn);
                    y.rotate_left(1);
                    let plain = Plain {
                        fused: $element::mul_add,
                        sqrt: $element::sqrt,
                        round: $element::round_ties_even,
                        copysign: $element::copysign,
                    };
                    isa.run(Operations(x, y, plain));
                }
            }
        }
    };
}

operations!(operations_of_f32, f32);
operations!(operations_of_f64, f64);
