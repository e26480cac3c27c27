//! Reductions and softmaxes of the numbers that lengths or marks select.

cases! {
    sums {
        struct M<d = 5>;
        fn forward(x: [batch, seq, d], lens: lens[batch], keep: bool[batch, seq]) -> ([batch, d], [batch, d]) {
            let y = tanh(2 * x);
            (sum::<seq>(x, lens) * sum::<seq>(y, lens), sum::<seq>(x, keep) * sum::<seq>(y, keep))
        }
    } (x: floats[_, _, 5], lens: lens[_], keep: bools[_, _]);

    means {
        struct M<d = 5>;
        fn forward(x: [batch, seq, d], lens: lens[batch], keep: bool[batch, seq]) -> ([batch, d], [batch, d]) {
            let y = tanh(2 * x);
            (mean::<seq>(x, lens) * mean::<seq>(y, lens), mean::<seq>(x, keep) * mean::<seq>(y, keep))
        }
    } (x: floats[_, _, 5], lens: lens[_], keep: bools[_, _]);

    maxima {
        struct M<d = 5>;
        fn forward(x: [batch, seq, d], lens: lens[batch], keep: bool[batch, seq]) -> ([batch, d], [batch, d]) {
            let y = tanh(2 * x);
            (max::<seq>(x, lens) * max::<seq>(y, lens), max::<seq>(x, keep) * max::<seq>(y, keep))
        }
    } (x: floats[_, _, 5], lens: lens[_], keep: bools[_, _]);

    minima {
        struct M<d = 5>;
        fn forward(x: [batch, seq, d], lens: lens[batch], keep: bool[batch, seq]) -> ([batch, d], [batch, d]) {
            let y = tanh(2 * x);
            (min::<seq>(x, lens) * min::<seq>(y, lens), min::<seq>(x, keep) * min::<seq>(y, keep))
        }
    } (x: floats[_, _, 5], lens: lens[_], keep: bools[_, _]);

    variances {
        struct M<d = 5>;
        fn forward(x: [batch, seq, d], lens: lens[batch], keep: bool[batch, seq]) -> ([batch, d], [batch, d]) {
            let y = tanh(2 * x);
            (variance::<seq>(x, lens) * variance::<seq>(y, lens), variance::<seq>(x, keep) * variance::<seq>(y, keep))
        }
    } (x: floats[_, _, 5], lens: lens[_], keep: bools[_, _]);

    logarithms_of_sums {
        struct M<d = 5>;
        fn forward(x: [batch, seq, d], lens: lens[batch], keep: bool[batch, seq]) -> ([batch, d], [batch, d]) {
            let y = tanh(2 * x);
            (
                exp(0.5 * logsumexp::<seq>(x, lens)) * exp(0.5 * logsumexp::<seq>(y, lens)),
                exp(0.5 * logsumexp::<seq>(x, keep)) * exp(0.5 * logsumexp::<seq>(y, keep)),
            )
        }
    } (x: floats[_, _, 5], lens: lens[_], keep: bools[_, _]);

    softmaxes {
        struct M<d = 5>;
        fn forward(x: [batch, seq, d], lens: lens[batch], keep: bool[batch, seq]) -> ([batch, seq, d], [batch, seq, d]) {
            let y = tanh(2 * x);
            (softmax::<seq>(x, lens) * softmax::<seq>(y, lens), softmax::<seq>(x, keep) * softmax::<seq>(y, keep))
        }
    } (x: floats[_, _, 5], lens: lens[_], keep: bools[_, _]);

    of_the_last_axis {
        struct M<d = 5>;
        fn forward(x: [batch, seq, d], keep: bool[seq, d], lens: lens[batch, seq]) -> ([batch, seq, d], [batch, seq]) {
            let numbers = sum::<d>(x, lens) * max::<d>(x, keep) + variance::<d>(x, keep) * exp(0.5 * logsumexp::<d>(x, lens));
            (softmax(x, keep) * softmax::<d>(2 * x, lens), numbers * mean::<d>(x, keep) - min::<d>(x, lens))
        }
    } (x: floats[_, _, 5], keep: bools[_, 5], lens: lens[_, _]);

    of_the_first_axis {
        struct M<d = 2>;
        fn forward(x: [seq, batch, d], keep: bool[batch, seq], lens: lens[d, batch]) -> ([seq, batch, d], [batch, d]) {
            let numbers = sum::<seq>(x, lens) * max::<seq>(x, keep) + variance::<seq>(x, keep) * exp(0.5 * logsumexp::<seq>(x, lens));
            (softmax::<seq>(x, keep) * softmax::<seq>(2 * x, lens), numbers * mean::<seq>(x, keep) - min::<seq>(x, lens))
        }
    } (x: floats[_, _, 2], keep: bools[_, _], lens: lens[2, _]);

    the_same_for_all {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d], keep: bool[seq], none: bool[d]) -> ([batch, seq, d], [batch, seq]) {
            let y = softmax::<seq>(x, keep) + x * softmax(x, none);
            (y * mean::<seq>(x, keep), sum::<d>(x, none) + variance::<d>(x, none) + min::<d>(x, none))
        }
    } (x: floats[_, _, 4], keep: bools[_], none: bools[4]);

    along_an_axis {
        struct M<d = 5>;
        fn forward(x: [batch, seq, d], lens: lens[batch], keep: bool[batch, seq]) -> ([batch, seq, d], [batch, seq, d]) {
            let score = x[d = 0];
            let by_lens = cumsum::<seq>(x, lens) * l2_norm::<seq>(x, lens) + x[seq = argmax::<seq>(score, lens)];
            (by_lens, cumsum::<seq>(x, keep) * l2_norm::<seq>(x, keep) + x[seq = argmax::<seq>(score, keep)])
        }
    } (x: floats[_, _, 5], lens: lens[_], keep: bools[_, _]);

    of_no_tokens {
        struct M<d = 3>;
        fn forward(x: [batch, seq, d], lens: lens[batch], keep: bool[batch, seq]) -> ([batch, d], [batch, d]) {
            let y = softmax::<seq>(x, keep) + softmax::<seq>(x, lens);
            let numbers = mean::<seq>(x, keep) + max::<seq>(x, lens) + variance::<seq>(x, lens);
            (sum::<seq>(y, lens) + numbers, exp(logsumexp::<seq>(x, keep)) + min::<seq>(x, keep))
        }
    } (x: floats[_, _, 3], lens: lens[_], keep: bools[_, _]);
}
