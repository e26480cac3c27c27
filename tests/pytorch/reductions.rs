//! Numbers in place of axes, softmax along axes, and pooling.

cases! {
    sums {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            x * sum::<batch>(x) + 2 * x * sum::<seq>(x) + 3 * x * sum::<d>(x)
                + 4 * x * sum::<[batch, seq]>(x) + 5 * x * sum::<[seq, d]>(x) + 6 * x * sum::<[d, batch]>(x)
        }
    } (x: floats[_, _, 4]);

    means {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            x * mean::<batch>(x) + 2 * x * mean::<seq>(x) + 3 * x * mean::<d>(x)
                + 4 * x * mean::<[batch, seq]>(x) + 5 * x * mean::<[seq, d]>(x) + 6 * x * mean::<[d, batch]>(x)
        }
    } (x: floats[_, _, 4]);

    maxima {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            x * max::<batch>(x) + 2 * x * max::<seq>(x) + 3 * x * max::<d>(x)
                + 4 * x * max::<[batch, seq]>(x) + 5 * x * max::<[seq, d]>(x) + 6 * x * max::<[d, batch]>(x)
        }
    } (x: floats[_, _, 4]);

    minima {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            x * min::<batch>(x) + 2 * x * min::<seq>(x) + 3 * x * min::<d>(x)
                + 4 * x * min::<[batch, seq]>(x) + 5 * x * min::<[seq, d]>(x) + 6 * x * min::<[d, batch]>(x)
        }
    } (x: floats[_, _, 4]);

    variances {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            x * variance::<batch>(x) + 2 * x * variance::<seq>(x) + 3 * x * variance::<d>(x)
                + 4 * x * variance::<[batch, seq]>(x) + 5 * x * variance::<[seq, d]>(x) + 6 * x * variance::<[d, batch]>(x)
        }
    } (x: floats[_, _, 4]);

    logarithms_of_sums {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            x * logsumexp::<batch>(x) + 2 * x * logsumexp::<seq>(x) + 3 * x * logsumexp::<d>(x)
                + 4 * x * logsumexp::<[batch, seq]>(x) + 5 * x * logsumexp::<[seq, d]>(x) + 6 * x * logsumexp::<[d, batch]>(x)
        }
    } (x: floats[_, _, 4]);

    all_axes {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            x * sum::<[batch, seq, d]>(x) + mean::<[batch, seq, d]>(x) / (1 + variance::<[batch, seq, d]>(x))
                - x * max::<[batch, seq, d]>(x) * min::<[batch, seq, d]>(x) + logsumexp::<[batch, seq, d]>(x)
        }
    } (x: floats[_, _, 4]);

    of_a_single_number {
        struct M<>;
        fn forward(x: [seq]) -> [seq] { softmax::<seq>(x) * variance::<seq>(x) + logsumexp::<seq>(x) }
    } (x: floats[_]);

    softmaxes {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, 16] {
            concat(softmax::<batch>(x), softmax::<seq>(x), softmax(2 * x), softmax::<d>(100 * x))
        }
    } (x: floats[_, _, 4]);

    mean_pools {
        struct M<d = 3>;
        fn forward(x: [batch, seq, d], lens: lens[batch], keep: bool[batch, seq]) -> [batch, 9] {
            concat(mean_pool(x), mean_pool(x, lens), mean_pool(x, keep))
        }
    } (x: floats[_, _, 3], lens: lens[_], keep: bools[_, _]);

    max_pools {
        struct M<d = 3>;
        fn forward(x: [batch, seq, d], lens: lens[batch], keep: bool[batch, seq]) -> [batch, 9] {
            concat(max_pool(x), max_pool(x, lens), max_pool(x, keep))
        }
    } (x: floats[_, _, 3], lens: lens[_], keep: bools[_, _]);
}
