//! Verdicts on masks against every query of small calls, and all data of the smallest ones.

use proptest::prelude::*;
use proptest::sample::select;

use crate::score::eval::{Inputs, Point, Value, holds};
use crate::score::prove::{Claim, Counterexample, QueryPoint, Subject, Truths, Verdict};
use crate::score::{Binary, Data, Expr, Type, Var, builtin};
use crate::spec::{Align, Size};
use crate::tests::random::formula::formulas;
use crate::tests::support::{build, cases};

const HEADS: i64 = 2;

/// The data of a call.
#[derive(Clone, Debug)]
struct Call {
    /// `[key]`
    valid: Vec<bool>,
    /// `[query]`
    documents: Vec<i64>,
    /// `[key]`
    key_documents: Vec<i64>,
}

impl Inputs for Call {
    fn param(&self, name: &str, _: &[i64]) -> f64 {
        panic!("a mask reads {name}")
    }

    fn data(&self, data: &Data, index: &[i64]) -> Option<Value> {
        let last = index[index.len() - 1] as usize;
        Some(match data {
            Data::Padding => Value::Bool(self.valid[last]),
            Data::QueryDocument => Value::Int(self.documents[last]),
            Data::KeyDocument => Value::Int(self.key_documents[last]),
            // In self-attention, a body may declare them.
            Data::Declared { .. } => Value::Int(self.documents[last]),
        })
    }
}

fn attends(mask: &Expr, place: QueryPoint, kv_idx: i64, call: &Call) -> Option<bool> {
    let QueryPoint {
        b,
        h,
        q_idx,
        q_len,
        kv_len,
    } = place;
    let point = Point {
        b,
        h,
        q_idx,
        kv_idx,
        q_len,
        kv_len,
        score: 0.0,
        inputs: call,
    };
    holds(mask, &point)
}

/// The lengths of calls without data, and of calls for which all data are tried.
fn lengths(cross: bool, longest: i64) -> impl Iterator<Item = (i64, i64)> {
    let pairs = (1..=longest).flat_map(move |q| (1..=longest).map(move |k| (q, k)));
    pairs.filter(move |(q, k)| cross || q == k)
}

/// Lists of `len` numbers below `end`.
fn lists(len: i64, end: i64) -> impl Iterator<Item = Vec<i64>> {
    let count = end.pow(len as u32);
    (0..count).map(move |code| {
        (0..len)
            .map(|digit| code / end.pow(digit as u32) % end)
            .collect()
    })
}

/// Every call with these lengths. Documents that differ only in their ids count once.
fn calls(cross: bool, (q_len, kv_len): (i64, i64), has_data: bool) -> Vec<Call> {
    if !has_data {
        let [queries, keys] = [q_len, kv_len].map(|len| vec![0; len as usize]);
        return vec![Call {
            valid: vec![true; keys.len()],
            documents: queries,
            key_documents: keys,
        }];
    }
    let mut calls = Vec::new();
    for valid in lists(kv_len, 2) {
        for key_documents in lists(kv_len, 2) {
            for documents in lists(q_len, 2) {
                if cross || documents == key_documents {
                    calls.push(Call {
                        valid: valid.iter().map(|valid| *valid == 1).collect(),
                        documents,
                        key_documents: key_documents.clone(),
                    });
                }
            }
        }
    }
    calls
}

fn places((q_len, kv_len): (i64, i64)) -> impl Iterator<Item = QueryPoint> {
    (0..2 * HEADS * q_len).map(move |index| QueryPoint {
        b: index % 2,
        h: index / 2 % HEADS,
        q_idx: index / 2 / HEADS,
        q_len,
        kv_len,
    })
}

/// Whether the claim fails for this query.
fn fails(claim: &Claim, mask: &Expr, place: QueryPoint, call: &Call) -> bool {
    let mut keys = 0..place.kv_len;
    match claim {
        Claim::Within(_) => keys.any(|kv_idx| fails_at(claim, mask, place, kv_idx, call)),
        Claim::EveryQueryAttends => keys.all(|kv_idx| fails_at(claim, mask, place, kv_idx, call)),
    }
}

/// Whether the claim fails for this pair, or would fail if every other key were like it. Where the mask has no value because it
/// divides by 0, the claim does not fail.
fn fails_at(claim: &Claim, mask: &Expr, place: QueryPoint, kv_idx: i64, call: &Call) -> bool {
    let shown = attends(mask, place, kv_idx, call);
    match claim {
        Claim::Within(bound) => {
            shown == Some(true) && attends(bound, place, kv_idx, call) == Some(false)
        }
        Claim::EveryQueryAttends => shown == Some(false),
    }
}

/// The call of a counterexample, if it has one.
fn told(counterexample: &Counterexample, mask: &Expr, cross: bool) -> Option<Call> {
    let QueryPoint {
        q_idx,
        q_len,
        kv_len,
        ..
    } = counterexample.place;
    let Truths {
        padding,
        document,
        ids,
    } = counterexample.data.clone()?;
    let call = |foreign| {
        let mut key_documents = vec![foreign; kv_len as usize];
        let mut documents = vec![0; q_len as usize];
        if !cross {
            key_documents[q_idx as usize] = 0;
            documents = key_documents.clone();
        }
        Call {
            valid: vec![padding; kv_len as usize],
            documents,
            key_documents,
        }
    };
    let Some(ids) = ids.first() else {
        return Some(call(i64::from(!document)));
    };
    // An id of the other keys for which the comparison has the stated value.
    let other = counterexample.kv_idx.unwrap_or(i64::from(q_idx == 0));
    let mut calls = [0, 1, -1].map(call).into_iter();
    let is_told = |call: &Call| {
        let is_it = |part: &Expr| {
            *part == ids.expr && attends(part, counterexample.place, other, call) == Some(ids.holds)
        };
        other >= kv_len || mask.any(&is_it)
    };
    Some(calls.find(is_told).expect("ids that compare as told"))
}

/// Checks every claim. Returns whether it was decided.
fn check(mask: &Expr, cross: bool) -> Result<bool, TestCaseError> {
    let heads = Size::known(HEADS as u64);
    let subject = Subject {
        mask,
        cross,
        heads: &heads,
        positive: Vec::new(),
    };
    let window = |align| {
        let distance = Expr::from(Var::QIdx) - Var::KvIdx;
        builtin::causal(align) & distance.less(3)
    };
    let mut claims = vec![
        Claim::EveryQueryAttends,
        Claim::Within(window(Align::UpperLeft)),
    ];
    claims.extend(
        [Align::UpperLeft, Align::LowerRight]
            .map(builtin::causal)
            .map(Claim::Within),
    );
    let mut decided = true;
    for claim in claims {
        match subject.decide(&claim) {
            Verdict::Unknown | Verdict::GaveUp => decided = false,
            Verdict::Proved => {
                let counterexample = brute_force(&claim, mask, cross);
                prop_assert!(
                    counterexample.is_none(),
                    "{mask}, cross: {cross}: {claim:?}, but {counterexample:?}"
                );
            }
            Verdict::Refuted(found) => {
                let fails = |call: &Call| match found.kv_idx {
                    Some(kv_idx) => fails_at(&claim, mask, found.place, kv_idx, call),
                    None => fails(&claim, mask, found.place, call),
                };
                let lengths = (found.place.q_len, found.place.kv_len);
                let failed = match told(&found, mask, cross) {
                    Some(call) => fails(&call),
                    None => calls(cross, lengths, true).iter().any(fails),
                };
                prop_assert!(failed, "{mask}, cross: {cross}: {claim:?}, {found:?}");
            }
        }
    }
    Ok(decided)
}

fn brute_force(claim: &Claim, mask: &Expr, cross: bool) -> Option<(QueryPoint, Call)> {
    let has_data = mask.any(&|part| matches!(part, Expr::Data { .. }));
    let longest = match (has_data, cross) {
        (false, _) => 10,
        (true, false) => 5,
        (true, true) => 3,
    };
    lengths(cross, longest).find_map(|lengths| {
        let calls = calls(cross, lengths, has_data);
        calls.into_iter().find_map(|call| {
            let mut places = places(lengths);
            let place = places.find(|place| fails(claim, mask, *place, &call));
            place.map(|place| (place, call))
        })
    })
}

/// Conditions of the language on indices and lengths.
fn predicates() -> impl Strategy<Value = Expr> {
    let vars = [
        Var::B,
        Var::H,
        Var::QIdx,
        Var::KvIdx,
        Var::QIdx,
        Var::KvIdx,
        Var::QLen,
        Var::KvLen,
    ];
    let leaf = prop_oneof![
        3 => select(vars.to_vec()).prop_map(Expr::from),
        1 => (0..6_u64).prop_map(Expr::from),
    ];
    let integer = leaf.prop_recursive(3, 6, 3, |inner| {
        let pair = || (inner.clone(), inner.clone());
        let operation = select(
            &[
                Binary::Add,
                Binary::Sub,
                Binary::Sub,
                Binary::Mul,
                Binary::Div,
                Binary::Rem,
                Binary::Min,
                Binary::Max,
            ][..],
        );
        prop_oneof![
            4 => (operation, pair()).prop_map(|(op, (a, b))| a.binary(op, b)),
            1 => inner.clone().prop_map(Expr::abs),
            1 => (pair(), pair()).prop_map(|((a, b), (x, y))| a.less(b).select(x, y)),
        ]
    });
    let comparison = select(&[Binary::Eq, Binary::Lt, Binary::Le][..]);
    let comparison = (comparison, integer.clone(), integer).prop_map(|(op, a, b)| a.binary(op, b));
    comparison.prop_recursive(3, 6, 3, |inner| {
        let pair = || (inner.clone(), inner.clone());
        prop_oneof![
            pair().prop_map(|(a, b)| a & b),
            pair().prop_map(|(a, b)| a | b),
            inner.clone().prop_map(|a| !a),
            (inner.clone(), pair()).prop_map(|(condition, (a, b))| condition.select(a, b)),
        ]
    })
}

/// The mask with this text.
fn predicate(text: &str, cross: bool) -> Expr {
    let context = if cross { "d_context = 4, " } else { "" };
    let source = format!("struct L<heads = 2, d_model = 4, {context}mask = {text}>;");
    builtin::mask(&build(&source).0.mask, None)
}

/// `ids[b, q_idx] op ids[b, kv_idx]`, for declared ids.
fn comparison(op: Binary) -> Expr {
    let id = |index: Var| Expr::Data {
        data: Data::Declared {
            name: "ids".into(),
            ty: Type::Int,
        },
        index: vec![Var::B.into(), index.into()],
    };
    id(Var::QIdx).binary(op, id(Var::KvIdx))
}

#[test]
fn claims_on_ids_of_a_body_are_decided() {
    for op in [Binary::Eq, Binary::Lt, Binary::Le] {
        for text in [
            "none",
            "causal",
            "sliding_window(2)",
            "padding",
            "chunked(2) & padding",
        ] {
            let ids = || comparison(op);
            let other = predicate(text, false);
            let first = Expr::from(Var::KvIdx).equals(0);
            let masks = [
                ids() & other.clone(),
                ids() | other.clone(),
                !ids() & other.clone(),
                !ids() | other.clone(),
                ids().select(other.clone(), first.clone()),
                (ids() | first) & other,
            ];
            for mask in masks {
                assert!(check(&mask, false).expect("true verdicts"), "{mask}");
            }
        }
    }
}

#[test]
fn a_token_has_the_id_that_it_has() {
    let heads = Size::known(1);
    let claim = Claim::EveryQueryAttends;
    let decide = |mask: &Expr, cross| {
        let positive = Vec::new();
        let heads = &heads;
        Subject {
            mask,
            cross,
            heads,
            positive,
        }
        .decide(&claim)
    };
    let causal = builtin::causal(Align::UpperLeft);
    for (op, holds) in [(Binary::Eq, true), (Binary::Le, true), (Binary::Lt, false)] {
        let verdict = decide(&(comparison(op) & causal.clone()), false);
        assert_eq!(verdict == Verdict::Proved, holds, "{op:?}: {verdict:?}");
        // In cross-attention the ids are of two sequences.
        assert_eq!(decide(&comparison(op), true), Verdict::Unknown);
    }
    // Ids in two different comparisons are not free: the combination that hides everything may be impossible.
    let two_ways = !comparison(Binary::Le) & comparison(Binary::Eq) | !comparison(Binary::Lt);
    assert_eq!(decide(&two_ways, false), Verdict::Unknown);
}

proptest! {
    #![proptest_config(cases(250))]

    /// Three or more periods may take more steps than the budget. The verdict on those is either correct or unknown.
    #[test]
    fn claims_on_built_in_masks_are_decided(
        self_attention in formulas(false, true),
        cross_attention in formulas(true, true),
    ) {
        for (formula, cross) in [(self_attention, false), (cross_attention, true)] {
            let text = formula.to_string();
            let decided = check(&predicate(&text, cross), cross)?;
            prop_assert!(decided || formula.periods().len() > 2, "{text}");
        }
    }

    #[test]
    fn claims_on_predicates_are_never_decided_wrongly(mask in predicates(), cross in any::<bool>()) {
        check(&mask, cross)?;
    }
}
