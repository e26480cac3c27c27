//! Bounds of integers in every call, so that none overflows 64 bits, and none is out of bounds of a tensor.

use crate::score::eval::{self, Inputs, LARGEST_INTEGER, Point, Value};
use crate::score::{Binary, Data, Expr, Unary, Var};
use crate::spec::Size;

/// From the least to the greatest.
type Range = (i128, i128);

const LARGEST: i128 = LARGEST_INTEGER as i128;

/// Whether the integer `expr`, whose parts fit, fits into 64 bits.
pub(super) fn fits(expr: &Expr) -> bool {
    let (least, greatest) = range(expr, Most::of(LARGEST, None));
    i128::from(i64::MIN) <= least && greatest <= i128::from(i64::MAX)
}

/// A point of a call, and the value of an integer there.
pub(crate) struct Found {
    pub(crate) value: i64,
    /// The variables that it depends on, with their values.
    pub(crate) at: Vec<(Var, i64)>,
}

/// A point where `index` is out of bounds of an axis of `size` elements, if its bounds are constants. The call checks an index
/// that depends on lengths or data.
pub(super) fn outside(index: &Expr, size: u64, heads: &Size) -> Option<Found> {
    let [short, long] =
        [LARGEST, 2 * LARGEST].map(|length| range(index, Most::of(length, heads.value)));
    let is_inside = 0 <= short.0 && short.1 < i128::from(size);
    if is_inside || short != long {
        return None;
    }
    let is_outside = |value: i64| !u64::try_from(value).is_ok_and(|value| value < size);
    points(index, size, heads)?
        .into_iter()
        .take(MAX_POINTS)
        .find_map(|(at, inputs)| {
            let value_of = |var| {
                at.iter()
                    .find(|(of, _)| *of == var)
                    .map_or(0, |(_, value)| *value)
            };
            let point = Point {
                b: value_of(Var::B),
                h: value_of(Var::H),
                q_idx: value_of(Var::QIdx),
                kv_idx: value_of(Var::KvIdx),
                q_len: LONG + 1,
                kv_len: LONG + 1,
                score: 0.0,
                inputs: &inputs,
            };
            match eval::eval(index, &point)? {
                Value::Int(value) if is_outside(value) => Some(Found { value, at }),
                _ => None,
            }
        })
}

/// The maximum number of points that are tried. This is a search, not a proof.
const MAX_POINTS: usize = 20_000;
/// A sequence that is longer than any axis of a tensor.
const LONG: i64 = 1 << 21;

/// Data of which every id is this one.
#[derive(Clone, Copy, Debug)]
struct Same(i64);

impl Inputs for Same {
    fn param(&self, _: &str, _: &[i64]) -> f64 {
        f64::NAN
    }

    fn data(&self, data: &Data, _: &[i64]) -> Option<Value> {
        (data.ty() == crate::score::Type::Int).then_some(Value::Int(self.0))
    }
}

/// Points at which the bounds of `expr` are likely to be attained: around the numbers in it.
fn points(
    expr: &Expr,
    size: u64,
    heads: &Size,
) -> Option<impl IntoIterator<Item = (Vec<(Var, i64)>, Same)>> {
    let mut near = vec![0, 1, i64::try_from(size).ok()?, LONG];
    for number in numbers(expr) {
        near.extend([number - 1, number, number + 1]);
    }
    near.retain(|value| (0..=LONG).contains(value));
    near.sort_unstable();
    near.dedup();
    let of_heads: Vec<i64> = (0..i64::try_from(heads.value?.min(64)).ok()?).collect();
    let vars = [Var::H, Var::QIdx, Var::KvIdx, Var::B];
    let mut places: Vec<Vec<(Var, i64)>> = vec![Vec::new()];
    for var in vars.into_iter().filter(|var| expr.reads(*var)) {
        let values = if var == Var::H { &of_heads } else { &near };
        let longer = places.iter().flat_map(|place| {
            let with = move |value: &i64| [place.clone(), vec![(var, *value)]].concat();
            values.iter().map(with)
        });
        places = longer.take(MAX_POINTS).collect();
    }
    let ids = match expr.any(&|part| matches!(part, Expr::Data { .. })) {
        true => near,
        false => vec![0],
    };
    let with_ids = places.into_iter().flat_map(move |place| {
        let with = move |id: &i64| (place.clone(), Same(*id));
        ids.iter().map(with).collect::<Vec<_>>()
    });
    Some(with_ids)
}

/// The numbers in `expr`.
fn numbers(expr: &Expr) -> Vec<i64> {
    match expr {
        Expr::Int(size) => {
            let number = size.value.and_then(|value| i64::try_from(value).ok());
            number.into_iter().collect()
        }
        other => other.children().into_iter().flat_map(numbers).collect(),
    }
}

/// The bounds of the variables of a call.
#[derive(Clone, Copy)]
struct Most {
    /// Lengths, ids, and all other unknown integers.
    length: i128,
    /// The number of heads.
    heads: i128,
}

impl Most {
    fn of(length: i128, heads: Option<u64>) -> Self {
        Most {
            length,
            heads: heads.map_or(length, i128::from),
        }
    }
}

fn range(expr: &Expr, most: Most) -> Range {
    let length = most.length;
    match expr {
        Expr::Var(Var::QLen | Var::KvLen) => (0, length),
        Expr::Var(Var::H) => (0, most.heads - 1),
        Expr::Var(_) | Expr::Data { .. } => (0, length - 1),
        Expr::Int(size) => match size.value {
            Some(value) => (value.into(), value.into()),
            None => (0, length),
        },
        Expr::Unary(Unary::Abs, a) => {
            let (least, greatest) = range(a, most);
            (least.max(0), greatest.max(-least))
        }
        Expr::Binary(op, a, b) => binary(*op, range(a, most), range(b, most)),
        Expr::Select(_, a, b) => {
            let a = range(a, most);
            let b = range(b, most);
            around([a.0, a.1, b.0, b.1])
        }
        _ => (-length, length),
    }
}

fn binary(op: Binary, a: Range, b: Range) -> Range {
    let of_ends =
        |f: fn(i128, i128) -> i128| around([f(a.0, b.0), f(a.0, b.1), f(a.1, b.0), f(a.1, b.1)]);
    let largest = |range: Range| range.1.max(-range.0);
    match op {
        Binary::Add => of_ends(i128::saturating_add),
        Binary::Sub => of_ends(i128::saturating_sub),
        Binary::Mul => of_ends(i128::saturating_mul),
        Binary::Min => of_ends(i128::min),
        Binary::Max => of_ends(i128::max),
        Binary::Div if b.0 > 0 => of_ends(|a, b| a / b),
        // Its divisor is an integer other than 0.
        Binary::Div => (-largest(a), largest(a)),
        _ => {
            let most = largest(a).min(largest(b) - 1).max(0);
            (if a.0 < 0 { -most } else { 0 }, most)
        }
    }
}

fn around<const N: usize>(ends: [i128; N]) -> Range {
    let first = (ends[0], ends[0]);
    let ends = ends.into_iter();
    ends.fold(first, |(least, greatest), end| {
        (least.min(end), greatest.max(end))
    })
}
