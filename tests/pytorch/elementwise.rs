//! Functions of single numbers, operators, choices, and values that are combined by the names of their axes.

cases! {
    activations {
        struct M<d = 5>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, 35] {
            concat(gelu(x), gelu_tanh(x), relu(x), relu_squared(x), silu(x), sigmoid(x), tanh(x))
        }
    } (x: floats[_, _, 5]);

    activations_of_large_numbers {
        struct M<d = 9>;
        fn forward(x: [batch, d]) -> [batch, 45] {
            concat(gelu(x), gelu_tanh(x), silu(x), sigmoid(x), tanh(x))
        }
    } (x: floats[_, 9]);

    functions {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d], y: [batch, seq, d]) -> [batch, seq, 28] {
            concat(exp(x), ln(2 + y * y), sqrt(1 + abs(y)), abs(x), floor(3 * x) * y, sin(3 * x), cos(200 * y))
        }
    } (x: floats[_, _, 4], y: floats[_, _, 4]);

    bounds {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d], y: [batch, seq, d]) -> [batch, seq, 24] {
            concat(min(x, y), min(x, 0.1), max(x, y), max(0.1, x), clamp(x, -0.5, 0.5), clamp(x, y - 1, y + 1))
        }
    } (x: floats[_, _, 4], y: floats[_, _, 4]);

    powers {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d], y: [batch, seq, d]) -> [batch, seq, 20] {
            concat(pow(x, 2), pow(x, 3), pow(0.1 + abs(y), 0.5), pow(0.1 + abs(y), -1.5), pow(x, 0))
        }
    } (x: floats[_, _, 4], y: floats[_, _, 4]);

    operators {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d], y: [batch, seq, d]) -> [batch, seq, 32] {
            concat(x + y, x - y, x * y, x / (2 + y * y), 2 * x - 1, 1 - x / 8, 3 / (2 + x * x), -x)
        }
    } (x: floats[_, _, 4], y: floats[_, _, 4]);

    choices {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d], y: [batch, seq, d]) -> [batch, seq, 12] {
            let leaky = if x < 0 { 0.1 * x } else { x };
            let chosen = if y <= x && !(x > 0.5) || y >= 0.9 { exp(y) } else if x != y && y < 0 { 0.25 } else { x * y };
            concat(leaky, chosen, if x > 0 { sqrt(x) } else { 0 })
        }
    } (x: floats[_, _, 4], y: floats[_, _, 4]);

    kinks {
        struct M<d = 5>;
        fn forward(x: [batch, d], y: [batch, d]) -> [batch, 25] {
            concat(relu(x), relu_squared(x), abs(x), max(x, y), min(x, y))
        }
    } (x: floats[_, 5], y: floats[_, 5]);

    combined_by_name {
        struct M<d = 4>;
        fn forward(
            x: [batch, seq, d], feature: [d], sequence: [batch, d], position: [seq], pair: [batch, seq], one: [batch, 1, d]
        ) -> [batch, seq, d] {
            let y = x * (1 + sequence) + feature;
            let y = max(y, position) - y * pair + one;
            if y > feature { y * position } else { exp(sequence + 0 * y) }
        }
    } (x: floats[_, _, 4], feature: floats[4], sequence: floats[_, 4], position: floats[_], pair: floats[_, _], one: floats[_, 1, 4]);
}
