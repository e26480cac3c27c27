//! Layers with data of the call: `padding` in each form, `document`, and the data of bodies.

use attn::data::LengthsPerQuery;
use support::agreement::{agree, agree_across, agree_beyond_a_tile};

tests! {
    agree_beyond_a_tile, |x, case| (x, case.lengths());

    padding_by_lengths [heads = 2, d_model = 8, mask = padding];
}

tests! {
    agree, |x, case| (x, case.lengths());

    padding_by_lengths_and_causal [heads = 4, kv_heads = 2, d_model = 8, mask = padding & causal];
    beyond_the_lengths [heads = 2, d_model = 8, mask = !padding];
    padding_or_a_window [heads = 2, d_model = 8, mask = padding | sliding_window(3)];
    padding_of_additive_scores [heads = 2, d_model = 8, mask = padding, score = additive(hidden = 3)];
    padding_under_softmax1 [heads = 2, d_model = 8, mask = padding, normalizer = softmax1];
    padding_under_sigmoid [heads = 2, d_model = 8, mask = padding, normalizer = sigmoid];
}

tests! {
    agree, |x, case| (x, LengthsPerQuery(case.lengths_per_query()));

    padding_by_lengths_per_query [heads = 2, d_model = 8, mask = padding];
    padding_by_lengths_per_query_and_chunked [heads = 2, d_model = 8, mask = padding & chunked(30), position = alibi];
}

tests! {
    agree, |x, case| (x, case.marks());

    padding_by_marks [heads = 2, d_model = 8, mask = padding];
    padding_by_marks_and_causal [heads = 2, d_model = 8, mask = causal & padding, position = rope];
    unmarked [heads = 2, d_model = 8, mask = !padding & sliding_window(40, symmetric)];
}

tests! {
    agree_beyond_a_tile, |x, case| (x, case.documents());

    document [heads = 2, d_model = 8, mask = document];
}

tests! {
    agree, |x, case| (x, case.documents());

    document_and_causal [heads = 2, d_model = 8, mask = document & causal];
    other_documents [heads = 2, d_model = 8, mask = !document];
    document_or_prefix [heads = 2, d_model = 8, mask = document | prefix_lm(2), normalizer = softmax1];
}

tests! {
    agree, |x, case| (x, case.documents());

    weights_by_the_ids_of_queries [heads = 2, d_model = 8, mask = causal] {
        data doc: ids[batch, q_len];
        fn normalize(score, b, q_idx) { sigmoid(score) / (1 + doc[b, q_idx]) as f32 }
    };
}

tests! {
    agree, |x, case| (x, case.lengths(), case.documents());

    document_and_padding [heads = 2, d_model = 8, mask = (document | sliding_window(2)) & padding];
}

tests! {
    agree_across, |x, context, case| (x, context, case.lengths());

    padding_of_the_context_by_lengths [heads = 2, d_model = 8, d_context = 6, mask = padding];
    padding_of_the_context_and_causal [heads = 2, d_model = 8, d_context = 6, mask = padding & causal(lower_right)];
}

tests! {
    agree_across, |x, context, case| (x, context, LengthsPerQuery(case.lengths_per_query()));

    padding_of_the_context_by_lengths_per_query [heads = 2, d_model = 8, d_context = 6, mask = padding];
}

tests! {
    agree_across, |x, context, case| (x, context, case.marks());

    padding_of_the_context_by_marks [heads = 2, d_model = 8, d_context = 6, mask = padding];
}

tests! {
    agree_across, |x, context, case| (x, context, (case.documents(), case.key_documents()));

    documents_of_two_sequences [heads = 2, d_model = 8, d_context = 6, mask = document];
    documents_of_two_sequences_and_causal [heads = 2, d_model = 8, d_context = 6, mask = document & causal(upper_left)];
}

tests! {
    agree_across, |x, context, case| (x, context, case.marks(), (case.documents(), case.key_documents()));

    documents_of_two_sequences_and_padding [heads = 2, d_model = 8, d_context = 6, mask = !(document | padding)];
}

tests! {
    agree_beyond_a_tile, |x, case| (x, case.documents());

    ids_of_a_body [heads = 2, d_model = 8, mask = causal] {
        data doc: ids[batch, q_len];
        fn mask(b, q_idx, kv_idx) { doc[b, q_idx] == doc[b, kv_idx] }
    };
}

tests! {
    agree_beyond_a_tile, |x, case| (x, case.marks());

    marks_of_a_body [heads = 2, d_model = 8, mask = causal] {
        data keep: bool[batch, kv_len];
        fn mask(b, kv_idx) { keep[b, kv_idx] }
        fn score(score, b, q_idx) { if keep[b, q_idx] && score > 0.1 { score } else { 0.5 * score } }
    };
}

tests! {
    agree_beyond_a_tile, |x, case| (x, case.relations());

    ids_of_pairs [heads = 2, d_model = 8] {
        data relation: ids[batch, q_len, kv_len];
        fn mask(b, q_idx, kv_idx) { relation[b, q_idx, kv_idx] < 3 || q_idx == kv_idx }
    };
    a_bias_of_pairs [heads = 2, d_model = 8, mask = causal] {
        param bias: [6, heads] = zeros;
        data relation: ids[batch, q_len, kv_len];
        fn score(score, b, h, q_idx, kv_idx) { score + bias[relation[b, q_idx, kv_idx], h] }
    };
}

// A key with the weight 0 has the score minus infinity; in one sequence all keys have.
tests! {
    agree, |x, case| (x, case.counts::<E>());

    counted_keys [heads = 2, d_model = 8] {
        data count: [batch, kv_len];
        fn score(score, b, kv_idx) { score + ln(count[b, kv_idx]) }
    };
    counted_keys_before [heads = 2, d_model = 8, mask = causal, dropout = 0.3] {
        data count: [batch, kv_len];
        fn score(score, b, kv_idx) { score + ln(count[b, kv_idx]) }
    };
    counted_keys_under_softmax1 [heads = 2, d_model = 8, normalizer = softmax1] {
        data count: [batch, kv_len];
        fn score(score, b, kv_idx) { score + ln(count[b, kv_idx]) }
    };
    counted_keys_and_sinks [heads = 2, d_model = 8, normalizer = sink] {
        data count: [batch, kv_len];
        fn score(score, b, kv_idx) { score + ln(count[b, kv_idx]) }
    };
    counted_keys_under_sparsemax [heads = 2, d_model = 8, normalizer = sparsemax] {
        data count: [batch, kv_len];
        fn score(score, b, kv_idx) { score + ln(count[b, kv_idx]) }
    };
    counted_keys_under_entmax15 [heads = 2, d_model = 8, normalizer = entmax15] {
        data count: [batch, kv_len];
        fn score(score, b, kv_idx) { score + ln(count[b, kv_idx]) }
    };
    counted_keys_under_sigmoid [heads = 2, d_model = 8, normalizer = sigmoid] {
        data count: [batch, kv_len];
        fn score(score, b, kv_idx) { score + ln(count[b, kv_idx]) }
    };
}

tests! {
    agree, |x, case| (x, case.lengths(), case.documents());

    a_scale_of_tokens_in_padding [heads = 4, d_model = 8, kv_heads = 2, mask = padding] {
        param scale: [10] = ones;
        data doc: ids[batch, kv_len];
        fn score(score, b, q_idx, kv_idx) { score * scale[doc[b, q_idx]] + scale[doc[b, kv_idx]] }
    };
}

tests! {
    agree_across, |x, context, case| (x, context, case.documents(), case.key_documents());

    ids_of_two_sequences [heads = 2, d_model = 8, d_context = 6] {
        data doc: ids[batch, q_len];
        data key_doc: ids[batch, kv_len];
        fn score(score, b, q_idx, kv_idx) { score / (1 + abs(doc[b, q_idx] - key_doc[b, kv_idx])) as f32 }
        fn mask(b, q_idx, kv_idx) { doc[b, q_idx] <= key_doc[b, kv_idx] }
    };
}
