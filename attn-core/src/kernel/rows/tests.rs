//! Operations on rows with a prologue and an epilogue, against one pass after the other.

use super::*;
use crate::kernel::dropout::Dropout;
use crate::kernel::loops::known::{Add, Modulate};
use crate::kernel::loops::{InPlace, Rows, compute, read, repeated};
use crate::kernel::norm::{Gain, Norm, NormKind, STATISTICS};
use crate::kernel::testing::*;
use crate::kernel::{l2_norm, softmax};

type Operation = fn(Source<'_, f32>, Sink<'_, f32>) -> Vec<f32>;

/// Each returns what it keeps.
const OPERATIONS: [(&str, Operation); 4] = [
    ("layer norm", |x, y| norm(NormKind::Layer, x, y)),
    ("rms norm", |x, y| norm(NormKind::Rms, x, y)),
    ("l2 norm", |x, y| {
        l2_norm::forward(x, 1e-12, y);
        Vec::new()
    }),
    ("softmax", |x, y| {
        softmax::forward(x, y);
        Vec::new()
    }),
];

fn norm(kind: NormKind, x: Source<'_, f32>, y: Sink<'_, f32>) -> Vec<f32> {
    let mut statistics = vec![f32::NAN; STATISTICS * y.rows()];
    let gain = noise::<f32>(y.cols(), 9);
    let norm = Norm {
        kind,
        gain: Gain::Factor(&gain),
        bias: None,
        groups: 1,
        epsilon: 1e-5,
    };
    norm.forward(x, y, &mut statistics);
    statistics
}

/// Where the result of an epilogue is written.
#[derive(Clone, Copy, Debug)]
enum Place {
    Apart,
    OverTheRows,
    OverAnOperand,
}

/// The arrays of `x = a + b`, `y = f(x)` and `z = y * (c + 1) + d`, and what `f` keeps.
type Results = [Vec<f32>; 4];

/// Elements of `b`, `x`, `y` and `z` that are dropped.
type Dropouts = [Dropout; 4];

fn arrays(len: usize) -> [Vec<f32>; 4] {
    [1, 2, 3, 4].map(|seed| noise(len, seed))
}

fn one_after_the_other(of: Operation, width: usize, rows: usize, drops: Dropouts) -> Results {
    let [a, b, c, d] = &arrays(rows * width);
    let [of_b, of_x, of_y, of_z] = drops;
    let [mut x, mut y, mut z] = [(); 3].map(|()| vec![f32::NAN; rows * width]);
    let terms = [read(a.as_slice()), of_b.of(b.as_slice())];
    compute(&Add, terms, [of_x.to(x.as_mut_slice())]);
    let kept = of(
        Matrix::new(&x, rows, width).into(),
        MatrixMut::new(&mut y, rows, width).into(),
    );
    let terms = [
        of_y.of(y.as_slice()),
        read(c.as_slice()),
        read(d.as_slice()),
    ];
    compute(&Modulate, terms, [of_z.to(z.as_mut_slice())]);
    [x, y, z, kept]
}

/// `None` for rows that are written over.
fn in_one_pass(
    of: Operation,
    width: usize,
    rows: usize,
    [of_b, of_x, of_y, of_z]: Dropouts,
    place: Place,
) -> [Option<Vec<f32>>; 4] {
    let [a, b, c, mut d] = arrays(rows * width);
    let mut x = a;
    let [mut y, mut z] = [(); 2].map(|()| vec![f32::NAN; rows * width]);
    let terms = [read(InPlace), of_b.of(b.as_slice())];
    let mut prologue = assign(Add, terms, of_x.to(x.as_mut_slice()));
    let [of_y, c] = [of_y.of(Rows), read(c.as_slice())];
    let mut epilogue = match place {
        Place::Apart => {
            let terms = [of_y, c, read(d.as_slice())];
            assign(Modulate, terms, of_z.to(z.as_mut_slice()))
        }
        Place::OverTheRows => {
            let terms = [of_y, c, read(d.as_slice())];
            assign(Modulate, terms, of_z.to(InPlace))
        }
        Place::OverAnOperand => {
            let terms = [of_y, c, read(InPlace)];
            assign(Modulate, terms, of_z.to(d.as_mut_slice()))
        }
    };
    let result = MatrixMut::new(&mut y, rows, width);
    let kept = of((&mut prologue).into(), (result, &mut epilogue).into());
    let (y, z) = match place {
        Place::Apart => (Some(y), z),
        Place::OverTheRows => (None, y),
        Place::OverAnOperand => (Some(y), d),
    };
    [Some(x), y, Some(z), Some(kept)]
}

const PLACES: [Place; 3] = [Place::Apart, Place::OverTheRows, Place::OverAnOperand];

fn some_dropped() -> Dropouts {
    [1, 2, 3, 4].map(|key| Dropout::new(0.3, Some(key)))
}

/// Rows without columns have statistics that are NaN.
fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn one_pass_has_the_bits_of_three() {
    on_every_isa(|isa| {
        // Up to more rows than a chunk has, and wider ones than that.
        for (rows, width) in [
            (0, 4),
            (3, 0),
            (1, 1),
            (3, 7),
            (5, 33),
            (300, 129),
            (3, 17_000),
        ] {
            for (name, of) in OPERATIONS {
                for drops in [[Dropout::NONE; 4], some_dropped()] {
                    let want = one_after_the_other(of, width, rows, drops);
                    for place in PLACES {
                        let got = in_one_pass(of, width, rows, drops, place);
                        for (got, want) in got.iter().zip(&want) {
                            let is_it = got.as_ref().is_none_or(|got| bits(got) == bits(want));
                            assert!(is_it, "{name} of ({rows} x {width}), {place:?}, on {isa}");
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn threads_change_no_bit() {
    for (_, of) in OPERATIONS {
        for place in PLACES {
            same_for_all_threads(|| in_one_pass(of, 65, 2000, some_dropped(), place));
        }
    }
}

/// A softmax of 2 x 3 numbers with so many of another operand of its epilogue, and of its result.
fn with_lens(operand: usize, to: usize) {
    let x = [0.0; 6];
    let mut y = [0.0; 6];
    let other = vec![0.0; operand];
    let mut to = vec![0.0; to];
    let terms = [read(Rows), read(other.as_slice())];
    let rows = MatrixMut::new(&mut y, 2, 3);
    let mut epilogue = assign(Add, terms, to.as_mut_slice());
    softmax::forward(
        Matrix::<f32>::new(&x, 2, 3).into(),
        (rows, &mut epilogue).into(),
    );
}

#[test]
fn operands_and_results_have_the_length_of_the_rows() {
    with_lens(6, 6);
    for [operand, to] in [[5, 6], [7, 6], [6, 5], [6, 7]] {
        let fails = std::panic::catch_unwind(|| with_lens(operand, to)).is_err();
        assert!(fails, "an operand of {operand}, a result of {to}");
    }
}

#[test]
#[should_panic(expected = "operands and results of one length")]
fn a_prologue_computes_all_rows() {
    let mut x = [0.0_f32; 5];
    let mut y = [0.0; 6];
    let mut prologue = assign(Add, [read(InPlace); 2], x.as_mut_slice());
    softmax::forward((&mut prologue).into(), MatrixMut::new(&mut y, 2, 3).into());
}

/// The scale of each sequence, as in adaptive norms: chunks of rows begin and end inside of sequences.
#[test]
fn an_epilogue_reads_repeated_operands() {
    const SIZES: [usize; 3] = [3, 211, 48];
    const FROM: [usize; 3] = [3, 1, 48];
    let [sequences, len, width] = SIZES;
    let x = noise::<f32>(sequences * len * width, 1);
    let scale = noise::<f32>(sequences * width, 2);
    let row = |row: usize| &scale[row / len * width..][..width];
    let whole: Vec<f32> = (0..sequences * len).flat_map(row).copied().collect();
    on_every_isa(|isa| {
        for (name, of) in OPERATIONS {
            let result = |scale| {
                let mut y = vec![f32::NAN; x.len()];
                let mut z = y.clone();
                let mut epilogue = assign(Add, [read(Rows), scale], z.as_mut_slice());
                let rows = MatrixMut::new(&mut y, sequences * len, width);
                let x = Matrix::new(&x, sequences * len, width);
                of(x.into(), (rows, &mut epilogue).into());
                bits(&z)
            };
            let found = result(read(repeated(&scale, &FROM, &SIZES)));
            assert_eq!(found, result(read(&whole[..])), "{name} on {isa}");
        }
    });
}
