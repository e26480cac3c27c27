//! The graph of a model as `model!` writes it: lines of text, whose sizes and numbers may be constants of the user.
//!
//! ```text
//! input x E [batch,seq,16]           the name, the type and the axes; E is the type of the weights
//! .1 = MatMul(x,Transpose<perm=[1,0]>(%up.weight))
//! repeat #0 blocks                   a loop that is written out; `shared` if all rounds have the same weights
//! carry h .1                         the first value of a variable
//! h_2 = Add(h,%blocks.*.bias)        the star is the number of the round
//! next h h_2                         its values of the next round
//! end
//! output y h E [batch,seq,16]        the name, the value, its type and axes
//! ```
//!
//! An operand is a call, a value, a `%weight`, the `@length` of an axis, integers `3` and `[1,0,-1]`, numbers of the type of the weights
//! `e:0.5` and of 64 bits `d:0.5`, `true`, `false`, or `_` for none. `#2` and `~2` are entries of the tables of sizes and numbers.

use crate::kernel::attention::Rotary;

use super::proto::{Attribute, Axis, DataType};

/// A graph with what its text refers to.
#[derive(Clone, Copy)]
pub struct Program<'a> {
    /// The name of the model, and of the function if that is not `forward`.
    pub model: &'static str,
    /// The lines, or why there are none.
    pub text: Result<&'static str, &'static str>,
    /// The sizes that the macro could not evaluate.
    pub sizes: &'a [usize],
    /// The numbers that it could not evaluate.
    pub numbers: &'a [f64],
    /// The rotations.
    pub rotaries: &'a [Rotary],
    /// The numbers of tensors of constants.
    pub buffers: &'a [&'a [f64]],
    /// Proved properties of masks.
    pub proved: &'a [bool],
}

/// An operand.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Expr<'t> {
    None,
    Value(&'t str),
    Weight(&'t str),
    /// The length of an axis: a vector of one integer.
    Length(&'t str),
    Int(i64),
    Ints(Vec<i64>),
    /// A number of the type of the weights.
    Element(f64),
    Double(f64),
    Bool(bool),
    Call(Call<'t>),
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Call<'t> {
    pub(super) op: &'t str,
    pub(super) attributes: Vec<(&'t str, Attribute<'t>)>,
    pub(super) operands: Vec<Expr<'t>>,
}

/// A line, or a loop with its lines.
pub(super) enum Statement<'t> {
    Input(Tensor<'t>),
    Output {
        value: &'t str,
        tensor: Tensor<'t>,
    },
    Let(&'t str, Expr<'t>),
    Repeat {
        name: &'t str,
        count: usize,
        is_shared: bool,
        /// Variables with their first values, and with those of the next round.
        carries: Vec<(&'t str, &'t str)>,
        nexts: Vec<(&'t str, &'t str)>,
        body: Vec<Statement<'t>>,
    },
}

/// An input or an output.
pub(super) struct Tensor<'t> {
    pub(super) name: &'t str,
    /// `None` is the type of the weights.
    pub(super) ty: Option<DataType>,
    pub(super) axes: Vec<Axis<'t>>,
}

/// The statements of a program. `None` if it is malformed, which the macro never writes.
pub(super) fn parse(program: &Program<'_>, text: &'static str) -> Option<Vec<Statement<'static>>> {
    let mut lines = text.lines();
    let mut carries = Vec::new();
    let mut nexts = Vec::new();
    statements(program, &mut lines, &mut carries, &mut nexts)
}

type Pairs = Vec<(&'static str, &'static str)>;

/// The lines up to an `end`.
fn statements(
    program: &Program<'_>,
    lines: &mut std::str::Lines<'static>,
    carries: &mut Pairs,
    nexts: &mut Pairs,
) -> Option<Vec<Statement<'static>>> {
    let mut statements = Vec::new();
    while let Some(line) = lines.next() {
        if let Some((name, value)) = line.split_once(" = ") {
            let mut reader = Reader {
                program,
                rest: value,
            };
            let value = reader.operand()?;
            reader.rest.is_empty().then_some(())?;
            statements.push(Statement::Let(name, value));
            continue;
        }
        let words: Vec<&str> = line.split(' ').collect();
        match *words {
            ["input", name, ty, axes] => {
                statements.push(Statement::Input(tensor(program, name, ty, axes)?));
            }
            ["output", name, value, ty, axes] => statements.push(Statement::Output {
                value,
                tensor: tensor(program, name, ty, axes)?,
            }),
            ["carry", variable, value] => carries.push((variable, value)),
            ["next", variable, value] => nexts.push((variable, value)),
            ["repeat", count, name, ref shared @ ..] => {
                let (mut carries, mut nexts) = (Vec::new(), Vec::new());
                let body = self::statements(program, lines, &mut carries, &mut nexts)?;
                statements.push(Statement::Repeat {
                    name,
                    count: usize::try_from(program.int(count)?).ok()?,
                    is_shared: !shared.is_empty(),
                    carries,
                    nexts,
                    body,
                });
            }
            ["end"] => break,
            _ => return None,
        }
    }
    Some(statements)
}

fn tensor(
    program: &Program<'_>,
    name: &'static str,
    ty: &str,
    axes: &'static str,
) -> Option<Tensor<'static>> {
    let ty = match ty {
        "E" => None,
        ty => Some(data_type(ty)?),
    };
    let axes = axes.strip_prefix('[')?.strip_suffix(']')?;
    let axes = axes.split(',').filter(|axis| !axis.is_empty());
    let axes = axes.map(|axis| match program.int(axis) {
        Some(length) => Axis::Length(length),
        None => Axis::Name(axis),
    });
    Some(Tensor {
        name,
        ty,
        axes: axes.collect(),
    })
}

/// A type that does not depend on that of the weights.
pub(super) fn data_type(name: &str) -> Option<DataType> {
    Some(match name {
        "I64" => DataType::Int64,
        "F64" => DataType::Double,
        "BOOL" => DataType::Bool,
        _ => return None,
    })
}

impl Program<'_> {
    /// An integer, or an entry of the table of sizes.
    fn int(&self, text: &str) -> Option<i64> {
        if let Some(text) = text.strip_prefix("-#") {
            let size = self.sizes.get(text.parse::<usize>().ok()?)?;
            return Some(-i64::try_from(*size).ok()?);
        }
        match text.strip_prefix('#') {
            Some(index) => {
                let size = self.sizes.get(index.parse::<usize>().ok()?)?;
                i64::try_from(*size).ok()
            }
            None => text.parse().ok(),
        }
    }

    /// A number, or an entry of the table of numbers.
    fn number(&self, text: &str) -> Option<f64> {
        match text.strip_prefix('~') {
            Some(index) => self.numbers.get(index.parse::<usize>().ok()?).copied(),
            None => text.parse().ok(),
        }
    }
}

/// Reads an operand.
struct Reader<'p> {
    program: &'p Program<'p>,
    rest: &'static str,
}

impl Reader<'_> {
    fn operand(&mut self) -> Option<Expr<'static>> {
        if self.rest.starts_with('[') {
            return Some(Expr::Ints(self.ints()?));
        }
        let word = self.word();
        if word.is_empty() {
            return None;
        }
        if self.rest.starts_with(['<', '(']) {
            return Some(Expr::Call(self.call(word)?));
        }
        Some(match word {
            "_" => Expr::None,
            "true" => Expr::Bool(true),
            "false" => Expr::Bool(false),
            _ => match word.split_at_checked(1) {
                Some(("%", path)) => Expr::Weight(path),
                Some(("@", axis)) => Expr::Length(axis),
                _ => match word.split_once(':') {
                    Some(("e", number)) => Expr::Element(self.program.number(number)?),
                    Some(("d", number)) => Expr::Double(self.program.number(number)?),
                    _ => match self.program.int(word) {
                        Some(value) => Expr::Int(value),
                        None => Expr::Value(word),
                    },
                },
            },
        })
    }

    fn call(&mut self, op: &'static str) -> Option<Call<'static>> {
        let mut attributes = Vec::new();
        if self.takes('<') {
            while !self.takes('>') {
                let name = self.word();
                self.takes('=').then_some(())?;
                attributes.push((name, self.attribute()?));
                self.takes(',');
            }
        }
        self.takes('(').then_some(())?;
        let mut operands = Vec::new();
        while !self.takes(')') {
            operands.push(self.operand()?);
            self.takes(',');
        }
        Some(Call {
            op,
            attributes,
            operands,
        })
    }

    fn attribute(&mut self) -> Option<Attribute<'static>> {
        if self.rest.starts_with('[') {
            return Some(Attribute::Ints(self.ints()?));
        }
        if self.takes('"') {
            let (text, rest) = self.rest.split_once('"')?;
            self.rest = rest;
            return Some(Attribute::Text(text));
        }
        let word = self.word();
        Some(match word.strip_prefix("f:") {
            Some(number) => Attribute::Float(self.program.number(number)?),
            None => match self.program.int(word) {
                Some(value) => Attribute::Int(value),
                // A type.
                None => Attribute::Text(word),
            },
        })
    }

    fn ints(&mut self) -> Option<Vec<i64>> {
        self.takes('[').then_some(())?;
        let mut ints = Vec::new();
        while !self.takes(']') {
            let word = self.word();
            ints.push(self.program.int(word)?);
            self.takes(',');
        }
        Some(ints)
    }

    fn word(&mut self) -> &'static str {
        let end = self.rest.find([',', '(', ')', '<', '>', '[', ']', '=']);
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    fn takes(&mut self, char: char) -> bool {
        let rest = self.rest.strip_prefix(char);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}
