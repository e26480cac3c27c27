//! Functions, quotients and choices of values, element by element.

use attn::model;

model! {
    struct Functions<d = 8>;
    fn forward(x: [batch, seq, d], tokens: ids[batch, seq]) -> [batch, seq, d] {
        let a = pow(x, x);
        let b = exp(x, x) + clamp(x, 0);
        let c = clamp(x, 1, 0);
        let e = min(x, linear::<5>(x)) / linear::<5>(x);
        let f = sqrt(tokens) + sqrt::<2>(x) + x * sqrt(-1);
        let g = max(1, 2) + ln(x, name = x) + log(x) + clip(x, 0, 1);
        a + b + c + e + f + g
    }
}

model! {
    struct Choices<d = 8>;
    fn forward(x: [batch, seq, d], tokens: ids[batch, seq]) -> [batch, seq, d] {
        let a = if x < 0 { x };
        let b = if x { x } else { -x };
        let c = if 1 < 2 { x } else { -x };
        let e = if x < 0 { x } else { linear::<5>(x) };
        let f = if 0 < x < 1 { x } else { 0 };
        let g = if tokens { x } else { 0 };
        let h = if x = 0 { x } else { x, x };
        a + b + c + e + f + g + h
    }
}

fn main() {}
