use super::*;
use crate::kernel::Kernels;
use crate::kernel::testing::{
    Absolute, assert_close, noise, on_every_isa, same_for_all_threads, wide,
};

/// The lengths of an axis, and how windows slide along it.
fn slide([input, kernel, stride, dilation, before, after]: [usize; 6]) -> Slide {
    let reach = (kernel - 1) * dilation + 1;
    let output = (input + before + after)
        .checked_sub(reach)
        .map_or(0, |rest| rest / stride + 1);
    Slide {
        input,
        output,
        kernel,
        stride,
        dilation,
        before,
    }
}

const LINES: [[usize; 6]; 16] = [
    [1, 1, 1, 1, 0, 0],
    [7, 3, 1, 1, 0, 0],
    [7, 3, 1, 1, 1, 1],
    [8, 3, 2, 1, 1, 1],
    [9, 3, 1, 2, 4, 0],
    [10, 2, 5, 1, 0, 0],
    [9, 2, 5, 3, 2, 1],
    [3, 5, 1, 1, 2, 2],
    [2, 5, 1, 1, 0, 0],
    [0, 3, 1, 1, 1, 1],
    [5, 1, 3, 1, 0, 0],
    [12, 4, 4, 1, 0, 0],
    [6, 3, 2, 2, 5, 5],
    // Windows of whole vectors.
    [40, 16, 16, 1, 0, 0],
    [50, 9, 3, 1, 2, 1],
    [700, 3, 1, 1, 1, 1],
];

/// Channels of input and output, and groups.
const CHANNELS: [[usize; 3]; 9] = [
    [1, 1, 1],
    [3, 5, 1],
    [4, 6, 2],
    [6, 3, 3],
    [5, 5, 5],
    [3, 6, 3],
    [18, 18, 18],
    [70, 70, 70],
    [17, 34, 1],
];

fn cases() -> impl Iterator<Item = Convolution> {
    let lines = LINES.map(slide);
    let one = lines.map(|line| [Slide::NONE, line]);
    let small = &lines[..15];
    let two = (0..small.len()).map(|i| [small[i], small[(4 * i + 2) % small.len()]]);
    let axes: Vec<_> = one.into_iter().chain(two.collect::<Vec<_>>()).collect();
    axes.into_iter().flat_map(|axes| {
        [Channels::Last, Channels::First]
            .into_iter()
            .flat_map(move |layout| {
                CHANNELS
                    .into_iter()
                    .flat_map(move |[input, output, groups]| {
                        let images = [0, 1, 3].into_iter();
                        images.map(move |images| Convolution {
                            layout,
                            images,
                            input,
                            output,
                            groups,
                            axes,
                        })
                    })
            })
    })
}

impl Convolution {
    /// Every product, with the indices of its factors and of its result.
    fn naive(&self, mut product: impl FnMut(usize, usize, usize)) {
        let [height, width] = self.axes;
        let at = |lengths: [usize; 2], channels: usize, [n, h, w, c]: [usize; 4]| match self.layout
        {
            Channels::Last => ((n * lengths[0] + h) * lengths[1] + w) * channels + c,
            Channels::First => ((n * channels + c) * lengths[0] + h) * lengths[1] + w,
        };
        let (inputs, outputs) = (self.input / self.groups, self.output / self.groups);
        for n in 0..self.images {
            for (h, w) in (0..height.output).flat_map(|h| (0..width.output).map(move |w| (h, w))) {
                for o in 0..self.output {
                    for c in 0..inputs {
                        for i in 0..height.kernel {
                            for j in 0..width.kernel {
                                let x_h = (h * height.stride + i * height.dilation) as isize
                                    - height.before as isize;
                                let x_w = (w * width.stride + j * width.dilation) as isize
                                    - width.before as isize;
                                let inside = |at: isize, len: usize| at >= 0 && (at as usize) < len;
                                if !inside(x_h, height.input) || !inside(x_w, width.input) {
                                    continue;
                                }
                                let channel = o / outputs * inputs + c;
                                let x = [n, x_h as usize, x_w as usize, channel];
                                product(
                                    at([height.input, width.input], self.input, x),
                                    ((o * inputs + c) * height.kernel + i) * width.kernel + j,
                                    at([height.output, width.output], self.output, [n, h, w, o]),
                                );
                            }
                        }
                    }
                }
            }
        }
    }

    fn lengths(&self) -> [usize; 3] {
        [
            self.images * self.inputs() * self.input,
            self.output * self.patch(),
            self.images * self.outputs() * self.output,
        ]
    }

    fn channel_of(&self, index: usize, channels: usize, places: usize) -> usize {
        match self.layout {
            Channels::Last => index % channels,
            Channels::First => index / places % channels,
        }
    }
}

#[test]
fn convolutions_and_their_derivatives_are_sums_of_products() {
    for of in cases() {
        let what = format!("{of:?}");
        let [x, w, y] = of.lengths();
        let [x, w, d_y] = [(x, 1), (w, 2), (y, 3)].map(|(len, seed)| noise::<f64>(len, seed));
        let [b, b_x] = [noise::<f64>(of.output, 4), noise::<f64>(of.input, 5)];
        // At most 5 * 5 * 17 products, and in the gradient of weights 2100, of at most 1.
        let near = |got: &[f64], want: &[f64]| assert_close(&what, got, want, Absolute(1e-11));

        let mut want: Vec<f64> = (0..y)
            .map(|i| b[of.channel_of(i, of.output, of.outputs())])
            .collect();
        of.naive(|i, k, o| want[o] += x[i] * w[k]);
        let mut got = vec![f64::NAN; y];
        forward(&x, &w, &of, Start::Row(&b), &mut got);
        near(&got, &want);
        forward(&x, &w, &of, Start::Accumulate, &mut got);
        of.naive(|i, k, o| want[o] += x[i] * w[k]);
        near(&got, &want);
        got.fill(f64::NAN);
        forward(&x, &w, &of, Start::Zero, &mut got);
        want.fill(0.0);
        of.naive(|i, k, o| want[o] += x[i] * w[k]);
        near(&got, &want);

        let mut want: Vec<f64> = (0..x.len())
            .map(|i| b_x[of.channel_of(i, of.input, of.inputs())])
            .collect();
        of.naive(|i, k, o| want[i] += d_y[o] * w[k]);
        let mut got = vec![f64::NAN; x.len()];
        input_gradient(&d_y, &w, &of, Start::Row(&b_x), &mut got);
        near(&got, &want);
        input_gradient(&d_y, &w, &of, Start::Accumulate, &mut got);
        of.naive(|i, k, o| want[i] += d_y[o] * w[k]);
        near(&got, &want);
        got.fill(f64::NAN);
        input_gradient(&d_y, &w, &of, Start::Zero, &mut got);
        want.fill(0.0);
        of.naive(|i, k, o| want[i] += d_y[o] * w[k]);
        near(&got, &want);

        let mut want = vec![1.0; w.len()];
        of.naive(|i, k, o| want[k] += d_y[o] * x[i]);
        let mut got = vec![1.0; w.len()];
        add_weight_gradient(&x, &d_y, &of, &mut got);
        near(&got, &want);

        let mut want = vec![1.0; of.output];
        for (i, d) in d_y.iter().enumerate() {
            want[of.channel_of(i, of.output, of.outputs())] += d;
        }
        let mut got = vec![1.0; of.output];
        add_bias_gradient(&d_y, of.layout, of.images, &mut got);
        near(&got, &want);
    }
}

#[test]
fn results_have_the_same_bits_for_any_number_of_threads() {
    let axes = [[20, 3, 1, 1, 1, 1], [33, 3, 2, 1, 1, 1]].map(slide);
    let line = slide([1500, 3, 2, 1, 1, 1]);
    for (axes, [input, output, groups]) in [
        (axes, [24, 40, 1]),
        (axes, [32, 32, 32]),
        ([Slide::NONE, line], [40, 60, 2]),
        ([Slide::NONE, line], [20, 40, 20]),
    ] {
        for layout in [Channels::Last, Channels::First] {
            let of = Convolution {
                layout,
                images: 3,
                input,
                output,
                groups,
                axes,
            };
            let [x, w, y] = of.lengths();
            let [x, w, d_y] = [(x, 1), (w, 2), (y, 3)].map(|(len, seed)| noise::<f32>(len, seed));
            same_for_all_threads(|| {
                let mut to = vec![0.0; y];
                forward(&x, &w, &of, Start::Zero, &mut to);
                let mut d_x = vec![0.0; x.len()];
                input_gradient(&d_y, &w, &of, Start::Zero, &mut d_x);
                let mut d_w = vec![0.0; w.len()];
                add_weight_gradient(&x, &d_y, &of, &mut d_w);
                let mut d_b = vec![0.0; output];
                add_bias_gradient(&d_y, layout, of.images, &mut d_b);
                (to, d_x, d_w, d_b)
            });
        }
    }
}

/// Convolutions whose products are packed: windows of whole vectors, with strides, gaps and zeros on both sides, or on one; windows that read zeros alone;
/// images that end within a panel.
fn packed() -> impl Iterator<Item = Convolution> {
    let lines = [
        [800, 16, 16, 1, 0, 0],
        [39, 3, 1, 1, 1, 1],
        [90, 3, 2, 1, 1, 1],
        [60, 3, 1, 3, 6, 0],
        [45, 5, 1, 1, 9, 9],
        [80, 9, 2, 2, 3, 20],
        [200, 7, 3, 1, 0, 0],
    ]
    .map(slide);
    let one = lines.map(|line| [Slide::NONE, line]);
    let two = [
        [[32, 16, 16, 1, 0, 0], [320, 16, 16, 1, 0, 0]],
        [[9, 3, 1, 1, 1, 1], [7, 3, 1, 1, 1, 1]],
        [[5, 2, 1, 2, 4, 4], [40, 3, 2, 1, 5, 5]],
    ]
    .map(|axes| axes.map(slide));
    let axes = one.into_iter().chain(two);
    axes.flat_map(|axes| {
        [[17, 19, 1], [32, 40, 2], [48, 48, 3]]
            .into_iter()
            .flat_map(move |[input, output, groups]| {
                [1, 3].map(|images| Convolution {
                    layout: Channels::First,
                    images,
                    input,
                    output,
                    groups,
                    axes,
                })
            })
    })
}

/// Depthwise ones: lines of several vectors and a rest, strides, several outputs of a channel, windows that read zeros alone.
fn depthwise() -> impl Iterator<Item = Convolution> {
    let axes = [
        [Slide::NONE, slide([300, 4, 1, 1, 3, 0])],
        [Slide::NONE, slide([90, 5, 3, 2, 4, 9])],
        [[20, 7, 1, 1, 3, 3], [56, 7, 1, 1, 3, 3]].map(slide),
        [[9, 3, 2, 1, 1, 1], [35, 3, 2, 1, 1, 1]].map(slide),
        [[5, 2, 1, 2, 4, 4], [40, 3, 1, 1, 5, 5]].map(slide),
        [[14, 1, 1, 1, 0, 0], [14, 2, 4, 1, 0, 0]].map(slide),
    ];
    axes.into_iter().flat_map(|axes| {
        [[3, 3], [2, 6]].map(|[input, output]| Convolution {
            layout: Channels::First,
            images: 2,
            input,
            output,
            groups: input,
            axes,
        })
    })
}

/// A convolution and its derivatives, from all initial numbers, against sums in `f64`.
fn check<E: Kernels>(of: &Convolution, epsilon: f64) {
    let [x, w, y] = of.lengths();
    let [x, w, y] = [(x, 1), (w, 2), (y, 3)].map(|(len, seed)| noise::<E>(len, seed));
    let [wide_x, wide_w, wide_y] = [wide(&x), wide(&w), wide(&y)];
    let [mut of_y, mut of_x, mut of_w] = [&y, &x, &w].map(|numbers| vec![0.0; numbers.len()]);
    of.naive(|i, k, o| {
        of_y[o] += wide_x[i] * wide_w[k];
        of_x[i] += wide_y[o] * wide_w[k];
        of_w[k] += wide_y[o] * wide_x[i];
    });
    // The sums are rounded once for each product.
    let close = |products: usize| {
        let products = products as f64;
        epsilon * (products + 2.0) * (2.0 * products.sqrt() + 2.0)
    };
    let of_input = of.places() * of.output_of_group();
    assert_starts::<E>(of, &y, &of_y, close(of.patch()), |start, to| {
        forward(&x, &w, of, start, to);
    });
    let back = Convolution {
        output: of.input,
        axes: of.axes.map(from_output),
        ..*of
    };
    assert_starts::<E>(&back, &x, &of_x, close(of_input), |start, to| {
        input_gradient(&y, &w, of, start, to);
    });
    let mut got = w.clone();
    add_weight_gradient(&x, &y, of, &mut got);
    let want: Vec<f64> = wide_w.iter().zip(of_w).map(|(w, sum)| w + sum).collect();
    let close = Absolute(close(of.images * of.outputs()));
    assert_close(format!("weights of {of:?}"), &got, &want, close);
}

/// An axis whose outputs are the inputs of this one.
fn from_output(axis: Slide) -> Slide {
    Slide {
        output: axis.input,
        ..axis
    }
}

/// `compute` adds these sums to zeros, to the old numbers, and to a bias for each channel of the output of `of`.
fn assert_starts<E: Kernels>(
    of: &Convolution,
    old: &[E],
    sums: &[f64],
    close: f64,
    compute: impl Fn(Start<'_, E>, &mut [E]),
) {
    let b = noise::<E>(of.output, 4);
    for start in [Start::Zero, Start::Accumulate, Start::Row(&b)] {
        let before = |i: usize| -> f64 {
            match start {
                Start::Zero => 0.0,
                Start::Accumulate => old[i].into(),
                Start::Row(b) => b[of.channel_of(i, of.output, of.outputs())].into(),
            }
        };
        let want = sums.iter().enumerate().map(|(i, sum)| before(i) + sum);
        let want: Vec<f64> = want.collect();
        let mut got = match start {
            Start::Accumulate => old.to_vec(),
            _ => vec![E::NAN; old.len()],
        };
        compute(start, &mut got);
        assert_close(format!("{of:?}"), &got, &want, Absolute(close));
    }
}

#[test]
fn packed_patches_are_those_of_the_images_on_every_instruction_set() {
    on_every_isa(|_| {
        for of in packed() {
            assert!(of.is_packed(), "{of:?}");
            check::<f32>(&of, 6e-8);
            check::<f64>(&of, 1.2e-16);
        }
    });
}

#[test]
fn depthwise_windows_are_those_of_the_images_on_every_instruction_set() {
    on_every_isa(|_| {
        for of in depthwise() {
            check::<f32>(&of, 6e-8);
            check::<f64>(&of, 1.2e-16);
        }
    });
}

/// The derivative with respect to the input is a packed convolution for some of them, and sums of patches for others.
#[test]
fn both_ways_of_the_derivative_are_tested() {
    let mirrored = packed().filter(|of| of.mirrored().is_some()).count();
    assert!(
        mirrored > 4 && mirrored + 4 < packed().count(),
        "{mirrored}"
    );
    let mirrored = depthwise()
        .filter(|of| of.mirrored_axes().is_some())
        .count();
    assert!(
        mirrored > 2 && mirrored + 2 < depthwise().count(),
        "{mirrored}"
    );
}

/// An output depends on its image, not on how many there are or on the threads.
#[test]
fn images_have_the_same_bits_in_any_batch() {
    for of in packed().chain(depthwise()).filter(|of| of.images > 1) {
        let [x, w, y] = of.lengths();
        let [x, w, d_y] = [(x, 1), (w, 2), (y, 3)].map(|(len, seed)| noise::<f32>(len, seed));
        let one = Convolution { images: 1, ..of };
        let [each, _, of_each] = one.lengths();
        same_for_all_threads(|| {
            let mut all = vec![0.0; y];
            forward(&x, &w, &of, Start::Zero, &mut all);
            for (x, all) in x.chunks(each).zip(all.chunks(of_each)) {
                let mut alone = vec![0.0; of_each];
                forward(x, &w, &one, Start::Zero, &mut alone);
                assert!(alone == all, "{one:?}");
            }
            let mut d_x = vec![0.0; x.len()];
            input_gradient(&d_y, &w, &of, Start::Zero, &mut d_x);
            for (d_y, d_x) in d_y.chunks(of_each).zip(d_x.chunks(each)) {
                let mut alone = vec![0.0; each];
                input_gradient(d_y, &w, &one, Start::Zero, &mut alone);
                assert!(alone == d_x, "inputs of {one:?}");
            }
            (all, d_x)
        });
    }
}

/// A NaN of the input reaches the outputs and the gradients of weights that it is multiplied for, one of the gradient of the output those of inputs,
/// and neither reaches anything else. At the end of a line, vectors read beyond the last window.
#[test]
fn numbers_that_are_not_finite_reach_what_reads_them() {
    for of in packed().chain(depthwise()) {
        let [x, _, y] = of.lengths();
        let line = &of.axes[1];
        for (at_x, at_y) in [
            (x / 3, y / 3),
            (line.input - 1, line.output - 1),
            (x - 1, y - 1),
        ] {
            assert_nan(&of, at_x, at_y);
        }
    }
}

fn assert_nan(of: &Convolution, at_x: usize, at_y: usize) {
    let lengths = of.lengths();
    let [mut of_x, mut of_w, mut of_y] = lengths.map(|len| vec![false; len]);
    of.naive(|i, k, o| {
        of_y[o] |= i == at_x;
        of_w[k] |= i == at_x;
        of_x[i] |= o == at_y;
    });
    let is_nan = |numbers: &[f32], expected: Vec<bool>| {
        let found: Vec<bool> = numbers.iter().map(|x| x.is_nan()).collect();
        assert_eq!(found, expected, "{of:?}, NaN at {at_x} and {at_y}");
    };
    let [x, w, d_y] = lengths.map(|len| noise::<f32>(len, 1));
    let (mut nan_x, mut nan_y) = (x.clone(), d_y.clone());
    (nan_x[at_x], nan_y[at_y]) = (f32::NAN, f32::NAN);
    let mut y = vec![0.0; d_y.len()];
    forward(&nan_x, &w, of, Start::Zero, &mut y);
    is_nan(&y, of_y);
    let mut d_x = vec![0.0; x.len()];
    input_gradient(&nan_y, &w, of, Start::Zero, &mut d_x);
    is_nan(&d_x, of_x);
    let mut d_w = vec![0.0; w.len()];
    add_weight_gradient(&nan_x, &d_y, of, &mut d_w);
    is_nan(&d_w, of_w);
}
