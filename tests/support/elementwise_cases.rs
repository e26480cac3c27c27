//! Models of elementwise operations: functions, quotients, bounds and choices, of values, of a value and a number, repeated along axes
//! of size 1, and of themselves.
//!
//! The notation is that of [`cases`](crate::cases).

/// Every function and operator.
#[macro_export]
macro_rules! elementwise {
    ($claim:ident) => {
        $claim! {
            functions {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    exp(y) + ln(2 + y * y) - sqrt(1 + abs(y)) + floor(3 * y) * y + tanh(y) * sigmoid(y) + sin(3 * y) * cos(y)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            quotients {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    y / (2 + abs(x)) + 1.5 / (3 + y) - x / 3 + y / y
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            numbers_without_an_effect {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    0 * y + x * (1 * linear::<d>(y) + 0) + (x - 0 * gelu(y)) * 1
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            bounds {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    min(x, y) * max(y, 0.1) + clamp(y, -0.5, 0.5) + clamp(x, y, 1 + exp(y)) - max(0.25, x)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            powers {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    pow(y, 2) - pow(0.1 + abs(y), 0.5) + pow(y, 3) * pow(x, 0) + pow(2 + x, -1.5)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            choices {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    let leaky = if x < 0 { 0.1 * x } else { x };
                    let chosen = if y <= x && !(x > 0.5) || y >= 0.9 { exp(y) } else if (x != y) && y < 0 { 0.25 } else { x * y };
                    leaky * chosen + if (1 + x) * 0.5 > y { gelu(y) } else { -1 } + if x == x { x } else { y }
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            choices_of_repeated_axes {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], y: [batch, 1, d]) -> [batch, seq, d] {
                    let x = x + linear::<d>(x);
                    if x < y { x * y } else if y < { -1.0 / 2.0 } { sqrt(x - y) } else { max(x, y) }
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), tensor::<_, E>("y", (batch, Const::<1>, Const::<5>))) reads x;

            functions_of_repeated_axes {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d], y: [batch, 1, d]) -> [batch, seq, d] {
                    max(x, y) / (2 + y) + min(exp(y), x) * clamp(y, -0.2, x)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>)), tensor::<_, E>("y", (batch, Const::<1>, Const::<5>))) reads x;

            functions_in_rounds_between_layers {
                struct M<d = 4>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let mut x = x * sqrt(d) / exp(0.5);
                    repeat 2 {
                        let scale = 1 + clamp(linear::<d>(layer_norm(x)), -1, 1);
                        x = x + feed_forward::<6>(rms_norm(x) * scale) / sqrt(2 * d);
                    }
                    x
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>))) reads x;
        }
    };
}
