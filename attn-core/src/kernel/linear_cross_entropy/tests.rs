use super::*;
use crate::kernel::cross_entropy;
use crate::kernel::testing::*;

/// Rows, width and classes: of no row, of one class, around a block of classes, and of several blocks of rows.
const SHAPES: [[usize; 3]; 9] = [
    [0, 3, 5],
    [1, 1, 1],
    [3, 4, 1],
    [5, 3, 2],
    [7, 5, 33],
    [4, 2, COLUMNS],
    [3, 2, COLUMNS + 1],
    [9, 1, 2 * COLUMNS + 77],
    [ROWS + 3, 3, 4 * COLUMNS + 9],
];

/// Random numbers, with a row that does not count and a class that many rows have.
struct Case {
    shape: [usize; 3],
    x: Vec<f64>,
    weight: Vec<f64>,
    bias: Option<Vec<f64>>,
    targets: Vec<usize>,
    options: Options,
}

impl Case {
    fn new(shape: [usize; 3], biased: bool, label_smoothing: f64) -> Self {
        let [rows, width, classes] = shape;
        let mut targets: Vec<usize> = (0..rows).map(|i| i * 797 % classes).collect();
        let ignore_index = (rows > 1).then_some(classes + 3);
        if let (Some(index), Some(target)) = (ignore_index, targets.get_mut(1)) {
            *target = index;
        }
        Case {
            shape,
            x: noise(rows * width, 1)
                .iter()
                .map(|x: &f64| 3.0 * x)
                .collect(),
            weight: noise(classes * width, 2),
            bias: biased.then(|| noise(classes, 3)),
            targets,
            options: Options {
                ignore_index,
                label_smoothing,
            },
        }
    }

    fn classified(&self) -> Classified<'_, f64> {
        let [rows, width, classes] = self.shape;
        Classified {
            x: Matrix::new(&self.x, rows, width),
            weight: Matrix::new(&self.weight, classes, width),
            bias: self.bias.as_deref(),
            targets: &self.targets,
            options: self.options,
            dtype: Dtype::Model,
        }
    }
}

/// The loss of each row, and the gradients of x, the weight and the bias.
#[derive(Debug, PartialEq)]
struct Found {
    loss: Loss,
    losses: Vec<f64>,
    gradients: [Vec<f64>; 3],
}

/// With a matrix of all logits.
fn unfused(case: &Case, scale: Scale<'_, f64>) -> Found {
    let [rows, width, classes] = case.shape;
    let of = case.classified();
    let mut logits = vec![0.0; rows * classes];
    let to = MatrixMut::new(&mut logits, rows, classes);
    linear::forward(of.x, of.weight, of.bias, to, of.dtype);
    let logits = Matrix::new(&logits, rows, classes);
    let [mut lse, mut losses] = [(); 2].map(|()| vec![0.0; rows]);
    let (targets, options) = (&case.targets[..], case.options);
    let loss = cross_entropy::forward(logits, targets, options, &mut lse, &mut losses).unwrap();
    let mut d = vec![0.0; rows * classes];
    let to = MatrixMut::new(&mut d, rows, classes);
    let into = WriteMode::Overwrite;
    cross_entropy::backward(logits, targets, options, &lse, scale, into, to).unwrap();
    let d = Matrix::new(&d, rows, classes);
    let [mut x, mut weight, mut bias] =
        [rows * width, classes * width, classes].map(|len| vec![0.5; len]);
    let to = MatrixMut::new(&mut x, rows, width);
    linear::input_gradient(d, of.weight, WriteMode::Add, to, of.dtype);
    let to = MatrixMut::new(&mut weight, classes, width);
    let (to, bias_to) = (Some(to), Some(&mut bias[..]));
    linear::parameter_gradients(d, of.x, WriteMode::Add, to, bias_to, of.dtype);
    Found {
        loss,
        losses,
        gradients: [x, weight, bias],
    }
}

fn fused(case: &Case, scale: Scale<'_, f64>, keeps: bool) -> Found {
    let [rows, width, classes] = case.shape;
    let mut logits = vec![f64::NAN; if keeps { rows * classes } else { 0 }];
    let [mut lse, mut losses] = [(); 2].map(|()| vec![f64::NAN; rows]);
    let loss = forward(case.classified(), &mut logits, &mut lse, &mut losses).unwrap();
    let mut gradients = [rows * width, classes * width, classes].map(|len| vec![0.5; len]);
    let [x, weight, bias] = &mut gradients;
    let to = Gradients {
        x: MatrixMut::new(x, rows, width),
        into: WriteMode::Add,
        weight: Some(weight),
        bias: Some(bias),
    };
    backward(case.classified(), &mut logits, &lse, scale, to).unwrap();
    Found {
        loss,
        losses,
        gradients,
    }
}

/// The loss, and the gradients of the mean that the forward pass computes.
fn with_gradients(case: &Case) -> (Loss, [Vec<f64>; 3]) {
    let [rows, width, classes] = case.shape;
    let mut scratch = vec![f64::NAN; rows_at_once(classes) * classes];
    let mut gradients = [rows * width, classes * width, classes].map(|len| vec![0.0; len]);
    let [x, weight, bias] = &mut gradients;
    x.fill(f64::NAN);
    let to = Gradients {
        x: MatrixMut::new(x, rows, width),
        into: WriteMode::Overwrite,
        weight: Some(weight),
        bias: Some(bias),
    };
    let loss = forward_with_gradients(case.classified(), &mut scratch, to).unwrap();
    (loss, gradients)
}

fn cases() -> impl Iterator<Item = Case> {
    SHAPES.into_iter().flat_map(|shape| {
        [(false, 0.0), (true, 0.1)].map(|(biased, smoothing)| Case::new(shape, biased, smoothing))
    })
}

fn assert_near(what: &str, got: &Found, want: &Found) {
    // Thousands of products of at most 3, each rounded to 4e-16.
    let near = |got: &[f64], want: &[f64]| assert_close(what, got, want, Absolute(1e-10));
    assert_eq!(got.loss.counted, want.loss.counted, "{what}");
    near(&[got.loss.sum], &[want.loss.sum]);
    near(&got.losses, &want.losses);
    for (got, want) in got.gradients.iter().zip(&want.gradients) {
        near(got, want);
    }
}

#[test]
fn losses_and_gradients_are_those_of_all_logits() {
    for case in cases() {
        let scales: Vec<f64> = noise(case.shape[0], 7);
        for scale in [Scale::All(0.25), Scale::Rows(&scales)] {
            for keeps in [false, true] {
                let what = format!("{:?}, kept: {keeps}", case.shape);
                let want = unfused(&case, scale);
                assert_near(&what, &fused(&case, scale, keeps), &want);
            }
        }
    }
}

#[test]
fn gradients_of_the_forward_pass_are_those_of_the_mean() {
    for case in cases() {
        let (loss, gradients) = with_gradients(&case);
        let scale = Scale::All(1.0 / loss.counted as f64);
        let mut want = unfused(&case, scale);
        // Those began at 0.5.
        want.gradients.iter_mut().flatten().for_each(|d| *d -= 0.5);
        let losses = want.losses.clone();
        let got = Found {
            loss,
            losses,
            gradients,
        };
        assert_near(&format!("{:?}", case.shape), &got, &want);
    }
}

#[test]
fn if_all_rows_are_ignored_there_is_no_gradient() {
    let mut case = Case::new([ROWS + 1, 2, 4 * COLUMNS + 1], true, 0.0);
    case.options.ignore_index = Some(7);
    case.targets.fill(7);
    case.weight.fill(f64::NAN);
    let (loss, _) = with_gradients(&case);
    assert_eq!((loss.sum, loss.counted), (0.0, 0));
    case.weight.fill(1.0);
    let (_, gradients) = with_gradients(&case);
    assert!(gradients.iter().flatten().all(|d| *d == 0.0));
}

#[test]
fn infinite_logits_are_those_of_all_logits() {
    // The first block is all -∞, or a later one is.
    for infinite in [0..COLUMNS, COLUMNS..2 * COLUMNS, 0..2 * COLUMNS] {
        let mut case = Case::new([3, 2, 2 * COLUMNS + 5], true, 0.0);
        case.targets = vec![2 * COLUMNS, 2 * COLUMNS + 1, 2 * COLUMNS + 4];
        for bias in &mut case.bias.as_mut().unwrap()[infinite.clone()] {
            *bias = f64::NEG_INFINITY;
        }
        let scale = Scale::All(1.0);
        let what = format!("{infinite:?}");
        assert_near(&what, &fused(&case, scale, false), &unfused(&case, scale));
    }
}

#[test]
fn nan_stays_in_its_row() {
    let mut case = Case::new([4, 2, COLUMNS + 5], false, 0.0);
    case.x[4] = f64::NAN;
    let found = fused(&case, Scale::All(1.0), false);
    let nans: Vec<bool> = found.losses.iter().map(|loss| loss.is_nan()).collect();
    assert_eq!(nans, [false, false, true, false]);
}

#[test]
fn an_unknown_class_is_an_error() {
    let mut case = Case::new([2, 2, 3], false, 0.0);
    case.targets = vec![0, 4];
    let mut lse = [0.0; 2];
    let error = forward(case.classified(), &mut [], &mut lse, &mut []).unwrap_err();
    assert_eq!((error.position, error.index, error.count), (1, 4, 3));
}

#[test]
fn the_plan_takes_the_least_memory_with_three_products() {
    assert_eq!(Plan::of(2048, 384, 50_257, true), Plan::Gradients);
    assert_eq!(Plan::of(2048, 384, 50_257, false), Plan::Sums);
    assert_eq!(Plan::of(384, 384, 50_257, true), Plan::Logits);
    assert_eq!(Plan::of(8192, 384, 65, true), Plan::Logits);
    assert_eq!(Plan::of(0, 384, 0, true), Plan::Logits);
    assert_eq!(Plan::of(32_768, 384, 65, true), Plan::Logits);
    assert_eq!(Plan::of(32_768, 384, 65, false), Plan::Logits);
    assert_eq!(Plan::of(32_768, 384, 385, true), Plan::Gradients);
}

#[test]
fn results_have_the_same_bits_for_any_number_of_threads() {
    let case = Case::new([ROWS + 40, 40, 4 * COLUMNS + 9], true, 0.1);
    same_for_all_threads(|| {
        let found = fused(&case, Scale::All(0.5), false);
        (format!("{found:?}"), format!("{:?}", with_gradients(&case)))
    });
}
