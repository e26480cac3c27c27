//! The built-in masks, score modifications and normalizers of a score alone, each a definition in the language.

use super::{Binary, Data, Expr, Unary, Var};
use crate::spec::grid::GridAxis;
use crate::spec::{Align, Atom, Grid, MaskExpr, Real, Size};

fn q_idx() -> Expr {
    Var::QIdx.into()
}

fn kv_idx() -> Expr {
    Var::KvIdx.into()
}

/// The predicate of a mask: `true` where a query attends. Without a grid, its words about places hold everywhere.
pub(crate) fn mask(mask: &MaskExpr, grid: Option<&Grid>) -> Expr {
    let of = |mask| self::mask(mask, grid);
    match mask {
        MaskExpr::Atom(word) => match grid.filter(|_| word.reads_grid()) {
            Some(grid) => on_grid(word, grid),
            None => atom(word),
        },
        MaskExpr::Not(a) => !of(a),
        MaskExpr::And(a, b) => of(a) & of(b),
        MaskExpr::Or(a, b) => of(a) | of(b),
    }
}

/// A word that compares places on a grid. Those before the grid see everything, and are seen.
fn on_grid(atom: &Atom, grid: &Grid) -> Expr {
    let along = |axis| place_along(atom, grid, axis);
    let axes = grid.axes().iter().copied();
    let inside = axes.filter_map(along).reduce(|a, b| a & b);
    let inside = inside.unwrap_or(Expr::Bool(true));
    match grid.outside() {
        Some(outside) => outside | inside,
        None => inside,
    }
}

/// Where a query attends along an axis. `None` if the word says nothing of this axis.
fn place_along(atom: &Atom, grid: &Grid, axis: GridAxis) -> Option<Expr> {
    let [query, key] = [Var::QIdx, Var::KvIdx].map(|of| grid.along(of, axis));
    let [query, key] = [query?, key?];
    let n = atom.extent(axis);
    let same = |of: GridAxis| (of == axis).then(|| query.clone().equals(key.clone()));
    match atom.name() {
        "neighborhood" => {
            let keys = grid.keys_along(axis)?;
            Some(neighborhood(query, key, &n, &atom.size("dilation"), keys))
        }
        "local" => Some(local(query, key, &n, &atom.size("dilation"))),
        "window" => Some(window(query, key, &n, &atom.size("shift"))),
        "same_frame" => same(GridAxis::Frame),
        "same_row" => same(GridAxis::Row),
        _ => same(GridAxis::Col),
    }
}

/// The `n` keys around a query, or around the nearest one of which all are among the `keys`. With a dilation the places with one
/// remainder are an axis of their own (Hassani & Shi 2022).
fn neighborhood(query: Expr, key: Expr, n: &Size, dilation: &Size, keys: &Size) -> Expr {
    let among = |query: Expr, key: Expr, keys: Expr| {
        let first = (query - Expr::from(n) / 2).min(keys - n).max(0);
        first.clone().at_most(key.clone()) & (key - first).less(n)
    };
    if dilation.value == Some(1) {
        return among(query, key, keys.into());
    }
    let rest = query.clone() % dilation;
    let same = rest.clone().equals(key.clone() % dilation);
    let keys = (Expr::from(keys) - 1 - rest) / dilation + 1;
    same & among(query / dilation, key / dilation, keys)
}

/// The `n` keys around a query, as far as there are any.
fn local(query: Expr, key: Expr, n: &Size, dilation: &Size) -> Expr {
    let back = query - key;
    let [before, all] = [Expr::from(n) / 2, Expr::from(n)];
    let behind = all - before.clone();
    if dilation.value == Some(1) {
        return back.clone().at_most(before) & (Expr::from(0) - back).less(behind);
    }
    let every = (back.clone() % dilation).equals(0);
    let near = back.clone().at_most(before * dilation);
    every & near & (Expr::from(0) - back).less(behind * dilation)
}

/// The keys in the window of a query. The first window has `shift` places.
fn window(query: Expr, key: Expr, n: &Size, shift: &Size) -> Expr {
    let of = |place: Expr| match shift.value {
        Some(0) => place / n,
        _ => (place + (Expr::from(n) - shift)) / n,
    };
    of(query).equals(of(key))
}

fn atom(atom: &Atom) -> Expr {
    let align = atom.align().unwrap_or(Align::UpperLeft);
    match atom.name() {
        "causal" => causal(align),
        "sliding_window" => sliding_window(&atom.size("n"), align, atom.is_symmetric()),
        "dilated_sliding_window" => {
            let n = atom.size("n");
            let dilation = atom.size("dilation");
            dilated_sliding_window(&n, &dilation, align, atom.is_symmetric())
        }
        "prefix_lm" => causal(align) | kv_idx().less(&atom.size("n")),
        "chunked" => chunked(&atom.size("n"), align),
        "padding" => Expr::Data {
            data: Data::Padding,
            index: vec![Var::B.into(), q_idx(), kv_idx()],
        },
        "document" => document(),
        _ => Expr::Bool(true),
    }
}

/// The position of a query among the keys.
fn position(align: Align) -> Expr {
    match align {
        Align::UpperLeft => q_idx(),
        Align::LowerRight => q_idx() + Var::KvLen - Var::QLen,
    }
}

/// A query attends to the keys up to its own position.
pub(crate) fn causal(align: Align) -> Expr {
    kv_idx().at_most(position(align))
}

fn sliding_window(n: &Size, align: Align, symmetric: bool) -> Expr {
    let distance = position(align) - kv_idx();
    if symmetric {
        distance.abs().less(n)
    } else {
        causal(align) & distance.less(n)
    }
}

fn dilated_sliding_window(n: &Size, dilation: &Size, align: Align, symmetric: bool) -> Expr {
    let reach = n.times(dilation);
    let distance = position(align) - kv_idx();
    let distance = if symmetric { distance.abs() } else { distance };
    let on_grid = (distance % dilation).equals(0);
    sliding_window(&reach, align, symmetric) & on_grid
}

fn chunked(n: &Size, align: Align) -> Expr {
    let same = (position(align) / n).equals(kv_idx() / n);
    match align {
        Align::UpperLeft => same,
        // Division rounds towards zero: a query before the first key is not in the first chunk.
        Align::LowerRight => Expr::from(0).at_most(position(align)) & same,
    }
}

fn document() -> Expr {
    let query = Expr::Data {
        data: Data::QueryDocument,
        index: vec![Var::B.into(), q_idx()],
    };
    let key = Expr::Data {
        data: Data::KeyDocument,
        index: vec![Var::B.into(), kv_idx()],
    };
    query.equals(key)
}

/// `score * scale`
pub(crate) fn scale(score: Expr, scale: &Real) -> Expr {
    score * Expr::Float(scale.clone())
}

/// `cap * tanh(score / cap)` (Gemma 2).
pub(crate) fn softcap(score: Expr, cap: &Real) -> Expr {
    let cap = Expr::Float(cap.clone());
    (score / cap.clone()).unary(Unary::Tanh) * cap
}

/// `score - slope(h) * |q_idx - kv_idx|` (Press et al. 2022). On the keys a causal mask keeps, the distance is the paper's.
pub(crate) fn alibi(score: Expr, heads: &Size) -> Expr {
    sloped(score, alibi_slope(heads))
}

fn sloped(score: Expr, slope: Expr) -> Expr {
    score - slope * (q_idx() - kv_idx()).abs().to_float()
}

/// `1 / (1 + exp(-score))` (Ramapuram et al. 2024, without the bias).
pub(crate) fn sigmoid() -> Expr {
    Expr::SCORE.unary(Unary::Sigmoid)
}

/// `max(score, 0)^power` (Wortsman et al. 2023, without the division by the length). As in PyTorch, the derivative at 0 is 0.
pub(crate) fn relu(power: &Real) -> Expr {
    let positive = match power.value {
        Some(1.0) => Expr::SCORE,
        _ => Expr::SCORE.binary(Binary::Pow, Expr::Float(power.clone())),
    };
    let zero = || Expr::float(0.0);
    zero().less(Expr::SCORE).select(positive, zero())
}

/// The paper's slopes: with `m` the power of two at or below `heads`, the geometric sequence `2^(-8 i / m)` for the first `m`
/// heads, and every second element of the sequence for `2 m` heads for the rest.
fn alibi_slope(heads: &Size) -> Expr {
    let m = heads.power_of_two_below();
    let head = Expr::Var(Var::H);
    let power =
        |exponent: Expr| (exponent * Expr::float(-std::f64::consts::LN_2)).unary(Unary::Exp);
    let eighths =
        |index: Expr, count: &Expr| power(Expr::float(8.0) * index.to_float() / count.to_float());
    let first = eighths(head.clone() + 1, &Expr::from(&m));
    if heads.value.is_some() && heads.value == m.value {
        return first;
    }
    let odd = (head.clone() - &m) * 2 + 1;
    let rest = eighths(odd, &(Expr::from(&m) * 2));
    head.less(&m).select(first, rest)
}

/// `score + rel_pos_bias[bucket, h]` (Raffel et al. 2020).
pub(crate) fn rel_pos_bias(
    score: Expr,
    num_buckets: &Size,
    max_distance: &Size,
    one_sided: bool,
) -> Expr {
    biased(score, t5_bucket(num_buckets, max_distance, one_sided))
}

fn biased(score: Expr, bucket: Expr) -> Expr {
    let index = vec![bucket, Var::H.into()];
    score + element("rel_pos_bias", index)
}

fn element(name: &'static str, index: Vec<Expr>) -> Expr {
    let name = name.into();
    Expr::Param { name, index }
}

/// [`alibi`] for documentation, with the slope as a name.
pub(crate) fn alibi_in_short(score: Expr) -> Expr {
    sloped(score, element("slope", vec![Var::H.into()]))
}

/// [`rel_pos_bias`] for documentation, with the bucket as a name.
pub(crate) fn rel_pos_bias_in_short(score: Expr) -> Expr {
    biased(score, element("bucket", vec![q_idx() - kv_idx()]))
}

/// For documentation: the function of the score for the key or word of this name, with its numbers as names.
pub(crate) fn of_score(name: &str) -> Option<Expr> {
    let number = |name| {
        syn::parse_str(name)
            .ok()
            .and_then(|expr| Real::from_expr(&expr))
    };
    Some(match name {
        "scale" => scale(Expr::SCORE, &number(name)?),
        "softcap" => softcap(Expr::SCORE, &number(name)?),
        "alibi" => alibi_in_short(Expr::SCORE),
        "rel_pos_bias" => rel_pos_bias_in_short(Expr::SCORE),
        "sigmoid" => sigmoid(),
        "relu" => relu(&number("power")?),
        _ => return None,
    })
}

/// T5's buckets: one for each small distance, then logarithmically wider ones up to `max_distance`. Unless they are one-sided,
/// the upper half of the buckets is for keys after the query.
fn t5_bucket(num_buckets: &Size, max_distance: &Size, one_sided: bool) -> Expr {
    let back = q_idx() - kv_idx();
    if one_sided {
        return one_sided_bucket(back.max(0), Expr::from(num_buckets), max_distance);
    }
    let half = Expr::from(num_buckets) / 2;
    let ahead = q_idx().less(kv_idx());
    let bucket = one_sided_bucket(back.abs(), half.clone(), max_distance);
    ahead.select(half, 0) + bucket
}

fn one_sided_bucket(distance: Expr, buckets: Expr, max_distance: &Size) -> Expr {
    let exact = buckets.clone() / 2;
    let ln_of = |a: Expr, b: &Expr| (a.to_float() / b.to_float()).unary(Unary::Ln);
    let wide = buckets.clone() - exact.clone();
    let share = ln_of(distance.clone().max(1), &exact) / ln_of(Expr::from(max_distance), &exact);
    let logarithmic = exact.clone() + (share * wide.to_float()).unary(Unary::ToInt);
    let logarithmic = logarithmic.min(buckets - 1);
    distance.clone().less(exact).select(distance, logarithmic)
}
