//! `detach` in both forms: the numbers are there, and no gradient flows.

use super::claim::tolerance;
use super::*;
use attn::{Backend, Element, model};
use support::compare::assert_same;

/// For every model: both forms agree, and the gradients are those of the same model with constants in the place of what is detached.
macro_rules! detached {
    ($($name:ident { $($body:tt)* } as { $($plain:tt)* };)*) => {$(
        #[test]
        fn $name() {
            mod whole {
                attn::model! {
                    pub(super) struct M<d = 4>;
                    fn forward(x: [batch, seq, d], c: [batch, seq, d]) -> [batch, seq, d] {
                        let _unused = c;
                        $($body)*
                    }
                }
            }
            // The second input is what is detached.
            mod plain {
                attn::model! {
                    pub(super) struct M<d = 4>;
                    fn forward(x: [batch, seq, d], c: [batch, seq, d]) -> [batch, seq, d] { $($plain)* }
                }
            }
            fn check<E: Element>()
            where
                Cpu: Backend<E>,
            {
                for (batch, seq) in [(1, 1), (2, 3)] {
                    let mut model = Cpu::default().build_module::<whole::M, E>();
                    let mut other = Cpu::default().build_module::<plain::M, E>();
                    scatter(&mut model);
                    scatter(&mut other);
                    let x = tensor::<_, E>("x", (batch, seq, Const::<4>));
                    let outcome = |y| {
                        let ran: Backpropagated<E> = backpropagate(y);
                        ran.input("x", &x)
                    };
                    let input = || (x.clone().leaky_traced(), x.clone());
                    let fused = outcome(model.forward(input())).parameters(&model);
                    let composed = outcome(model.composed().forward(input())).parameters(&model);
                    assert_same(stringify!($name), &fused, &composed, tolerance::<E>());
                    // Another tensor of the same numbers.
                    let c = tensor::<_, E>("x", (batch, seq, Const::<4>));
                    let plain = outcome(other.forward((x.clone().leaky_traced(), c))).parameters(&other);
                    assert_same(stringify!($name), &fused, &plain, tolerance::<E>());
                }
            }
            check::<f32>();
            check::<f64>();
        }
    )*};
}

detached! {
    a_factor { x * detach(x) } as { x * c };
    a_term { x + detach(x) } as { x + c };
    straight_through { x + detach(gelu(x) - x) } as { x + (gelu(c) - c) };
    twice { x * detach(detach(x)) - detach(x) } as { x * c - c };
    of_a_layer { let y = tanh(x); linear::<d>(detach(y)) + y } as { linear::<d>(tanh(c)) + tanh(x) };
    before_and_behind {
        let y = 2 * x;
        let z = detach(y);
        let y = y + 1;
        softmax(z) * y + layer_norm(z)
    } as {
        let z = 2 * c;
        let y = 2 * x + 1;
        softmax(z) * y + layer_norm(z)
    };
    in_the_steps_of_a_scan {
        let y = detach(tanh(x));
        scan batch {
            state h: [seq, d] = 0.5;
            h = tanh(h * y + x);
            yield h;
        }
    } as {
        let y = tanh(c);
        scan batch {
            state h: [seq, d] = 0.5;
            h = tanh(h * y + x);
            yield h;
        }
    };
    around_a_scan {
        let y = detach(mean::<batch>(tanh(x)));
        scan batch, keep = sqrt {
            state h: [seq, d] = 0.5;
            h = tanh(h * y + x);
            yield h;
        }
    } as {
        let y = mean::<batch>(tanh(c));
        scan batch {
            state h: [seq, d] = 0.5;
            h = tanh(h * y + x);
            yield h;
        }
    };
    an_input_of_a_scan {
        let y = detach(x);
        let z = y as [other = batch, seq, d];
        scan batch {
            state h: [seq, d] = 0.5;
            h = tanh(h * y + x * mean::<other>(z * h));
            yield h;
        }
    } as {
        let z = c as [other = batch, seq, d];
        scan batch {
            state h: [seq, d] = 0.5;
            h = tanh(h * c + x * mean::<other>(z * h));
            yield h;
        }
    };
}

#[test]
fn what_is_detached_is_returned() {
    model! {
        struct Both<d = 4>;
        fn forward(x: [seq, d]) -> ([seq, d], [seq, d], [seq, d]) {
            let y = tanh(x);
            (detach(x), detach(y), y)
        }
    }
    let model = Cpu::default().build_module::<Both, f32>();
    let x = tensor::<_, f32>("x", (3, Const::<4>));
    let (a, b, c) = model.forward(x.clone().leaky_traced());
    assert_eq!(a.as_vec(), x.as_vec());
    assert_eq!(b.as_vec(), c.as_vec());
    let gradients = (c.sum() + a.sum() * 5.0 + b.sum() * 7.0).backward();
    let slopes = gradients.get(&x).as_vec().into_iter();
    let want = x.as_vec().into_iter().map(|x| 1.0 - x.tanh() * x.tanh());
    assert!(slopes.zip(want).all(|(a, b)| (a - b).abs() < 1e-5));
}

/// A loop that carries a detached value passes no gradient to its rounds before the last one.
#[test]
fn rounds_of_a_loop_are_detached() {
    model! {
        struct Rounds<d = 4>;
        fn forward(x: [seq, d]) -> [seq, d] {
            let mut x = x;
            let mut y = x;
            let still = detach(x);
            repeat 3 {
                x = linear::<d>(x) + still;
                y = detach(x);
                x = detach(x) * y + x;
            }
            x + y
        }
    }
    let mut model = Cpu::default().build_module::<Rounds, f64>();
    scatter(&mut model);
    let x = tensor::<_, f64>("x", (3, Const::<4>));
    let run = |y| {
        let ran: Backpropagated<f64> = backpropagate(y);
        ran.input("x", &x).parameters(&model)
    };
    let fused = run(model.forward(x.clone().leaky_traced()));
    let composed = run(model.composed().forward(x.clone().leaky_traced()));
    assert_same("rounds", &fused, &composed, tolerance::<f64>());
}

#[test]
fn nothing_flows_out_of_a_detached_model() {
    model! {
        struct Still<d = 4>;
        fn forward(x: [seq, d]) -> [seq, d] { detach(linear::<d>(x)) }
    }
    let model = Cpu::default().build_module::<Still, f32>();
    let x = tensor::<_, f32>("x", (3, Const::<4>));
    for y in [
        model.forward(x.clone().leaky_traced()),
        model.composed().forward(x.clone().leaky_traced()),
    ] {
        let gradients = y.square().sum().backward();
        assert_eq!(gradients.get(&x).as_vec(), [0.0; 12]);
        assert_eq!(gradients.get(&model.linear.bias).array(), [0.0; 4]);
    }
}

#[test]
fn empty_values_are_detached() {
    model! {
        struct Empty<d = 4>;
        fn forward(x: [seq, d]) -> [seq, d] { x * detach(gelu(x)) }
    }
    let model = Cpu::default().build_module::<Empty, f32>();
    let x = tensor::<_, f32>("x", (0, Const::<4>));
    assert!(tensors::flat(&model.forward(x.clone())).is_empty());
    assert!(tensors::flat(&model.composed().forward(x)).is_empty());
}
