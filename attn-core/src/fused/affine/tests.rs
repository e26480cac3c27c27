use super::*;

/// Whether the expression is exact on small zones, the expression of a pair, and that of a zone.
type Case = (
    bool,
    fn(i64, i64) -> i64,
    for<'z> fn(Affine<'z>, Affine<'z>) -> Affine<'z>,
);

fn n<'z>(of: Affine<'z>, value: i64) -> Affine<'z> {
    of.zone().number(value)
}

const CASES: [Case; 16] = [
    (true, |q, k| q - k, |q, k| q - k),
    (
        true,
        |q, k| 3 * (k - q) + 2,
        |q, k| n(q, 3) * (k - q) + n(q, 2),
    ),
    (true, |q, k| q - 2 - k - q, |q, k| q - n(q, 2) - k - q),
    (true, |q, k| (q - k).abs(), |q, k| (q - k).abs()),
    (true, |q, k| (q - 9).min(k), |q, k| (q - n(q, 9)).min(k)),
    (true, |q, k| q.max(k + 5), |q, k| q.max(k + n(k, 5))),
    (true, |q, _| q / 5, |q, _| q / n(q, 5)),
    (true, |q, k| (q - k) / 4, |q, k| (q - k) / n(q, 4)),
    (true, |q, k| (k - q) / -3, |q, k| (k - q) / n(q, -3)),
    (true, |q, k| (q - k) % 6, |q, k| (q - k) % n(q, 6)),
    (
        true,
        |q, _| (2 * q - 7) % -5,
        |q, _| (n(q, 2) * q - n(q, 7)) % n(q, -5),
    ),
    (
        true,
        |q, k| if q < k { q / 3 } else { -k },
        |q, k| q.less(k).select(q / n(q, 3), -k),
    ),
    (false, |q, k| q + 2 * k, |q, k| q + n(k, 2) * k),
    (false, |q, k| q * k, |q, k| q * k),
    (
        false,
        |q, k| 100 / (q + 1) - k,
        |q, k| n(q, 100) / (q + n(q, 1)) - k,
    ),
    (false, |q, k| q % (k + 1), |q, k| q % (k + n(k, 1))),
];

/// Small rectangles.
fn zones() -> impl Iterator<Item = Zone> {
    let ranges = [0..1, 3..4, 0..9, 5..17, 20..26];
    let pairs = ranges.clone().into_iter();
    pairs.flat_map(move |q| ranges.clone().map(|k| Zone::of(&q, &k)))
}

fn pairs(zone: &Zone) -> impl Iterator<Item = (i64, i64)> + Clone {
    let [q, k] = [Coordinate::Query, Coordinate::Key].map(|along| zone.range(along).ends());
    let back = zone.range(Coordinate::Back).ends();
    let pairs = (q.0..=q.1).flat_map(move |q| (k.0..=k.1).map(move |k| (q, k)));
    pairs.filter(move |(q, k)| (back.0..=back.1).contains(&(q - k)))
}

/// Splits a zone until the value suggests no cut.
fn pieces(zone: Zone, value: &Case, check: &mut impl FnMut(&Zone, Affine<'_>)) {
    let found = value.2(zone.q_idx(), zone.kv_idx());
    check(&zone, found);
    if let Some(cut) = found.halves() {
        for side in zone.sides(cut) {
            assert!(pairs(&side).next().is_some(), "{zone:?} {cut:?}");
            assert!(pairs(&side).count() < pairs(&zone).count());
            pieces(side, value, check);
        }
    }
}

#[test]
fn values_lie_between_their_bounds() {
    for (index, case) in CASES.iter().enumerate() {
        for zone in zones() {
            let mut smallest = 0;
            pieces(zone, case, &mut |zone, found| {
                let values = pairs(zone).map(|(q, k)| case.1(q, k));
                let (least, greatest) = found.bounds().ends();
                assert!(
                    values
                        .clone()
                        .all(|value| (least..=greatest).contains(&value)),
                    "case {index} {zone:?}: {found:?}"
                );
                if found.reaches_ends() {
                    let is = |end| values.clone().any(|value| value == end);
                    assert!(
                        is(least) && is(greatest),
                        "case {index} {zone:?}: {found:?}"
                    );
                }
                if found.halves().is_none() {
                    let is_known = !case.0 || found.only().is_some();
                    assert!(is_known, "case {index} {zone:?}: {found:?}");
                    smallest += pairs(zone).count();
                }
            });
            assert_eq!(smallest, pairs(&zone).count());
        }
    }
}

#[test]
fn comparisons_agree_with_all_pairs() {
    for (index, case) in CASES.iter().enumerate() {
        for zone in zones() {
            for bound in -9..9 {
                let value = case.2(zone.q_idx(), zone.kv_idx());
                let other = zone.number(bound);
                let found = [
                    value.less(other),
                    value.at_most(other),
                    value.equals(other),
                    other.less(value),
                ];
                let f: [fn(&i64, &i64) -> bool; 4] = [i64::lt, i64::le, i64::eq, |a, b| b < a];
                for (found, f) in found.into_iter().zip(f) {
                    let mut each = pairs(&zone).map(|(q, k)| f(&case.1(q, k), &bound));
                    let right = match found {
                        Truth::True => each.all(|holds| holds),
                        Truth::False => each.all(|holds| !holds),
                        Truth::Mixed(_) => {
                            each.clone().any(|holds| holds) && !each.all(|holds| holds)
                        }
                        Truth::Unknown(_) => true,
                    };
                    let can_be_cut = found.cut().is_none_or(|cut| {
                        let sides = zone.sides(cut);
                        sides.iter().all(|side| pairs(side).next().is_some())
                    });
                    let is_open = matches!(found, Truth::Mixed(None) | Truth::Unknown(None));
                    assert!(
                        can_be_cut && !(case.0 && is_open),
                        "case {index} {zone:?} {bound}: {found:?}"
                    );
                    assert!(right, "case {index} {zone:?} {bound}: {found:?}");
                }
            }
        }
    }
}

#[test]
fn overflowing_values_have_no_bounds() {
    let zone = Zone::of(&(0..2), &(0..2));
    let [huge, two] = [i64::MAX, 2].map(|value| zone.number(value));
    let q = zone.q_idx();
    for value in [
        huge + two,
        huge * two + q,
        q * huge * two,
        -(-huge - two),
        q / (q - q),
    ] {
        assert_eq!(value.bounds(), Interval::ANY);
    }
    // Ids of any size can be compared.
    assert_eq!(zone.number(i64::MIN).equals(huge), Truth::False);
    assert_eq!(huge.equals(huge), Truth::True);
}

#[test]
fn values_of_pairs_are_looked_up_once() {
    let zone = Zone::of(&(0..4), &(2..3));
    let found = Interval::between(0, 1);
    let b = zone.number(0);
    let q = zone.q_idx();
    let k = zone.kv_idx();
    let looked_up = |index: [Affine<'_>; 3]| Affine::looked_up(&zone, found, index).halves();
    assert!(looked_up([b, q, k]).is_some());
    assert!(looked_up([b, q, q - k]).is_none());
    assert!(looked_up([b, b, k]).is_none());
}
