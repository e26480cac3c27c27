//! The numbers of buffers, against the same computed here.

use super::*;

const WIDTH: usize = 6;
const BASE: f64 = 100.0;

model! {
    struct Tables<d = WIDTH, rows = 7, heads = 4, base = { 1.0 * BASE }>;

    fn forward(x: [batch, d]) -> ([batch, d], [rows, d], [heads], [3, 3], [2, 0]) {
        buffer one: [] = 1;
        buffer waves: [rows, d] = |place, column| if column % 2 == 0 {
            sin(place / pow(base, column / d))
        } else {
            cos(place / pow(base, (column - 1) / d))
        };
        buffer slopes: [heads] = |h| pow(2, -8 * (h + 1) / heads);
        buffer mask: [3, 3] = |row, column| if column <= row && !(row == 2) || row - column == 2 { 0 } else { -1e9 };
        buffer nothing: [2, 0] = |row, _| row;
        (one * x, waves, slopes, mask, nothing)
    }
}

#[test]
fn a_table_has_the_number_of_each_place() {
    let _alone = alone();
    let model = Cpu::default().build_module::<Tables, f64>();
    let x = tensor::<_, f64>("x", (2, Const::<6>));
    let wave = |at: usize| {
        let (place, column) = (at / 6, at % 6);
        let angle = place as f64 / BASE.powf((column - column % 2) as f64 / 6.0);
        [angle.sin(), angle.cos()][column % 2]
    };
    let waves: Vec<f64> = (0..42).map(wave).collect();
    let far = -1e9;
    for (same, table, slopes, mask, nothing) in [
        model.forward(x.clone()),
        model.composed().forward(x.clone()),
    ] {
        assert_eq!(flat(&same), flat(&x));
        assert_eq!(flat(&table), waves);
        assert_eq!(flat(&slopes), [0.25, 0.0625, 0.015625, 0.00390625]);
        assert_eq!(flat(&mask), [0.0, far, far, 0.0, 0.0, far, 0.0, far, far]);
        assert_eq!(nothing.shape().concrete(), [2, 0]);
    }
    let single = Cpu::default().build_module::<Tables, f32>();
    let (_, table, ..) = single.forward(tensor::<_, f32>("x", (1, Const::<6>)));
    let rounded: Vec<f64> = waves.iter().map(|wave| f64::from(*wave as f32)).collect();
    assert_eq!(flat(&table), rounded);
}

model! {
    struct Functions<shifted = false, layers = 3, pace = 0.25>;

    fn forward(x: [batch, 5]) -> ([5], [5], [5], [5]) {
        buffer a: [5] = |i| clamp(i, 1, layers) + if shifted { 100 } else { 0 } - exp(-i) * ln(i + 1);
        buffer b: [5] = |i| min(i, 2) / max(i, 1) + abs(i - 3) + sqrt({ layers * 3 });
        buffer c: [5] = |i| tanh(i * pace) + sigmoid(-i) - floor(i / 2);
        buffer d: [5] = |i| if i != 2 || shifted && i > 1 { { WIDTH as f64 * 0.5 } } else { -pace };
        (a + 0 * sum::<batch>(x), b, c, d)
    }
}

#[test]
fn functions_are_those_of_numbers() {
    let _alone = alone();
    let model = Cpu::default().build_module::<Functions, f64>();
    let (a, b, c, d) = model.forward(tensor::<_, f64>("x", (2, Const::<5>)));
    let all = |f: fn(f64) -> f64| -> Vec<f64> { (0..5).map(|i| f(f64::from(i))).collect() };
    assert_eq!(
        flat(&a),
        all(|i| i.clamp(1.0, 3.0) + 0.0 - (-i).exp() * (i + 1.0).ln())
    );
    assert_eq!(
        flat(&b),
        all(|i| i.min(2.0) / i.max(1.0) + (i - 3.0).abs() + 3.0)
    );
    let near = |(a, b): (f64, f64)| (a - b).abs() < 1e-15;
    let expected = all(|i| (i * 0.25).tanh() + 1.0 / (1.0 + i.exp()) - (i / 2.0).floor());
    assert!(flat(&c).into_iter().zip(expected).all(near));
    assert_eq!(flat(&d), [3.0, 3.0, -0.25, 3.0, 3.0]);
}

model! {
    struct Waves<d = 8>;

    fn forward(x: [batch, 12, d]) -> ([batch, 12, d], [batch, 12, d]) {
        buffer table: [12, d] = |place, column| if column % 2 == 0 {
            sin(place * pow(10000, -column / d))
        } else {
            cos(place * pow(10000, (1 - column) / d))
        };
        (x + table, x + sinusoidal_position::<d>(x))
    }
}

#[test]
fn sinusoidal_positions_are_a_buffer() {
    let _alone = alone();
    let model = Cpu::default().build_module::<Waves, f64>();
    let (ours, theirs) = model.forward(tensor::<_, f64>("x", (2, Const::<12>, Const::<8>)));
    // The powers are of about 1, and rounded once each; angles are up to 11.
    let near = |(a, b): (f64, f64)| (a - b).abs() < 22.0 * f64::EPSILON;
    assert!(flat(&ours).into_iter().zip(flat(&theirs)).all(near));
}
