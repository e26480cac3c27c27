//! A node where it is written: what the rule of an operation reads.

use super::layer::LayerScope;
use super::term::{Term, call, call_with, list};
use super::writer::Writer;
use crate::model::graph::{Node, ParamPath, Submodule};
use crate::model::lengths::Length;
use crate::model::types::{Axis, Type};
use crate::ops::Layer;
use crate::spec::{Real, Rotary, Size};

pub(crate) struct OnnxNode<'n, 'm> {
    pub(super) writer: &'n mut Writer<'m>,
    /// The node of the model, which an operation of an attention layer is a part of.
    pub(super) of_model: &'m Node,
    pub(super) operands: Vec<(Term, &'m Type)>,
    result: &'m Type,
    /// For each result beside the first, whether it is read.
    wanted: Vec<bool>,
    /// The values of those that are read.
    beside: Vec<Term>,
    /// The layer, if this is an operation of an attention layer.
    pub(super) layer: Option<&'n LayerScope<'m>>,
}

impl<'n, 'm> OnnxNode<'n, 'm> {
    pub(super) fn new(
        writer: &'n mut Writer<'m>,
        of_model: &'m Node,
        operands: Vec<(Term, &'m Type)>,
        result: &'m Type,
        wanted: Vec<bool>,
    ) -> Self {
        OnnxNode {
            writer,
            of_model,
            operands,
            result,
            wanted,
            beside: Vec::new(),
            layer: None,
        }
    }

    pub(super) fn into_beside(self) -> Vec<Term> {
        self.beside
    }

    pub(crate) fn operand(&self, index: usize) -> Term {
        let operand = self.operands.get(index);
        operand.map_or_else(Term::none, |(term, _)| term.clone())
    }

    pub(crate) fn operands(&self) -> Vec<Term> {
        self.operands.iter().map(|(term, _)| term.clone()).collect()
    }

    pub(crate) fn operand_type(&self, index: usize) -> &'m Type {
        self.operands[index].1
    }

    pub(crate) fn result_type(&self) -> &'m Type {
        self.result
    }

    /// Whether a result beside the first is read.
    pub(crate) fn is_wanted(&self, index: usize) -> bool {
        self.wanted.get(index).is_some_and(|is_wanted| *is_wanted)
    }

    /// The next of the results beside the first that are read.
    pub(crate) fn define_beside(&mut self, value: Term) {
        self.beside.push(value);
    }

    /// A term that may stand in several places.
    pub(crate) fn name(&mut self, term: Term) -> Term {
        self.writer.name(term)
    }

    pub(crate) fn size(&mut self, size: &Size) -> String {
        self.writer.size(size)
    }

    /// A number of the type of the weights.
    pub(crate) fn number(&mut self, real: &Real) -> Term {
        Term::new(format!("e:{}", self.writer.real(real)))
    }

    /// The same as an attribute.
    pub(crate) fn float(&mut self, real: &Real) -> String {
        format!("f:{}", self.writer.real(real))
    }

    /// The tensor of a layer at this place: `weight`, `bias`.
    pub(crate) fn weight(&self, place: &ParamPath, tensor: &str) -> Term {
        self.writer.weight(place, tensor)
    }

    /// The layer at this place.
    pub(crate) fn layer_at(&self, place: &ParamPath) -> Option<&'m dyn Layer> {
        match self.writer.model.layer(place)? {
            Submodule::Layer(layer) => Some(&**layer),
            _ => None,
        }
    }

    /// The epsilon of the norm at this place.
    pub(crate) fn epsilon(&self, place: &ParamPath) -> Real {
        let Some(layer) = self.layer_at(place) else {
            return Real::known(0.0);
        };
        layer.epsilon().cloned().unwrap_or_else(|| {
            let ty = layer.ty(self.writer.krate, &proc_macro2::TokenStream::new());
            Real::computed(quote::quote!(<#ty>::EPSILON), String::new())
        })
    }

    /// The numbers of a buffer of the model.
    pub(crate) fn buffer(&mut self, item: &proc_macro2::Ident) -> Term {
        let of = self
            .writer
            .tables
            .buffers
            .index(quote::quote!(#item.numbers()));
        let sizes: Vec<Axis> = self.result.axes.clone();
        let sizes = sizes.iter().filter_map(Axis::size);
        let sizes: Vec<String> = sizes.map(|size| self.writer.size(size)).collect();
        call_with("Buffer", format_args!("of={of},shape={}", list(sizes)), [])
    }

    /// `[.., in]` times the transpose of a weight `[out, in]`, with a bias.
    pub(crate) fn affine(&self, x: Term, weight: Term, bias: Option<Term>) -> Term {
        let product = call("MatMul", [x, weight.transpose(&[1, 0])]);
        match bias {
            Some(bias) => product.plus(bias),
            None => product,
        }
    }

    /// The length of an axis: a vector of one integer.
    pub(crate) fn length(&mut self, axis: &Axis) -> Term {
        match axis {
            Axis::Size(size) => Term::ints([self.writer.size(size)]),
            Axis::Symbol(symbol) => self.length_of(&Length::Symbol(symbol.length.clone())),
        }
    }

    fn length_of(&mut self, length: &Length) -> Term {
        let fold = |of: &mut Self, op: &str, lengths: &[Length]| {
            let terms = lengths.iter().map(|length| of.length_of(length));
            let terms: Vec<Term> = terms.collect();
            let all = terms.into_iter().reduce(|a, b| call(op, [a, b]));
            all.unwrap_or_else(|| Term::ints([1]))
        };
        match length {
            Length::Symbol(name) => match self.layer.and_then(|layer| layer.axis(name)) {
                Some(axis) => self.length_of_model(&axis),
                None => match self.writer.model.made(name) {
                    Some(made) => self.length_of(&made.length.clone()),
                    None => Term::new(format!("@{name}")),
                },
            },
            Length::Constant(size) => Term::ints([self.writer.size(size)]),
            Length::Sum(terms) => fold(self, "Add", terms),
            Length::Product(factors) => fold(self, "Mul", factors),
            Length::Windows { of, size, step, .. } => {
                let of = self.length_of(of);
                let [size, step] = [size, step].map(|of| Term::ints([self.writer.size(of)]));
                of.minus(size).over(step).plus(Term::ints([1]))
            }
            Length::OfWindows {
                count,
                reach,
                stride,
                cut,
            } => {
                let count = self.length_of(count);
                let sizes = [reach, stride, cut];
                let [reach, stride, cut] = sizes.map(|of| Term::ints([self.writer.size(of)]));
                let steps = count.minus(Term::ints([1])).times(stride);
                steps.plus(reach).minus(cut)
            }
        }
    }

    /// The length of an axis of the model around a layer.
    fn length_of_model(&mut self, axis: &Axis) -> Term {
        let layer = self.layer.take();
        let length = self.length(axis);
        self.layer = layer;
        length
    }

    /// The lengths of several axes: a vector of integers.
    pub(crate) fn shape(&mut self, axes: &[Axis]) -> Term {
        let sizes = axes.iter().map(Axis::size);
        if let Some(sizes) = sizes.collect::<Option<Vec<&Size>>>() {
            let sizes: Vec<String> = sizes.iter().map(|size| self.writer.size(size)).collect();
            return Term::ints(sizes);
        }
        let lengths: Vec<Term> = axes.iter().map(|axis| self.length(axis)).collect();
        call_with("Concat", "axis=0", lengths)
    }

    /// A value with these axes in another shape. Axes that stay where they are are 0, and one other may be -1: then the shape is a constant.
    pub(crate) fn reshape(&mut self, x: Term, from: &[Axis], to: &[Axis]) -> Term {
        let stays = |index: usize| match (from.get(index), &to[index]) {
            (Some(Axis::Symbol(a)), Axis::Symbol(b)) => a.length == b.length,
            _ => false,
        };
        let mut unknown = 0;
        let mut sizes = Vec::with_capacity(to.len());
        for (index, axis) in to.iter().enumerate() {
            sizes.push(match axis {
                Axis::Size(size) => self.writer.size(size),
                Axis::Symbol(_) if stays(index) => "0".to_owned(),
                Axis::Symbol(_) => {
                    unknown += 1;
                    "-1".to_owned()
                }
            });
        }
        let shape = match unknown {
            0 | 1 => Term::ints(sizes),
            _ => self.shape(to),
        };
        call("Reshape", [x, shape])
    }

    /// `(x - mean) / sqrt(variance + epsilon)` over the last axis.
    pub(crate) fn standardized(&mut self, x: Term, epsilon: &Real) -> Term {
        let x = self.name(x);
        let mean = x.clone().reduce("ReduceMean", -1, true);
        let centred = self.name(x.minus(mean));
        self.divided_by_rms(centred, epsilon)
    }

    /// `x / sqrt(mean(x²) + epsilon)` over the last axis.
    pub(crate) fn divided_by_rms(&mut self, x: Term, epsilon: &Real) -> Term {
        let epsilon = self.number(epsilon);
        let x = self.name(x);
        let square = x.clone().times(x.clone()).reduce("ReduceMean", -1, true);
        x.over(call("Sqrt", [square.plus(epsilon)]))
    }

    /// The logarithm of the sum of exponentials along an axis: -∞ of nothing but -∞.
    pub(crate) fn logsumexp(&mut self, x: Term, axis: usize) -> Term {
        let x = self.name(x);
        let lowest = Term::number(f64::MIN);
        let largest = call(
            "Max",
            [x.clone().reduce("ReduceMax", axis as i64, true), lowest],
        );
        let largest = self.name(largest);
        let sum = call("Exp", [x.minus(largest.clone())]).reduce("ReduceSum", axis as i64, false);
        call("Log", [sum]).plus(largest.squeeze(&[axis]))
    }

    /// A value that is the same for all indices of these axes, which come before its own.
    pub(crate) fn repeated(&mut self, x: Term, before: &[Axis]) -> Term {
        if before.is_empty() {
            return x;
        }
        let one = || Axis::Size(Size::known(1));
        let own = self.result.axes.len() - before.len();
        let shape: Vec<Axis> = before
            .iter()
            .cloned()
            .chain((0..own).map(|_| one()))
            .collect();
        let shape = self.shape(&shape);
        call("Expand", [x, shape])
    }

    /// `0, 1, ..` up to the length of an axis: a vector of integers.
    pub(crate) fn indices(&mut self, axis: &Axis) -> Term {
        let end = match axis {
            Axis::Size(size) => Term::new(self.writer.size(size)),
            Axis::Symbol(_) => self.length(axis).squeeze(&[0]),
        };
        call("Range", [Term::int(0), end, Term::int(1)])
    }

    /// Vectors of a width that are rotated by positions, which are repeated along the axes that they lack.
    pub(crate) fn rotate(
        &mut self,
        x: Term,
        rotary: &Rotary,
        width: &Size,
        positions: Term,
    ) -> Result<Term, String> {
        if rotary.changes_with_len() {
            return Err(crate::messages::onnx::DYNAMIC_NTK.to_owned());
        }
        let mut part = |part: &str| self.writer.rope(rotary, width, part);
        let [mut frequencies, gains, signs, pairs] =
            ["frequencies", "gains", "signs", "pairs"].map(&mut part);
        let positions = match rotary.longrope() {
            None => positions,
            Some(scaling) => {
                let long = part("long_frequencies");
                let positions = self.name(positions);
                let last = call_with("ReduceMax", "keepdims=0", [positions.clone()]);
                let most = Term::new(self.writer.size(&scaling.size("original_max_len")));
                // The last position is one less than the length.
                let is_short = call("Less", [last, most]);
                frequencies = frequencies.where_else(is_short, long);
                positions
            }
        };
        // In 64 bits: at position 100,000, the error of an angle of 32 bits is 0.004.
        let angles = self.name(positions.cast("F64").times(frequencies));
        let wave = |op: &str, by: Term| call(op, [angles.clone()]).times(by).cast("E");
        let (cos, sin) = (wave("Cos", gains), wave("Sin", signs));
        let x = self.name(x);
        let others = call_with("Gather", "axis=-1", [x.clone(), pairs]);
        Ok(x.times(cos).plus(others.times(sin)))
    }
}
