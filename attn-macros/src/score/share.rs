//! Common subexpressions of an expression, as variables.

use std::collections::BTreeMap;

use super::{Expr, Name, Type};

/// The repeated parts of an expression, and the rest of it. Each part reads the ones before it, and the rest reads all of them,
/// as parameters named [`part_name`].
pub(crate) struct Shared {
    pub(crate) parts: Vec<Expr>,
    pub(crate) rest: Expr,
}

/// The name under which a part is read.
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
        let numbered = Numbers::default().number(expr);
        let mut sharing = Sharing::default();
        sharing.count(&numbered);
        let rest = sharing.take(&numbered);
        let parts = sharing.parts;
        Self { parts, rest }
    }
}

/// A part of an expression, with a number that is the same for equal parts.
struct Numbered<'e> {
    expr: &'e Expr,
    number: usize,
    /// It changes with the score or with what is learned.
    changes: bool,
    /// The operands of an operation. The index of a tensor is not included.
    operands: Vec<Numbered<'e>>,
}

impl Numbered<'_> {
    /// Whether it is worth a variable: a float that changes and takes an operation.
    fn is_worth_it(&self) -> bool {
        self.changes && !self.operands.is_empty() && self.expr.ty() == Type::Float
    }
}

/// The numbers of the parts so far, by the name of the operation (or the text of a leaf) and the numbers of the operands. So no
/// part is compared as a whole.
#[derive(Default)]
struct Numbers(BTreeMap<(String, Vec<usize>), usize>);

impl Numbers {
    fn number<'e>(&mut self, expr: &'e Expr) -> Numbered<'e> {
        let (name, operands) = match expr {
            Expr::Unary(op, a) => (format!("{op:?}"), vec![&**a]),
            Expr::Binary(op, a, b) => (format!("{op:?}"), vec![&**a, b]),
            Expr::Select(condition, a, b) => ("if".to_owned(), vec![&**condition, a, b]),
            leaf => (leaf.to_string(), Vec::new()),
        };
        let operands = operands.into_iter().map(|operand| self.number(operand));
        let operands: Vec<_> = operands.collect();
        let key = (
            name,
            operands.iter().map(|operand| operand.number).collect(),
        );
        let next = self.0.len();
        Numbered {
            expr,
            number: *self.0.entry(key).or_insert(next),
            changes: matches!(expr, Expr::Score | Expr::Param { .. })
                || operands.iter().any(|operand| operand.changes),
            operands,
        }
    }
}

#[derive(Default)]
struct Sharing {
    /// The number of reads of each part, if a repeated part is computed once.
    reads: BTreeMap<usize, usize>,
    /// The names of the parts that have one.
    names: BTreeMap<usize, Name>,
    parts: Vec<Expr>,
}

impl Sharing {
    fn count(&mut self, part: &Numbered<'_>) {
        if part.is_worth_it() {
            let reads = self.reads.entry(part.number).or_default();
            *reads += 1;
            if *reads > 1 {
                return;
            }
        }
        part.operands.iter().for_each(|operand| self.count(operand));
    }

    fn take(&mut self, part: &Numbered<'_>) -> Expr {
        if let Some(name) = self.names.get(&part.number) {
            return read(name.clone());
        }
        let mut take = |operand: usize| Box::new(self.take(&part.operands[operand]));
        let taken = match part.expr {
            Expr::Unary(op, _) => Expr::Unary(*op, take(0)),
            Expr::Binary(op, ..) => Expr::Binary(*op, take(0), take(1)),
            Expr::Select(..) => Expr::Select(take(0), take(1), take(2)),
            leaf => leaf.clone(),
        };
        if self.reads.get(&part.number).is_none_or(|reads| *reads < 2) {
            return taken;
        }
        let name = part_name(self.parts.len());
        self.parts.push(taken);
        self.names.insert(part.number, name.clone());
        read(name)
    }
}

fn read(name: Name) -> Expr {
    let index = Vec::new();
    Expr::Param { name, index }
}
