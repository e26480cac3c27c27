//! A declaration of `model!` as it was written.

use proc_macro2::{Ident, Span, TokenStream};
use syn::{Attribute, LitStr, Visibility};

use super::import::Import;
use crate::spec::body::BodyDraft;
use crate::spec::{Item, text};

/// `struct Name<sizes>; fn forward(inputs) -> result { statements }`, and other functions and blocks.
pub(crate) struct ModelDraft {
    pub(crate) item: Item,
    pub(crate) sizes: Vec<SizeDraft>,
    pub(crate) budget: Option<BudgetDraft>,
    pub(crate) lora: Option<LoraDraft>,
    /// One of them is `forward`, unless that was reported.
    pub(crate) functions: Vec<BlockDraft>,
    pub(crate) blocks: Vec<BlockDraft>,
    pub(crate) imports: Vec<Import>,
    /// Something could not be understood, and was reported.
    pub(crate) poisoned: bool,
}

/// `lora(rank = 8, alpha = 16, dropout = 0.1, rslora = true, on = ["q_proj", "v_proj"], save = ["head"])`
pub(crate) struct LoraDraft {
    pub(crate) rank: TokenStream,
    pub(crate) alpha: Option<TokenStream>,
    pub(crate) dropout: Option<TokenStream>,
    pub(crate) rslora: bool,
    /// The names of the layers that get adapters.
    pub(crate) on: Vec<LitStr>,
    /// The names of the layers that are trained whole.
    pub(crate) save: Vec<LitStr>,
}

/// `block name(parameters) -> result { statements }`. A function is one without keys.
pub(crate) struct BlockDraft {
    /// Its documentation.
    pub(crate) docs: Vec<Attribute>,
    /// Who may use it beside its own declaration.
    pub(crate) vis: Visibility,
    /// All of it as written, but for the visibility.
    pub(crate) tokens: TokenStream,
    pub(crate) name: Ident,
    pub(crate) parameters: Vec<Parameter>,
    /// The declared results; none if they could not be read.
    pub(crate) results: Option<Vec<TypeDraft>>,
    /// Their names; none if they are given by their order.
    pub(crate) names: Vec<Ident>,
    pub(crate) statements: Vec<Statement>,
    /// The bound on the memory of a function.
    pub(crate) budget: Option<BudgetDraft>,
}

/// A parameter of a block, which a call gives.
pub(crate) enum Parameter {
    /// `x: [.., d_model]`: a value, by its position.
    Operand(InputDraft),
    /// `hidden`, `hidden = 256`: a size between `<` and `>`.
    Key {
        name: Ident,
        default: Option<TokenStream>,
    },
}

/// `vocab = 65`
pub(crate) struct SizeDraft {
    pub(crate) name: Ident,
    pub(crate) value: TokenStream,
}

/// `memory = 64 MiB for (batch = 8, seq = 256)`
pub(crate) struct BudgetDraft {
    pub(crate) key: Ident,
    pub(crate) amount: TokenStream,
    /// The bytes of one of its units.
    pub(crate) unit: u64,
    /// The axes of any length, each with its length.
    pub(crate) axes: Vec<SizeDraft>,
    /// What stands behind `for`.
    pub(crate) sizes: TokenStream,
}

/// `tokens: ids[batch, seq]`, as far as it was understood.
#[derive(Default)]
pub(crate) struct InputDraft {
    pub(crate) name: Option<Ident>,
    pub(crate) ty: Option<TypeDraft>,
    /// Its default, where a call leaves it out: `bias: [seq, d] = 0.0`.
    pub(crate) default: Option<TokenStream>,
    /// `mut tokens`, which was reported.
    pub(crate) mutable: bool,
}

/// `ids[batch, seq]`
pub(crate) struct TypeDraft {
    /// The word before the brackets, if there is one.
    pub(crate) kind: Option<Ident>,
    /// Each with the tokens of one axis.
    pub(crate) axes: Vec<TokenStream>,
    /// The brackets, for errors.
    pub(crate) span: Span,
}

pub(crate) enum Statement {
    /// `let x = value;`, `let mut x = value;`
    Let {
        name: Ident,
        mutable: bool,
        value: Expr,
    },
    /// `param x: [axes] = init;`
    Param {
        name: Ident,
        ty: TypeDraft,
        init: TokenStream,
    },
    /// `buffer x: [axes] = |i, j| value;`
    Buffer(BufferDraft),
    /// `let (a, b) = split::<axis>(x);`, `let { logits, hidden: b, .. } = read(x);`
    LetParts {
        names: Vec<Ident>,
        of: Option<NamedParts>,
        value: Expr,
    },
    /// `x = value;`
    Assign { name: Ident, value: Expr },
    /// `repeat count, options { statements }`
    Repeat(Repeat),
    /// `let y = scan axis, options { statements };`
    Scan(Scan),
    /// In a scan, `state h: [axes] = value;`
    State {
        name: Ident,
        ty: TypeDraft,
        init: Expr,
    },
    /// In a scan, `yield y;`, `yield (a, b);`
    Yield { at: Span, values: Vec<Expr> },
    /// `if condition { statements } else { statements }`, of a condition that is known while compiling
    If {
        at: Span,
        condition: Condition,
        branches: [Vec<Statement>; 2],
    },
    /// The last line: what is returned, `(a, b)` or `{ logits, hidden: b }`.
    Return {
        values: Vec<Expr>,
        /// Their names; none if they are given by their order.
        names: Vec<Ident>,
    },
    /// Not understood, and reported; the names that it would declare.
    Unreadable { declares: Vec<Ident> },
}

/// A tensor of constants.
pub(crate) struct BufferDraft {
    pub(crate) name: Ident,
    pub(crate) ty: TypeDraft,
    /// The names of the indices along its axes, if there are any.
    pub(crate) indices: Option<Vec<Ident>>,
    /// A number for each place.
    pub(crate) value: Expr,
}

/// The results of a block that get a variable each.
pub(crate) struct NamedParts {
    pub(crate) results: Vec<Ident>,
    /// Whether `..` leaves others out.
    pub(crate) others: bool,
}

pub(crate) struct Repeat {
    /// The word `repeat`.
    pub(crate) at: Ident,
    pub(crate) count: TokenStream,
    pub(crate) options: Vec<Argument>,
    /// `as i`
    pub(crate) index: Option<LoopIndex>,
    pub(crate) statements: Vec<Statement>,
}

/// The index of the rounds of a loop.
pub(crate) struct LoopIndex {
    pub(crate) name: Ident,
    /// The statements, where it is looked for.
    pub(crate) body: TokenStream,
}

pub(crate) struct Scan {
    /// The word `scan`.
    pub(crate) at: Ident,
    pub(crate) axis: TokenStream,
    pub(crate) options: Vec<Argument>,
    pub(crate) statements: Vec<Statement>,
    pub(crate) to: ScanTo,
    /// Where it stands, for errors about its results.
    pub(crate) result: Expr,
}

/// Where the results of a scan go.
pub(crate) enum ScanTo {
    /// `let y = scan ..`, `let (y, h) = scan ..`
    Let { names: Vec<Ident>, mutable: bool },
    /// `y = scan ..`
    Assign(Ident),
    /// They are returned.
    Return,
}

impl ScanTo {
    /// The names that it declares.
    pub(crate) fn declares(&self) -> &[Ident] {
        match self {
            ScanTo::Let { names, .. } => names,
            ScanTo::Assign(_) | ScanTo::Return => &[],
        }
    }
}

/// `key = value`, or a value by its position.
pub(crate) struct Argument {
    pub(crate) key: Option<Ident>,
    pub(crate) value: TokenStream,
}

pub(crate) enum Expr {
    Name(Ident),
    /// A literal, or a constant expression in braces.
    Number(TokenStream),
    Negate(Span, Box<Expr>),
    Binary {
        operator: Operator,
        at: Span,
        sides: Box<[Expr; 2]>,
    },
    Call(Box<Call>),
    /// `x[seq = 0, d_model = 1..]`
    Index {
        value: Box<Expr>,
        indices: Vec<Index>,
    },
    /// `x as [batch, kv = seq, d_model]`
    Rename {
        value: Box<Expr>,
        at: Span,
        axes: Vec<AxisDraft>,
    },
    /// `if condition { then } else { otherwise }`
    If {
        at: Span,
        condition: Box<Condition>,
        branches: Box<[Expr; 2]>,
    },
    /// Not understood, and reported.
    Invalid(Span),
}

/// `kv = seq`, or `seq`
pub(crate) struct AxisDraft {
    /// Its new name.
    pub(crate) name: Option<Ident>,
    pub(crate) axis: TokenStream,
}

/// The part of an axis.
pub(crate) struct Index {
    /// The first axis has no need of a name: `table[ids]`.
    pub(crate) axis: Option<TokenStream>,
    pub(crate) part: Part,
    /// The tokens as written.
    pub(crate) entry: TokenStream,
}

impl Index {
    /// The expression as a person writes it, but for calls.
    pub(crate) fn text(&self) -> String {
        match (&self.part, &self.axis) {
            (Part::Of(ids), Some(axis)) => format!("{} = {}", text::of(axis), ids.text()),
            (Part::Of(ids), None) => ids.text(),
            _ => text::of(&self.entry),
        }
    }
}

pub(crate) enum Part {
    /// `seq = -1`, `seq = last`
    At(TokenStream),
    /// `seq = argmax::<seq>(y)`
    Of(Expr),
    /// `heads = [0, 2]`
    List(Vec<TokenStream>),
    /// `seq = 1..`: from an index on, up to another one. Either may be missing.
    Range([Option<TokenStream>; 2]),
}

/// A choice between values is made element by element, one by constants once, while compiling.
pub(crate) enum Condition {
    Compare {
        comparison: Comparison,
        sides: Box<[Expr; 2]>,
    },
    /// A name alone: `if bias { .. }`
    Switch(Ident),
    Not(Box<Condition>),
    And(Box<[Condition; 2]>),
    Or(Box<[Condition; 2]>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Comparison {
    Less,
    AtMost,
    Greater,
    AtLeast,
    Equal,
    NotEqual,
}

impl Comparison {
    pub(crate) fn find(signs: &str) -> Option<Self> {
        Some(match signs {
            "<" => Self::Less,
            "<=" => Self::AtMost,
            ">" => Self::Greater,
            ">=" => Self::AtLeast,
            "==" => Self::Equal,
            "!=" => Self::NotEqual,
            _ => return None,
        })
    }

    /// Whether it is true of two numbers.
    pub(crate) fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Less => left < right,
            Self::AtMost => left <= right,
            Self::Greater => left > right,
            Self::AtLeast => left >= right,
            Self::Equal => left == right,
            Self::NotEqual => left != right,
        }
    }
}

impl Condition {
    /// The comparisons and switches in it.
    pub(crate) fn leaves(&self) -> Vec<&Condition> {
        match self {
            Condition::Compare { .. } | Condition::Switch(_) => vec![self],
            Condition::Not(inner) => inner.leaves(),
            Condition::And(sides) | Condition::Or(sides) => {
                sides.iter().flat_map(Condition::leaves).collect()
            }
        }
    }

    /// The values and numbers that it compares.
    pub(crate) fn sides(&self) -> impl Iterator<Item = &Expr> {
        let leaves = self.leaves().into_iter();
        let sides = leaves.filter_map(|leaf| match leaf {
            Condition::Compare { sides, .. } => Some(sides.as_ref()),
            _ => None,
        });
        sides.flatten()
    }

    /// The names that stand alone.
    pub(crate) fn switches(&self) -> impl Iterator<Item = &Ident> {
        let leaves = self.leaves().into_iter();
        leaves.filter_map(|leaf| match leaf {
            Condition::Switch(name) => Some(name),
            _ => None,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operator {
    Add,
    Sub,
    Mul,
    Div,
    /// An operator of numbers alone.
    Rem,
}

impl Operator {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Operator::Add => "+",
            Operator::Sub => "-",
            Operator::Mul => "*",
            Operator::Div => "/",
            Operator::Rem => "%",
        }
    }
}

/// `operation::<arguments>(operands, name = operand) { body }`
pub(crate) struct Call {
    pub(crate) name: Ident,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) operands: Vec<Expr>,
    /// One value each, or several in parentheses.
    pub(crate) named: Vec<(Ident, Vec<Expr>)>,
    /// The error of keys in other brackets. If the name is that of an operation, it was reported.
    pub(crate) misplaced: Option<syn::Error>,
    /// The functions of an attention, if braces follow.
    pub(crate) body: Option<BodyDraft>,
}

impl Expr {
    /// The first token, for errors about the whole.
    pub(crate) fn span(&self) -> Span {
        match self {
            Expr::Name(name) => name.span(),
            Expr::Number(tokens) => first(tokens),
            Expr::Negate(at, _)
            | Expr::Binary { at, .. }
            | Expr::If { at, .. }
            | Expr::Invalid(at) => *at,
            Expr::Call(call) => call.name.span(),
            Expr::Index { value, .. } | Expr::Rename { value, .. } => value.span(),
        }
    }

    /// The expression as a person writes it, but for calls.
    pub(crate) fn text(&self) -> String {
        match self {
            Expr::Name(name) => name.to_string(),
            Expr::Number(tokens) => text::of(tokens),
            Expr::Negate(_, inner) => format!("-{}", inner.text()),
            Expr::Binary {
                operator, sides, ..
            } => {
                let [left, right] = sides.as_ref();
                format!("{} {} {}", left.text(), operator.text(), right.text())
            }
            Expr::Call(call) => format!("{}(..)", call.name),
            Expr::Index { value, .. } => format!("{}[..]", value.text()),
            Expr::Rename { value, .. } => format!("{} as [..]", value.text()),
            Expr::If { .. } => "if ..".to_owned(),
            Expr::Invalid(_) => "..".to_owned(),
        }
    }

    /// The expressions in it, itself among them.
    pub(crate) fn parts(&self) -> Vec<&Expr> {
        let inside: Vec<&Expr> = match self {
            Expr::Name(_) | Expr::Number(_) | Expr::Invalid(_) => Vec::new(),
            Expr::Negate(_, inner) | Expr::Rename { value: inner, .. } => vec![inner],
            Expr::Index { value, indices } => {
                let ids = indices.iter().filter_map(|index| match &index.part {
                    Part::Of(ids) => Some(ids),
                    Part::At(_) | Part::List(_) | Part::Range(_) => None,
                });
                std::iter::once(&**value).chain(ids).collect()
            }
            Expr::Binary { sides, .. } => sides.iter().collect(),
            Expr::If {
                condition,
                branches,
                ..
            } => condition.sides().chain(branches.as_ref()).collect(),
            Expr::Call(call) => {
                let named = call.named.iter().flat_map(|(_, operands)| operands);
                call.operands.iter().chain(named).collect()
            }
        };
        let inside = inside.into_iter().flat_map(Expr::parts);
        std::iter::once(self).chain(inside).collect()
    }

    /// The tokens of its own constants: a number, arguments of a call, axes and indices.
    pub(crate) fn constants(&self) -> Vec<&TokenStream> {
        match self {
            Expr::Number(tokens) => vec![tokens],
            Expr::Call(call) => {
                let arguments = call.arguments.iter();
                arguments.map(|argument| &argument.value).collect()
            }
            Expr::Index { indices, .. } => {
                let parts = indices.iter().flat_map(|index| match &index.part {
                    Part::At(at) => vec![at],
                    Part::Of(_) => Vec::new(),
                    Part::List(list) => list.iter().collect(),
                    Part::Range(ends) => ends.iter().flatten().collect(),
                });
                parts.collect()
            }
            _ => Vec::new(),
        }
    }

    /// Hands every name that is read to `f`.
    pub(crate) fn for_each_name(&self, f: &mut impl FnMut(&Ident)) {
        for part in self.parts() {
            match part {
                Expr::Name(name) => f(name),
                Expr::If { condition, .. } => condition.switches().for_each(&mut *f),
                Expr::Index { indices, .. } => {
                    // `x[seq = last]`
                    let names = indices.iter().filter_map(|index| match &index.part {
                        Part::At(at) => syn::parse2(at.clone()).ok(),
                        _ => None,
                    });
                    names.for_each(|name: Ident| f(&name));
                }
                _ => {}
            }
        }
    }
}

impl BlockDraft {
    /// One of which nothing is known but its name.
    pub(crate) fn unknown(name: &Ident) -> Self {
        BlockDraft {
            docs: Vec::new(),
            vis: Visibility::Inherited,
            tokens: TokenStream::new(),
            name: name.clone(),
            parameters: Vec::new(),
            results: None,
            names: Vec::new(),
            statements: Vec::new(),
            budget: None,
        }
    }

    /// The values that a call gives by their positions.
    pub(crate) fn operands(&self) -> impl Iterator<Item = &InputDraft> {
        self.parameters
            .iter()
            .filter_map(|parameter| match parameter {
                Parameter::Operand(operand) => Some(operand),
                Parameter::Key { .. } => None,
            })
    }

    /// The keys, with their defaults.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&Ident, Option<&TokenStream>)> {
        self.parameters
            .iter()
            .filter_map(|parameter| match parameter {
                Parameter::Key { name, default } => Some((name, default.as_ref())),
                Parameter::Operand(_) => None,
            })
    }
}

impl TypeDraft {
    /// The axes behind `..`, and whether that stands before them.
    pub(crate) fn behind_leading(&self) -> (bool, &[TokenStream]) {
        match self.axes.split_first() {
            Some((first, rest)) if is_leading(first) => (true, rest),
            _ => (false, &self.axes),
        }
    }

    /// The type as written: `[.., d_model]`.
    pub(crate) fn text(&self) -> String {
        let kind = self.kind.as_ref().map(Ident::to_string);
        let axes: Vec<String> = self.axes.iter().map(text::of).collect();
        format!("{}[{}]", kind.unwrap_or_default(), axes.join(", "))
    }
}

/// `..`
pub(crate) fn is_leading(axis: &TokenStream) -> bool {
    axis.to_string().replace(' ', "") == ".."
}

impl Argument {
    /// Whether it is `..`: the keys that are not given have the constants of their names.
    pub(crate) fn is_rest(&self) -> bool {
        self.key.is_none() && is_leading(&self.value)
    }

    /// Its first token.
    pub(crate) fn span(&self) -> Span {
        let value = || first(&self.value);
        self.key.as_ref().map_or_else(value, Ident::span)
    }
}

/// Whether a name in the place of a size is a constant of the user, as `WIDTH` is. A single letter, as `B` or `T`, is an axis.
pub(crate) fn is_name_of_constant(name: &str) -> bool {
    name.to_uppercase() == name && name.chars().count() > 1
}

/// Where tokens begin.
pub(crate) fn first(tokens: &TokenStream) -> Span {
    let first = tokens.clone().into_iter().next();
    first.map_or_else(Span::call_site, |token| token.span())
}

fn calls_in(value: &Expr) -> Vec<&Call> {
    let parts = value.parts().into_iter();
    let calls = parts.filter_map(|part| match part {
        Expr::Call(call) => Some(&**call),
        _ => None,
    });
    calls.collect()
}

/// Every call in these statements.
pub(crate) fn calls(statements: &[Statement]) -> Vec<&Call> {
    let all = statements.iter().flat_map(|statement| match statement {
        Statement::Let { value, .. }
        | Statement::LetParts { value, .. }
        | Statement::Assign { value, .. } => calls_in(value),
        Statement::Return { values, .. } => values.iter().flat_map(calls_in).collect(),
        Statement::Repeat(repeat) => calls(&repeat.statements),
        Statement::Scan(scan) => calls(&scan.statements),
        Statement::State { init, .. } => calls_in(init),
        Statement::Yield { values, .. } => values.iter().flat_map(calls_in).collect(),
        Statement::If { branches, .. } => {
            branches.iter().flat_map(|branch| calls(branch)).collect()
        }
        Statement::Param { .. } | Statement::Buffer(_) | Statement::Unreadable { .. } => Vec::new(),
    });
    all.collect()
}
