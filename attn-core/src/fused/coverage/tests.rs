use std::{cell::Cell, ops::Range};

use dfdx::prelude::*;
use proptest::prelude::*;

use super::*;
use crate::data::{DocumentData, Documents, LengthsPerQuery, Padding, PaddingData};

const LEN: usize = 300;

/// A combination of masks, in the syntax of the macro.
#[derive(Clone, Debug)]
enum MaskExpr {
    Causal { offset: i64 },
    Window { offset: i64, n: i64 },
    Near { n: i64 },
    Grid { offset: i64, dilation: i64 },
    Prefix { n: i64 },
    Chunked { offset: i64, n: i64 },
    Document,
    Padding(usize),
    Not(Box<MaskExpr>),
    And(Box<MaskExpr>, Box<MaskExpr>),
    Or(Box<MaskExpr>, Box<MaskExpr>),
}

/// The data of a call.
#[derive(Debug)]
struct Call {
    document: DocumentData,
    /// A length, a length per query, and marks of keys.
    padding: [PaddingData; 3],
}

impl MaskExpr {
    fn attends(&self, call: &Call, q: i64, k: i64) -> bool {
        let back = |offset: &i64| q + offset - k;
        match self {
            MaskExpr::Causal { offset } => back(offset) >= 0,
            MaskExpr::Window { offset, n } => (0..*n).contains(&back(offset)),
            MaskExpr::Near { n } => back(&0).abs() < *n,
            MaskExpr::Grid { offset, dilation } => back(offset) % dilation == 0,
            MaskExpr::Prefix { n } => k < *n,
            MaskExpr::Chunked { offset, n } => q + offset >= 0 && (q + offset) / n == k / n,
            MaskExpr::Document => call.document.query_id(0, q) == call.document.key_id(0, k),
            MaskExpr::Padding(which) => call.padding[*which].attends(0, q, k),
            MaskExpr::Not(a) => !a.attends(call, q, k),
            MaskExpr::And(a, b) => a.attends(call, q, k) && b.attends(call, q, k),
            MaskExpr::Or(a, b) => a.attends(call, q, k) || b.attends(call, q, k),
        }
    }

    fn on(&self, call: &Call, at: &Zone) -> Truth {
        let b = at.number(0);
        let q = at.q_idx();
        let k = at.kv_idx();
        let back = |offset: &i64| q + at.number(*offset) - k;
        match self {
            MaskExpr::Causal { offset } => k.at_most(q + at.number(*offset)),
            MaskExpr::Window { offset, n } => {
                k.at_most(q + at.number(*offset)) & back(offset).less(at.number(*n))
            }
            MaskExpr::Near { n } => back(&0).abs().less(at.number(*n)),
            MaskExpr::Grid { offset, dilation } => {
                (back(offset) % at.number(*dilation)).equals(at.number(0))
            }
            MaskExpr::Prefix { n } => k.less(at.number(*n)),
            MaskExpr::Chunked { offset, n } => {
                let position = q + at.number(*offset);
                let n = at.number(*n);
                at.number(0).at_most(position) & (position / n).equals(k / n)
            }
            MaskExpr::Document => call
                .document
                .query_ids(b, q)
                .equals(call.document.key_ids(b, k)),
            MaskExpr::Padding(which) => call.padding[*which].attends_all(b, q, k),
            MaskExpr::Not(a) => !a.on(call, at),
            MaskExpr::And(a, b) => a.on(call, at) & b.on(call, at),
            MaskExpr::Or(a, b) => a.on(call, at) | b.on(call, at),
        }
    }
}

fn masks() -> impl Strategy<Value = MaskExpr> {
    let offset = || prop_oneof![Just(0), -60..60_i64];
    let atom = prop_oneof![
        offset().prop_map(|offset| MaskExpr::Causal { offset }),
        (offset(), 1..120_i64).prop_map(|(offset, n)| MaskExpr::Window { offset, n }),
        (1..120_i64).prop_map(|n| MaskExpr::Near { n }),
        (offset(), 1..80_i64).prop_map(|(offset, dilation)| MaskExpr::Grid { offset, dilation }),
        (1..200_i64).prop_map(|n| MaskExpr::Prefix { n }),
        (offset(), 1..90_i64).prop_map(|(offset, n)| MaskExpr::Chunked { offset, n }),
        Just(MaskExpr::Document),
        (0..3_usize).prop_map(MaskExpr::Padding),
    ];
    atom.prop_recursive(3, 6, 2, |part| {
        prop_oneof![
            part.clone().prop_map(|a| MaskExpr::Not(Box::new(a))),
            (part.clone(), part.clone()).prop_map(|(a, b)| MaskExpr::And(Box::new(a), Box::new(b))),
            (part.clone(), part).prop_map(|(a, b)| MaskExpr::Or(Box::new(a), Box::new(b))),
        ]
    })
}

/// Consecutive documents of different lengths, lengths and marks.
fn calls() -> impl Strategy<Value = Call> {
    let lengths = prop::collection::vec(1..80_usize, LEN);
    let keys = prop::collection::vec(prop::bool::weighted(0.9), LEN);
    (lengths, 0..=LEN, 0..40_usize, keys).prop_map(|(lengths, valid, step, keys)| {
        let ids = lengths.iter().enumerate();
        let ids = ids.flat_map(|(id, length)| std::iter::repeat_n(id, *length));
        let ids: Vec<_> = ids.take(LEN).collect();
        let per_query = (0..LEN).map(|q| (q / (step + 1) * 9) % (LEN + 1)).collect();
        let dev = Cpu::default();
        let sizes = (1, LEN, LEN);
        type Shape = (usize, usize);
        Call {
            document: Documents::<Shape, Cpu>::read(dev.tensor_from_vec(ids, (LEN,)), "", sizes)
                .unwrap(),
            padding: [
                Padding::<Shape, Cpu>::read(valid, "", sizes).unwrap(),
                Padding::<Shape, Cpu>::read(
                    LengthsPerQuery(dev.tensor_from_vec(per_query, (LEN,))),
                    "",
                    sizes,
                )
                .unwrap(),
                Padding::<Shape, Cpu>::read(dev.tensor_from_vec(keys, (LEN,)), "", sizes).unwrap(),
            ],
        }
    })
}

/// The coverage, computed from every pair.
fn of_pairs(mask: &MaskExpr, call: &Call, q: Range<usize>, k: Range<usize>) -> Coverage {
    let pairs = q.flat_map(|q| k.clone().map(move |k| (q as i64, k as i64)));
    let attends: Vec<_> = pairs.map(|(q, k)| mask.attends(call, q, k)).collect();
    match (attends.contains(&true), attends.contains(&false)) {
        (true, true) => Coverage::Partial,
        (true, false) => Coverage::Full,
        (false, _) => Coverage::Empty,
    }
}

#[test]
fn a_mask_is_evaluated_for_at_most_the_maximum_number_of_zones() {
    let asked = Cell::new(0);
    // Parity of the indices: known for two neighbours at a time.
    let nothing = |at: &Zone| {
        asked.set(asked.get() + 1);
        let is_even = (at.q_idx() % at.number(2)).equals(at.number(0));
        is_even & !is_even
    };
    assert_eq!(
        Zone::of(&(0..48), &(0..16)).coverage(&nothing),
        Coverage::Empty
    );
    asked.set(0);
    assert_eq!(
        Zone::of(&(0..999), &(0..16)).coverage(&nothing),
        Coverage::Partial
    );
    assert_eq!(asked.get(), MAX_ZONES);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn coverage_agrees_with_all_pairs(mask in masks(), call in calls().no_shrink()) {
        for q in (0..LEN).step_by(48) {
            for k in (0..LEN).step_by(16) {
                let q = q..LEN.min(q + 48);
                let k = k..LEN.min(k + 16);
                let found = Zone::of(&q, &k).coverage(&|at| mask.on(&call, at));
                prop_assert_eq!(found, of_pairs(&mask, &call, q.clone(), k.clone()), "{:?} {:?}", q, k);
            }
        }
    }
}
