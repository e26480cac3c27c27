//! Convolutions: the shapes of their results, the layers, and mistakes.

use super::lower;
use super::mistakes::errors_of;
use super::shapes::shapes;
use crate::model::decode;

fn shape(call: &str) -> String {
    let model = lower(&format!(
        "struct M<d = 8, c = 6, n = 12>;
         fn forward(x: [batch, seq, d], image: [batch, c, height, width], fixed: [batch, n, d]) -> [batch, seq, d] {{
             let y = {call};
             let _y = y; let _image = image; let _fixed = fixed; x
         }}"
    ));
    let found = shapes(&model).into_iter();
    let mut found = found.filter_map(|line| line.strip_prefix("y: ").map(str::to_owned));
    found.next_back().expect("there is a result")
}

#[test]
fn lengths_are_those_of_windows() {
    for (call, expected) in [
        (
            "conv1d::<seq, out = 4, kernel = 3, padding = same>(x)",
            "[batch, seq, 4]",
        ),
        (
            "conv1d::<seq, out = 4, kernel = 3, padding = same, stride = ONE>(x)",
            "[batch, seq, 4]",
        ),
        (
            "conv1d::<seq, out = d, kernel = 3, padding = 1>(x)",
            "[batch, seq, 8]",
        ),
        (
            "conv1d::<seq, 4, 3, padding = causal, dilation = 5>(x)",
            "[batch, seq, 4]",
        ),
        (
            "conv1d::<seq, 4, 3, stride = 2, to = frames>(x)",
            "[batch, frames, 4]",
        ),
        (
            "conv1d::<n, 4, 3, stride = 2, padding = 1>(fixed)",
            "[batch, 6, 4]",
        ),
        (
            "conv2d::<[height, width], 4, 3, padding = same, channels = c>(image)",
            "[batch, 4, height, width]",
        ),
        (
            "conv2d::<[height, width], 4, [2, 3], padding = [0, 1], channels = c, to = [h, width]>(image)",
            "[batch, 4, h, width]",
        ),
        (
            "conv1d::<height, 4, 3, padding = same, channels = c>(image)",
            "[batch, 4, height, width]",
        ),
        (
            "conv_transpose1d::<seq, 4, 4, stride = 2, padding = 1, to = twice>(x)",
            "[batch, twice, 4]",
        ),
        (
            "conv_transpose1d::<n, 4, 3, stride = 2, output_padding = 1>(fixed)",
            "[batch, 26, 4]",
        ),
    ] {
        assert_eq!(shape(call), expected, "{call}");
    }
}

/// The token and the first line of the message of the only mistake.
/// So the next convolution finds it, beside an axis that is as long.
#[test]
fn an_axis_that_keeps_its_length_keeps_its_name() {
    let source = |first: &str| {
        format!(
            "struct Block<c = 4, height = 8, width = 8>;
             fn forward(x: [batch, c, height, width]) -> [batch, c, height, width] {{
                 let y = {first};
                 x + conv2d::<[height, width], c, 3, padding = 1, channels = c, name = second>(y)
             }}"
        )
    };
    for first in [
        "conv2d::<[height, width], c, 3, padding = 1, channels = c>(x)",
        "conv2d::<[height, width], c, 5, padding = 4, dilation = 2, channels = c>(x)",
        "conv_transpose2d::<[height, width], c, 3, padding = 1, channels = c>(x)",
        "pad::<height, before = 0>(x)",
        "concat::<c, to = c>(x[c = 1..], x[c = ..1])",
    ] {
        assert_eq!(errors_of(&source(first)), [], "{first}");
    }
    let smaller = "conv2d::<[height, width], c, 3, channels = c>(x)";
    let found = errors_of(&source(smaller));
    assert!(
        found[0].1.starts_with("there is no axis `height`"),
        "{found:?}"
    );
}

fn mistake(call: &str) -> (String, String) {
    let source = format!(
        "struct M<d = 8, c = 6, n = 12>;
         fn forward(x: [batch, seq, d], image: [batch, c, height, width], fixed: [batch, n, d]) -> [batch, seq, d] {{
             let _y = {call};
             let _image = image; let _fixed = fixed; x
         }}"
    );
    let mut errors = errors_of(&source);
    assert_eq!(errors.len(), 1, "{call}: {errors:?}");
    errors.remove(0)
}

#[test]
fn mistakes_are_found() {
    for (call, at, message) in [
        (
            "conv1d::<seq, 4, 3>(x)",
            "conv1d",
            "`seq` is of any length, and an axis of length `seq - 3 + 1` needs a name",
        ),
        (
            "conv1d::<seq, 4>(x)",
            "conv1d",
            "`conv1d` needs the key `kernel`",
        ),
        (
            "conv1d::<[seq, batch], 4, 3>(x)",
            "conv1d",
            "`conv1d` is along one axis, found 2",
        ),
        (
            "conv2d::<height, 4, 3, channels = c>(image)",
            "conv2d",
            "`conv2d` is along two axes, found 1",
        ),
        (
            "conv1d::<d, 4, 3>(x)",
            "conv1d",
            "`conv1d` goes along `d`, so this is no axis of channels: the channels of [batch, seq, 8] are its last axis, unless `channels` names another one",
        ),
        (
            "conv1d::<height, 4, 3, padding = same>(image)",
            "conv1d",
            "`conv1d` has weights for every channel, so their number is constant, found the axis `width` of [batch, 6, height, width]",
        ),
        (
            "conv1d::<n, 4, 13>(fixed)",
            "conv1d",
            "a window of `conv1d` has 13 places, which do not fit an axis of size 12",
        ),
        (
            "conv1d::<n, 4, 5, dilation = 4, padding = 2>(fixed)",
            "conv1d",
            "a window of `conv1d` has 17 places, which do not fit an axis of size 12, with 4 zeros around it",
        ),
        (
            "conv1d::<n, 4, 3, stride = 0>(fixed)",
            "0",
            "`stride` must be at least 1, found 0",
        ),
        (
            "conv1d::<n, 4, 3, stride = 2, padding = same>(fixed)",
            "2",
            "`padding = same` makes the result of `conv1d` as long as its operand, so the stride is 1, found 2",
        ),
        (
            "conv1d::<n, 4, 3, groups = 3>(fixed)",
            "3",
            "`groups` must divide the number of channels, found 3 groups of 8 channels",
        ),
        (
            "conv1d::<n, 6, 3, groups = 4>(fixed)",
            "4",
            "`groups` must divide the number of channels, found 4 groups of 6 channels",
        ),
        (
            "conv1d::<n, 4, [3, 3]>(fixed)",
            "3",
            "`kernel` is one size, found 2",
        ),
        (
            "conv2d::<[height, width], 4, [3, 3, 3], padding = same, channels = c>(image)",
            "3",
            "`kernel` is one size for both axes, or two in brackets, found 3",
        ),
        (
            "conv2d::<[height, width], 4, 3, stride = 2, channels = c, to = h>(image)",
            "h",
            "the result of `conv2d` has two axes, `to = [rows, columns]`, found 1",
        ),
        (
            "conv_transpose1d::<n, 4, 3, output_padding = 1>(fixed)",
            "1",
            "the `output_padding` of `conv_transpose1d` must be less than the stride or the dilation, which are 1 and 1, found 1",
        ),
        (
            "conv_transpose1d::<n, 4, 1, padding = 7>(fixed)",
            "conv_transpose1d",
            "`conv_transpose1d` leaves out 14 numbers, of more than an axis of size 12 makes",
        ),
    ] {
        assert_eq!(mistake(call), (at.to_owned(), message.to_owned()), "{call}");
    }
}

/// A causal convolution remembers, wherever the tokens stand among the inputs.
#[test]
fn tokens_need_not_be_the_first_input() {
    let model = lower(
        "
        struct M<vocab = 5, d = 4>;
        fn forward(memory: [batch, src, d], tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let x = conv1d::<seq, d, 3, padding = causal>(embedding::<vocab, d>(tokens));
            linear::<vocab>(x + attention::<2>(x, context = memory))
        }
        ",
    );
    assert_eq!(decode::check(&model), Ok(()));
}
