//! The values that data of a call may have for a query and a key.
//!
//! Some conditions on data are free: for any of their values for a query and each of its keys, there is a call with these values.
//! Free are padding, whether both belong to one document, and a comparison of an id of the query with the same id of the key.
//! Other conditions may be true or false, without further knowledge.

use super::rewrite::{and, not, or, rewrite};
use crate::score::{Binary, Data, Expr, Type, Unary, Var};

/// Values of the free conditions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Truths {
    /// The key is valid for the query.
    pub(crate) padding: bool,
    /// Both belong to one document.
    pub(crate) document: bool,
    /// Comparisons of ids.
    pub(crate) ids: Vec<Comparison>,
}

/// `ids[b, q_idx] == ids[b, kv_idx]`, or `<` or `<=`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Comparison {
    pub(crate) expr: Expr,
    pub(crate) holds: bool,
    /// Its value for a query and the key at its own index.
    of_itself: bool,
}

impl Comparison {
    /// Whether it also has this value for a query and the key at its own index.
    pub(crate) fn is_of_itself(&self) -> bool {
        self.holds == self.of_itself
    }
}

/// The maximum number of comparisons that are distinguished.
const MAX_COMPARISONS: usize = 3;

impl Truths {
    /// All possible values of the free conditions that the mask reads.
    pub(super) fn all(mask: &Expr, cross: bool) -> Vec<Truths> {
        let mut all = vec![Truths {
            padding: true,
            document: true,
            ids: Vec::new(),
        }];
        let or_not = |all: &mut Vec<Truths>, negate: &dyn Fn(&mut Truths)| {
            let mut others = all.clone();
            others.iter_mut().for_each(negate);
            all.append(&mut others);
        };
        if mask.any(&is_same_document) {
            or_not(&mut all, &|truths| truths.document = false);
        }
        if mask.any(&is_padding) {
            or_not(&mut all, &|truths| truths.padding = false);
        }
        for (index, comparison) in comparisons(mask, cross).into_iter().enumerate() {
            all.iter_mut()
                .for_each(|truths| truths.ids.push(comparison.clone()));
            or_not(&mut all, &|truths| truths.ids[index].holds ^= true);
        }
        all
    }

    /// `expr` with these values.
    pub(super) fn assign(&self, expr: &Expr) -> Expr {
        rewrite(expr, &|part| {
            let known = if is_padding(part) {
                Some(self.padding)
            } else if is_same_document(part) {
                Some(self.document)
            } else {
                let known = self.ids.iter().find(|known| known.expr == *part);
                known.map(|known| known.holds)
            };
            known.map(Expr::Bool)
        })
    }

    /// Whether these values are possible for a query and the key at its own index. In cross-attention, that is another token.
    pub(super) fn may_be_of_itself(&self, cross: bool) -> bool {
        (cross || self.document) && self.ids.iter().all(Comparison::is_of_itself)
    }

    /// The values, where they are possible, for the key at the index of the query.
    pub(super) fn of_itself(&self, cross: bool) -> Truths {
        let mut truths = self.clone();
        truths.document |= !cross;
        for ids in &mut truths.ids {
            ids.holds = ids.of_itself;
        }
        truths
    }
}

/// `mask` with the data that let through the most.
pub(crate) fn without_data(mask: &Expr) -> Expr {
    let seen = Truths {
        padding: true,
        document: true,
        ids: Vec::new(),
    };
    assume(&seen.assign(mask), true, &[])
}

/// Whether `expr` reads data of the body other than `free`.
pub(super) fn reads_declared(expr: &Expr, free: &[Comparison]) -> bool {
    let is_declared = |data: &Data| matches!(data, Data::Declared { .. });
    let reads = matches!(expr, Expr::Data { data, .. } if is_declared(data))
        || expr
            .children()
            .iter()
            .any(|child| reads_declared(child, free));
    let is_free = || free.iter().any(|free| free.expr == *expr);
    reads && !is_free()
}

/// `expr`, with every condition on data of the body that could be `truth` set to it. Those in `free` stay.
pub(super) fn assume(expr: &Expr, truth: bool, free: &[Comparison]) -> Expr {
    let assume = |part: &Expr, truth| assume(part, truth, free);
    match expr {
        expr if !reads_declared(expr, free) => expr.clone(),
        Expr::Unary(Unary::Not, a) => not(assume(a, !truth)),
        Expr::Binary(Binary::And, a, b) => and(assume(a, truth), assume(b, truth)),
        Expr::Binary(Binary::Or, a, b) => or(assume(a, truth), assume(b, truth)),
        Expr::Select(condition, then, otherwise) if then.ty() == Type::Bool => {
            let [then, otherwise] = [then, otherwise].map(|branch| assume(branch, truth));
            match (reads_declared(condition, free), truth) {
                (false, _) => (**condition).clone().select(then, otherwise),
                (true, true) => or(then, otherwise),
                (true, false) => and(then, otherwise),
            }
        }
        _ => Expr::Bool(truth),
    }
}

/// The free comparisons of ids of the body: those whose ids are read nowhere else. (In cross-attention, ids of one sequence are
/// not ids of the other.)
pub(super) fn comparisons(mask: &Expr, cross: bool) -> Vec<Comparison> {
    if cross {
        return Vec::new();
    }
    let mut found: Vec<(Comparison, &Data)> = Vec::new();
    collect_comparisons(mask, &mut found);
    let alone = found
        .iter()
        .filter(|(comparison, ids)| !reads_beside(mask, ids, &comparison.expr));
    let alone: Vec<_> = alone.map(|(comparison, _)| comparison.clone()).collect();
    if alone.len() > MAX_COMPARISONS {
        return Vec::new();
    }
    alone
}

fn collect_comparisons<'e>(expr: &'e Expr, found: &mut Vec<(Comparison, &'e Data)>) {
    if let Some((ids, of_itself)) = compared(expr)
        && found.iter().all(|(known, _)| known.expr != *expr)
    {
        // Words that are possible everywhere come first.
        let comparison = Comparison {
            expr: expr.clone(),
            holds: of_itself,
            of_itself,
        };
        found.push((comparison, ids));
    }
    for child in expr.children() {
        collect_comparisons(child, found);
    }
}

/// Whether `expr` reads these ids but in a comparison.
fn reads_beside(expr: &Expr, ids: &Data, comparison: &Expr) -> bool {
    let reads = |child: &&Expr| reads_beside(child, ids, comparison);
    let is_read = matches!(expr, Expr::Data { data, .. } if data == ids);
    expr != comparison && (is_read || expr.children().iter().any(reads))
}

/// The ids of a comparison like `ids[b, q_idx] == ids[b, kv_idx]`, and its value where both indices are equal.
fn compared(expr: &Expr) -> Option<(&Data, bool)> {
    let Expr::Binary(op @ (Binary::Eq | Binary::Lt | Binary::Le), a, b) = expr else {
        return None;
    };
    let (
        Expr::Data { data, index: of_a },
        Expr::Data {
            data: other,
            index: of_b,
        },
    ) = (&**a, &**b)
    else {
        return None;
    };
    let is_declared = matches!(data, Data::Declared { ty: Type::Int, .. });
    if !is_declared || data != other {
        return None;
    }
    let mut places = 0;
    for indices in of_a.iter().zip(of_b) {
        match indices {
            (Expr::Var(Var::QIdx), Expr::Var(Var::KvIdx))
            | (Expr::Var(Var::KvIdx), Expr::Var(Var::QIdx)) => places += 1,
            (Expr::Var(a @ (Var::B | Var::H)), Expr::Var(b)) if a == b => {}
            _ => return None,
        }
    }
    (places == 1).then_some((data, *op != Binary::Lt))
}

/// `padding[b, q_idx, kv_idx]`
fn is_padding(expr: &Expr) -> bool {
    is_data(expr, Data::Padding, &[Var::B, Var::QIdx, Var::KvIdx])
}

/// `document[b, q_idx] == kv_document[b, kv_idx]`
fn is_same_document(expr: &Expr) -> bool {
    let Expr::Binary(Binary::Eq, a, b) = expr else {
        return false;
    };
    is_data(a, Data::QueryDocument, &[Var::B, Var::QIdx])
        && is_data(b, Data::KeyDocument, &[Var::B, Var::KvIdx])
}

fn is_data(expr: &Expr, wanted: Data, at: &[Var]) -> bool {
    let is_at = |index: &[Expr]| {
        let same = |(index, var): (&Expr, &Var)| matches!(index, Expr::Var(found) if found == var);
        index.len() == at.len() && index.iter().zip(at).all(same)
    };
    matches!(expr, Expr::Data { data, index } if *data == wanted && is_at(index))
}
