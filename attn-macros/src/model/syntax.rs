//! A declaration of `model!` as it was written.

use proc_macro2::{Ident, Span, TokenStream};

use crate::spec::body::BodyDraft;
use crate::spec::{Item, text};

/// `struct Name<sizes>; fn forward(inputs) -> result { statements }`
pub(crate) struct ModelDraft {
    pub(crate) item: Item,
    pub(crate) sizes: Vec<SizeDraft>,
    pub(crate) inputs: Vec<InputDraft>,
    /// The declared results; none if they could not be read.
    pub(crate) results: Option<Vec<TypeDraft>>,
    pub(crate) statements: Vec<Statement>,
    /// Something could not be understood, and was reported.
    pub(crate) poisoned: bool,
}

/// `vocab = 65`
pub(crate) struct SizeDraft {
    pub(crate) name: Ident,
    pub(crate) value: TokenStream,
}

/// `tokens: ids[batch, seq]`, as far as it was understood.
#[derive(Default)]
pub(crate) struct InputDraft {
    pub(crate) name: Option<Ident>,
    pub(crate) ty: Option<TypeDraft>,
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
    /// `let (a, b) = split::<axis>(x);`
    LetParts { names: Vec<Ident>, value: Expr },
    /// `x = value;`
    Assign { name: Ident, value: Expr },
    /// `repeat count, options { statements }`
    Repeat(Repeat),
    /// The last line: what is returned.
    Return(Vec<Expr>),
    /// Not understood, and reported; the names that it would declare.
    Unreadable { declares: Vec<Ident> },
}

pub(crate) struct Repeat {
    /// The word `repeat`.
    pub(crate) at: Ident,
    pub(crate) count: TokenStream,
    pub(crate) options: Vec<Argument>,
    pub(crate) statements: Vec<Statement>,
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
    /// `if condition { then } else { otherwise }`
    If {
        at: Span,
        condition: Box<Condition>,
        branches: Box<[Expr; 2]>,
    },
    /// Not understood, and reported.
    Invalid(Span),
}

/// The part of an axis.
pub(crate) struct Index {
    /// The first axis has no need of a name: `table[ids]`.
    pub(crate) axis: Option<TokenStream>,
    pub(crate) part: Part,
    /// As written.
    pub(crate) entry: TokenStream,
}

impl Index {
    /// As a person writes it, but for calls.
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

/// Element by element.
pub(crate) enum Condition {
    Compare {
        comparison: Comparison,
        at: Span,
        sides: Box<[Expr; 2]>,
    },
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
}

impl Condition {
    /// Hands every name that is read to `f`.
    fn for_each_name(&self, f: &mut impl FnMut(&Ident)) {
        match self {
            Condition::Compare { sides, .. } => sides.iter().for_each(|side| side.for_each_name(f)),
            Condition::Not(inner) => inner.for_each_name(f),
            Condition::And(sides) | Condition::Or(sides) => {
                sides.iter().for_each(|side| side.for_each_name(f));
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operator {
    Add,
    Sub,
    Mul,
    Div,
}

impl Operator {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Operator::Add => "+",
            Operator::Sub => "-",
            Operator::Mul => "*",
            Operator::Div => "/",
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
            Expr::Index { value, .. } => value.span(),
        }
    }

    /// As a person writes it, but for calls.
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
            Expr::If { .. } => "if ..".to_owned(),
            Expr::Invalid(_) => "..".to_owned(),
        }
    }

    /// Hands every name that is read to `f`.
    pub(crate) fn for_each_name(&self, f: &mut impl FnMut(&Ident)) {
        match self {
            Expr::Name(name) => f(name),
            Expr::Number(_) | Expr::Invalid(_) => {}
            Expr::Negate(_, inner) => inner.for_each_name(f),
            Expr::Index { value, indices } => {
                value.for_each_name(f);
                indices.iter().for_each(|index| match &index.part {
                    Part::Of(ids) => ids.for_each_name(f),
                    Part::At(name) => syn::parse2(name.clone()).iter().for_each(&mut *f),
                    Part::List(_) | Part::Range(_) => {}
                });
            }
            Expr::Binary { sides, .. } => sides.iter().for_each(|side| side.for_each_name(f)),
            Expr::If {
                condition,
                branches,
                ..
            } => {
                condition.for_each_name(f);
                branches.iter().for_each(|branch| branch.for_each_name(f));
            }
            Expr::Call(call) => {
                let named = call.named.iter().flat_map(|(_, operands)| operands);
                let operands = call.operands.iter().chain(named);
                operands.for_each(|operand| operand.for_each_name(f));
            }
        }
    }
}

impl Argument {
    /// Its first token.
    pub(crate) fn span(&self) -> Span {
        let value = || first(&self.value);
        self.key.as_ref().map_or_else(value, Ident::span)
    }
}

/// Where tokens begin.
pub(crate) fn first(tokens: &TokenStream) -> Span {
    let first = tokens.clone().into_iter().next();
    first.map_or_else(Span::call_site, |token| token.span())
}
