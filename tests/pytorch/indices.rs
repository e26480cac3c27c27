//! Numbers at indices, indices of the largest numbers, sums by index and up to each place, and values without a gradient.

cases! {
    without_gradients {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> ([batch, seq, d], [batch, seq, d]) {
            param w: [d] = normal(1.0);
            let y = x * w;
            (tanh(y) * detach(y) + detach(x) * w, x + detach(floor(2 * y) - y))
        }
    } (x: floats[_, _, 4]);

    rows_of_a_table {
        struct M<vocab = 5, d = 4>;
        fn forward(tokens: ids[batch, seq]) -> ([batch, seq, d], [batch, seq, d]) {
            param table: [vocab, d] = normal(1.0);
            let first = table[tokens][seq = 0];
            let twice = 2 * table;
            (table[tokens] * tanh(table)[tokens], twice[vocab = tokens] + first)
        }
    } (tokens: ids[_, _]);

    a_place_of_each_sequence {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d], last: ids[batch]) -> [batch, d] { x[seq = last] * tanh(x)[seq = last] }
    } (x: floats[_, _, 4], last: ids[_]);

    a_number_of_each_vector {
        struct M<d = 7>;
        fn forward(x: [batch, seq, d], target: ids[seq, batch]) -> [batch, seq] { x[d = target] - logsumexp::<d>(x) }
    } (x: floats[_, _, 7], target: ids[_, _]);

    losses_of_classes {
        struct M<classes = 7>;
        fn forward(x: [batch, seq, classes], target: ids[batch, seq]) -> ([], [batch, seq]) {
            let turned = permute::<[seq, classes, batch]>(tanh(x));
            let each = cross_entropy::<classes, reduction = none, label_smoothing = 0.5, ignore_index = 3>(turned, target);
            (cross_entropy(x, target) + 2 * cross_entropy::<ignore_index = 3, label_smoothing = 0.2>(2 * x, target), each)
        }
    } (x: floats[_, _, 7], target: ids[_, _]);

    losses_of_linears {
        struct M<d = 4, classes = 7>;
        fn forward(x: [batch, seq, d], target: ids[batch, seq]) -> ([], [batch, seq]) {
            let mean = cross_entropy::<ignore_index = 3, label_smoothing = 0.2>(linear::<classes>(x), target);
            (mean, cross_entropy::<reduction = none>(linear::<classes, bias = false>(tanh(x)), target))
        }
    } (x: floats[_, _, 4], target: ids[_, _]);

    an_order_of_each_sequence {
        struct M<d = 5>;
        fn forward(x: [batch, seq, d], order: ids[batch, seq]) -> [batch, seq, d] { x[seq = order] * x }
    } (x: floats[_, _, 5], order: ids[_, _]);

    an_order_of_each_feature {
        struct M<d = 5>;
        fn forward(x: [batch, seq, d], order: ids[batch, n, d]) -> [batch, n, d] { x[seq = order] }
    } (x: floats[_, _, 5], order: ids[_, _, 5]);

    new_axes_in_the_place_of_one {
        struct M<d = 3>;
        fn forward(x: [batch, seq, d], places: ids[n], pairs: ids[a, b]) -> ([batch, n, d], [batch, seq, a, b]) {
            (2 * x[seq = places], x[d = pairs])
        }
    } (x: floats[_, _, 3], places: ids[_], pairs: ids[_, _]);

    the_first_axis {
        struct M<d = 3>;
        fn forward(x: [seq, d], places: ids[n, m], order: ids[k, d]) -> ([n, m, d], [k, d]) { (x[places], x[order]) }
    } (x: floats[_, 3], places: ids[_, _], order: ids[_, 3]);

    constant_indices {
        struct M<rows = 4, d = 3>;
        fn forward(x: [batch, rows, d]) -> ([batch, 3, d], [batch, 1, 2]) {
            (x[rows = [0, 2, -1]] * x[rows = [1, 1, -4]], x[d = [-1, 0]][rows = [3]])
        }
    } (x: floats[_, 4, 3]);

    several_axes {
        struct M<heads = 4, d = 3>;
        fn forward(x: [batch, seq, heads, d], last: ids[batch], head: ids[batch]) -> [batch, 2] {
            x[seq = last, heads = head, d = 1..]
        }
    } (x: floats[_, _, 4, 3], last: ids[_], head: ids[_]);

    the_largest {
        struct M<d = 5>;
        fn forward(x: [batch, seq, d], y: [batch, seq, d]) -> ([batch, seq, d], [batch, d]) {
            let ones = one_hot::<d>(argmax::<d>(x)) + 2 * one_hot::<d>(argmax::<d>(y));
            (x * ones, x[seq = argmax::<seq>(sum::<d>(x))])
        }
    } (x: floats[_, _, 5], y: data[_, _, 5]);

    a_table_at_the_largest {
        struct M<d = 5, vocab = 6, width = 4>;
        fn forward(x: [batch, seq, d]) -> ([batch, seq, width], [batch, seq, width]) {
            param other: [d, width] = normal(1.0);
            let best = argmax::<d>(x);
            (embedding::<vocab, width>(best) * max::<d>(x), other[argmax::<d>(-x)] * other[best])
        }
    } (x: floats[_, _, 5]);

    largest_numbers {
        struct M<rows = 5, d = 4>;
        fn forward(x: [batch, rows, d]) -> ([batch, rows, 2], [batch, 3, d]) {
            let y = tanh(x);
            let (values, ids) = top_k::<d, k = 2>(y);
            let (tokens, order) = top_k::<rows, k = 3>(y);
            (values * x[d = ids], tokens * x[rows = order])
        }
    } (x: floats[_, 5, 4]);

    all_numbers_in_order {
        struct M<d = 4>;
        fn forward(x: [seq, d]) -> ([seq, d, d], [seq, d]) {
            let (values, ids) = top_k::<k = d>(x);
            let (one, best) = top_k::<seq, k = 1>(x);
            let ordered = einsum::<[seq, d, e]>(values, one_hot::<d>(ids) as [seq, d, e = d]);
            (ordered, one + x * x[seq = best])
        }
    } (x: floats[_, 4]);

    mixture_of_experts {
        struct M<d = 4, experts = 5>;
        fn forward(x: [batch, seq, d]) -> ([batch, seq, d], [batch, seq, experts]) {
            param gains: [experts, d] = normal(1.0);
            let (values, chosen) = top_k::<k = 2>(linear::<experts, bias = false, name = router>(x));
            let shares = softmax(values);
            (sum::<2>(gains[chosen] * shares) * x, scatter_add::<[batch, seq, experts], axis = experts>(shares, chosen))
        }
    } (x: floats[_, _, 4]);

    indices_of_axes {
        struct M<d = 4, most = 7>;
        fn forward(x: [batch, seq, d]) -> ([batch, seq, d], [batch, seq, 3]) {
            param table: [most, d] = normal(1.0);
            let ones = one_hot::<5>(arange::<seq>());
            (x * table[arange::<seq>()] + x * table[arange::<batch>()], x[d = ..3] * ones[5 = ..3])
        }
    } (x: floats[_, _, 4]);

    ones_at_ids {
        struct M<d = 5>;
        fn forward(x: [batch, seq, d], ids: ids[batch, seq]) -> ([batch, seq, d], [seq, batch, 7]) {
            (x * one_hot::<d>(ids), permute::<[seq, batch, 7]>(one_hot::<7>(ids)) + sum::<[batch, seq, d]>(x))
        }
    } (x: floats[_, _, 5], ids: ids[_, _]);

    sums_by_id {
        struct M<n = 5, d = 4>;
        fn forward(x: [batch, seq, d], ids: ids[batch, seq]) -> ([batch, n, d], [n, d]) {
            (scatter_add::<[batch, n, d]>(x * x, ids), scatter_add::<[n, d]>(x, ids))
        }
    } (x: floats[_, _, 4], ids: ids[_, _]);

    sums_of_numbers_by_id {
        struct M<n = 4>;
        fn forward(x: [seq, batch], ids: ids[batch, seq]) -> ([n], [batch, n]) {
            (scatter_add::<n>(x, ids), scatter_add::<[batch, n]>(x, ids))
        }
    } (x: floats[_, _], ids: ids[_, _]);

    sums_along_an_axis_that_is_there {
        struct M<d = 5>;
        fn forward(x: [batch, seq, d], turned: ids[batch, seq]) -> ([batch, seq, d], [batch, seq, d]) {
            let (values, order) = top_k::<k = 3>(x);
            let back = scatter_add::<[batch, seq, d], axis = d>(2 * values, order);
            (back * x, scatter_add::<[batch, seq, d], axis = seq>(x, turned))
        }
    } (x: floats[_, _, 5], turned: ids[_, _]);

    sums_up_to_each_place {
        struct M<d = 5>;
        fn forward(x: [batch, seq, d]) -> ([batch, seq, d], [batch, seq, d]) {
            let y = tanh(x);
            (cumsum::<batch>(x) * cumsum::<seq>(y), cumsum::<d>(y) - x * cumsum(1 - x))
        }
    } (x: floats[_, _, 5]);

    vectors_of_length_1 {
        struct M<d = 5>;
        fn forward(x: [batch, seq, d]) -> ([batch, seq, d], [batch, seq, d]) {
            let y = 0.2 * tanh(x);
            let short = l2_norm::<d, epsilon = 0.2>(y) * l2_norm::<batch, epsilon = 1.5>(x);
            (l2_norm::<batch>(x) * l2_norm::<seq>(y), l2_norm::<seq, epsilon = 0.3>(y) + short)
        }
    } (x: floats[_, _, 5]);

    of_one_number {
        struct M<d = 1>;
        fn forward(x: [batch, seq, d], zeros: ids[batch, seq]) -> ([batch, seq, d], [batch, d]) {
            let (values, ids) = top_k::<k = 1>(x);
            let y = values * one_hot::<d>(argmax::<d>(x)) + scatter_add::<[batch, seq, d], axis = seq>(x, zeros);
            ((cumsum::<seq>(x) + y) * x[d = ids], x[batch = 0, seq = 0] + x[seq = 0])
        }
    } (x: floats[_, _, 1], zeros: ids[_, _]);

    of_nothing {
        struct M<vocab = 5, d = 4>;
        fn forward(x: [batch, seq, d], ids: ids[batch, seq]) -> ([batch, vocab, d], [d]) {
            param table: [vocab, d] = normal(1.0);
            let (values, best) = top_k::<k = 2>(x * table[ids]);
            let sums = scatter_add::<[batch, vocab, d]>(cumsum::<seq>(x) + l2_norm::<seq>(x), ids);
            let none = sum::<seq>(table[arange::<seq>()]) + sum::<[batch, seq, 2]>(values);
            (sums + table + sum::<[batch, seq, 2]>(one_hot::<d>(best)), none)
        }
    } (x: floats[_, _, 4], ids: ids[_, _]);
}
