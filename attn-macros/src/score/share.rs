//! What stands in an expression more than once, as a variable.

use std::collections::BTreeMap;

use super::{Expr, Name, Type};

/// The parts of an expression that stand in it more than once, and the rest of it. Each part reads those before it, and the rest
/// all of them, as parameters named [`part_name`].
pub(crate) struct Shared {
    pub(crate) parts: Vec<Expr>,
    pub(crate) rest: Expr,
}

/// The name by which a part is read.
pub(crate) fn part_name(index: usize) -> Name {
    format!("{PART}{index}").into()
}

/// Whether it is the name of a part.
pub(crate) fn is_part(name: &str) -> bool {
    name.starts_with(PART)
}

const PART: &str = "part_";

impl Shared {
    pub(crate) fn of(expr: &Expr) -> Self {
        let mut reads = BTreeMap::new();
        count(expr, &mut reads);
        reads.retain(|_, reads| *reads > 1);
        let mut sharing = Sharing {
            repeated: reads.into_keys().map(|text| (text, None)).collect(),
            parts: Vec::new(),
        };
        let rest = sharing.take(expr);
        let parts = sharing.parts;
        Self { parts, rest }
    }
}

/// How often each part is read, if one that is read again is not computed again.
fn count(expr: &Expr, reads: &mut BTreeMap<String, usize>) {
    if is_worth_it(expr) {
        let reads = reads.entry(expr.to_string()).or_default();
        *reads += 1;
        if *reads > 1 {
            return;
        }
    }
    expr.children().iter().for_each(|child| count(child, reads));
}

/// A float that changes with the score or with what is learned, and takes an operation.
fn is_worth_it(expr: &Expr) -> bool {
    let changes = |part: &Expr| matches!(part, Expr::Score | Expr::Param { .. });
    let is_operation = matches!(expr, Expr::Unary(..) | Expr::Binary(..) | Expr::Select(..));
    is_operation && expr.ty() == Type::Float && expr.any(&changes)
}

struct Sharing {
    /// What is read again, by its text, and its name once it has one.
    repeated: BTreeMap<String, Option<Name>>,
    parts: Vec<Expr>,
}

impl Sharing {
    fn take(&mut self, expr: &Expr) -> Expr {
        let text = is_worth_it(expr).then(|| expr.to_string());
        let text = text.filter(|text| self.repeated.contains_key(text));
        if let Some(Some(name)) = text.as_ref().and_then(|text| self.repeated.get(text)) {
            return read(name.clone());
        }
        let mut part = |part: &Expr| Box::new(self.take(part));
        let taken = match expr {
            Expr::Unary(op, a) => Expr::Unary(*op, part(a)),
            Expr::Binary(op, a, b) => Expr::Binary(*op, part(a), part(b)),
            Expr::Select(condition, a, b) => Expr::Select(part(condition), part(a), part(b)),
            leaf => leaf.clone(),
        };
        let Some(text) = text else {
            return taken;
        };
        let name = part_name(self.parts.len());
        self.parts.push(taken);
        self.repeated.insert(text, Some(name.clone()));
        read(name)
    }
}

fn read(name: Name) -> Expr {
    let index = Vec::new();
    Expr::Param { name, index }
}
