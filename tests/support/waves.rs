//! Sinusoidal positions.

/// Sinusoidal positions by their definition (Vaswani et al. 2017), `[len, width]`.
pub fn waves(len: usize, width: usize) -> Vec<f64> {
    let wave = |s: usize, column: usize| {
        let angle = s as f64 / 10_000_f64.powf((column - column % 2) as f64 / width as f64);
        if column.is_multiple_of(2) {
            angle.sin()
        } else {
            angle.cos()
        }
    };
    (0..len * width)
        .map(|place| wave(place / width, place % width))
        .collect()
}
