//! Expressions with parts of them replaced.

use crate::score::{Binary, Data, Expr, Type, Unary, Var};

/// `expr` with `f` of every part that it is something of. What becomes a constant condition disappears.
pub(super) fn rewrite(expr: &Expr, f: &dyn Fn(&Expr) -> Option<Expr>) -> Expr {
    if let Some(replaced) = f(expr) {
        return replaced;
    }
    let part = |part: &Expr| rewrite(part, f);
    let parts = |parts: &[Expr]| parts.iter().map(part).collect();
    match expr {
        Expr::Score | Expr::Var(_) | Expr::Int(_) | Expr::Float(_) | Expr::Bool(_) => expr.clone(),
        Expr::Param { name, index } => Expr::Param {
            name: name.clone(),
            index: parts(index),
        },
        Expr::Data { data, index } => Expr::Data {
            data: data.clone(),
            index: parts(index),
        },
        Expr::Unary(Unary::Not, a) => not(part(a)),
        Expr::Unary(op, a) => part(a).unary(*op),
        Expr::Binary(Binary::And, a, b) => and(part(a), part(b)),
        Expr::Binary(Binary::Or, a, b) => or(part(a), part(b)),
        Expr::Binary(op, a, b) => part(a).binary(*op, part(b)),
        Expr::Select(condition, then, otherwise) => match part(condition) {
            Expr::Bool(true) => part(then),
            Expr::Bool(false) => part(otherwise),
            condition => condition.select(part(then), part(otherwise)),
        },
    }
}

/// `a && b`. As in Rust, what stands to the left decides alone if it can: the other may have no value.
pub(super) fn and(a: Expr, b: Expr) -> Expr {
    match (a, b) {
        (Expr::Bool(true), other) | (other, Expr::Bool(true)) => other,
        (Expr::Bool(false), _) => Expr::Bool(false),
        (a, b) => a & b,
    }
}

/// `a || b`
pub(super) fn or(a: Expr, b: Expr) -> Expr {
    match (a, b) {
        (Expr::Bool(false), other) | (other, Expr::Bool(false)) => other,
        (Expr::Bool(true), _) => Expr::Bool(true),
        (a, b) => a | b,
    }
}

pub(super) fn not(a: Expr) -> Expr {
    match a {
        Expr::Bool(value) => Expr::Bool(!value),
        Expr::Unary(Unary::Not, a) => *a,
        a => !a,
    }
}

/// What the data of a call say of a query and a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Truths {
    /// The key is valid for the query.
    pub(crate) padding: bool,
    /// Both are of one document.
    pub(crate) document: bool,
}

impl Truths {
    /// Everything that may be, for data that are read.
    pub(super) fn all(mask: &Expr) -> Vec<Truths> {
        let choices = |read: bool| if read { &[true, false][..] } else { &[true] };
        let documents = choices(mask.any(&is_same_document));
        let both = choices(mask.any(&is_padding)).iter().flat_map(|&padding| {
            let truths = move |&document| Truths { padding, document };
            documents.iter().map(truths)
        });
        both.collect()
    }

    /// That everything may be seen.
    pub(crate) const SEEN: Truths = Truths {
        padding: true,
        document: true,
    };

    /// `expr` where the data say this.
    pub(crate) fn assign(self, expr: &Expr) -> Expr {
        rewrite(expr, &|part| {
            if is_padding(part) {
                Some(Expr::Bool(self.padding))
            } else {
                is_same_document(part).then_some(Expr::Bool(self.document))
            }
        })
    }
}

/// `mask` without data, where they let through as much as they ever do.
pub(crate) fn without_data(mask: &Expr) -> Expr {
    assume(&Truths::SEEN.assign(mask), true)
}

/// Whether `expr` reads data of the body.
pub(super) fn reads_declared(expr: &Expr) -> bool {
    let is_declared = |data: &Data| matches!(data, Data::Declared { .. });
    expr.any(&|part| matches!(part, Expr::Data { data, .. } if is_declared(data)))
}

/// `expr`, as if what data of the body decide made it `truth`, unless it is not that whatever they say.
pub(super) fn assume(expr: &Expr, truth: bool) -> Expr {
    match expr {
        expr if !reads_declared(expr) => expr.clone(),
        Expr::Unary(Unary::Not, a) => not(assume(a, !truth)),
        Expr::Binary(Binary::And, a, b) => and(assume(a, truth), assume(b, truth)),
        Expr::Binary(Binary::Or, a, b) => or(assume(a, truth), assume(b, truth)),
        Expr::Select(condition, then, otherwise) if then.ty() == Type::Bool => {
            let [then, otherwise] = [then, otherwise].map(|branch| assume(branch, truth));
            match (reads_declared(condition), truth) {
                (false, _) => (**condition).clone().select(then, otherwise),
                (true, true) => or(then, otherwise),
                (true, false) => and(then, otherwise),
            }
        }
        _ => Expr::Bool(truth),
    }
}

/// `padding[b, q_idx, kv_idx]`
pub(super) fn is_padding(expr: &Expr) -> bool {
    is_data(expr, Data::Padding, &[Var::B, Var::QIdx, Var::KvIdx])
}

/// `document[b, q_idx] == kv_document[b, kv_idx]`
pub(super) fn is_same_document(expr: &Expr) -> bool {
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

/// `expr` with an expression in place of `var`.
pub(super) fn with_var(expr: &Expr, var: Var, value: &Expr) -> Expr {
    rewrite(expr, &|part| {
        matches!(part, Expr::Var(found) if *found == var).then(|| value.clone())
    })
}
