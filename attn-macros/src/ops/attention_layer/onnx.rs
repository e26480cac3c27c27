//! Attention in ONNX: scores, mask, normalizer and weighted values, each as operators on `[batch, heads, query, key]`.

use super::{Attend, Similarity};
use crate::graph::block::axis;
use crate::messages::onnx as words;
use crate::model::types::Axis;
use crate::onnx::{OnnxNode, Term, call, call_with};
use crate::score::Expr;
use crate::spec::{Normalizer, Size};

impl Attend {
    /// The weights and the logarithms of their sums stand beside, where they are wanted.
    pub(super) fn write_onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let Some(scope) = of.scope() else {
            return Ok(Term::none());
        };
        let [wants_weights, wants_lse] = scope.wanted;
        let proved = scope.every_query_attends;
        let full: Vec<Axis> = scope.graph.weights.iter().map(axis).collect();
        let mut scores = self.similarity(of, &full);
        for function in &self.functions {
            scores = self.map(of, function, scores, &full);
        }
        let mix = |of: &OnnxNode<'_, '_>, of_heads: Term, field: &str| {
            let equation = "equation=\"gh,bhqk->bgqk\"";
            call_with("Einsum", equation, [of.parameter(field), of_heads])
        };
        let [mix_scores, mix_weights] = self.talking.fields();
        if let Some(field) = mix_scores {
            scores = mix(of, scores, field);
        }
        if let Some(weight) = self.normalizer.weight() {
            scores = self.map(of, weight, scores, &full);
        }
        let mask = self.mask.as_ref().map(|mask| of.elements(mask, &[]));
        let mask = mask.map(|mask| of.name(mask));
        let scores = of.name(scores);
        let masked = Masked {
            scores,
            mask,
            proved,
            may_be_infinite: of.has_own_score(),
        };
        let (mut weights, lse) = masked.normalized(of, &self.normalizer)?;
        if let Some(field) = mix_weights {
            weights = mix(of, weights, field);
        }
        let weights = of.name(weights);
        if wants_weights {
            of.define_beside(weights.clone());
        }
        if wants_lse {
            let lse = of.name(lse);
            of.define_beside(lse);
        }
        let values = of.operands().len() - 1 - self.given;
        let values = self.repeated(of, values);
        Ok(call("MatMul", [weights, values]))
    }

    /// The scores before any function of them.
    fn similarity(&self, of: &mut OnnxNode<'_, '_>, full: &[Axis]) -> Term {
        match self.similarity {
            Similarity::Dot => {
                let keys = self.repeated(of, 1).transpose(&[0, 1, 3, 2]);
                call("MatMul", [of.operand(0), keys])
            }
            Similarity::Additive { field } => {
                let queries = of.operand(0).unsqueeze(&[3]);
                let keys = self.repeated(of, 1).unsqueeze(&[2]);
                let weight = of.parameter(field).unsqueeze(&[1, 2]);
                let hidden = call("Tanh", [queries.plus(keys)]);
                hidden.times(weight).reduce("ReduceSum", -1, false)
            }
            Similarity::None => {
                let shape = of.shape(full);
                call("Expand", [Term::number(0.0), shape])
            }
        }
    }

    /// A function of the scores, which has all axes also where it does not read them.
    fn map(&self, of: &mut OnnxNode<'_, '_>, function: &Expr, scores: Term, full: &[Axis]) -> Term {
        let scores = of.name(scores);
        let mapped = of.elements(function, &[scores]);
        match function.any(&|part| matches!(part, Expr::Operand(_))) {
            true => mapped,
            false => {
                let shape = of.shape(full);
                call("Expand", [mapped, shape])
            }
        }
    }

    /// The vectors of keys or values for every head of the queries: those of a group of heads are the same.
    fn repeated(&self, of: &mut OnnxNode<'_, '_>, operand: usize) -> Term {
        let x = of.operand(operand);
        let axes = &of.operand_type(operand).axes;
        let heads = &of.result_type().axes[1];
        let [Some(own), Some(heads), Some(width)] = [&axes[1], heads, &axes[3]].map(Axis::size)
        else {
            return x;
        };
        if own == heads {
            return x;
        }
        let members = heads.in_groups(own);
        let [heads, width, members] = [heads, width, &members].map(|size: &Size| of.size(size));
        let one = || "1".to_owned();
        let shape = Term::ints([one(), one(), members, one(), one()]);
        let repeated = call("Expand", [x.unsqueeze(&[2]), shape]);
        let shape = ["0".to_owned(), heads, "-1".to_owned(), width];
        call("Reshape", [repeated, Term::ints(shape)])
    }
}

/// Scores with the keys that count.
struct Masked {
    scores: Term,
    mask: Option<Term>,
    /// The entry of the table that says whether every query attends to a key.
    proved: usize,
    /// Whether a score may be -∞.
    may_be_infinite: bool,
}

impl Masked {
    /// The weights, and the logarithms of the sums that they are divided by.
    fn normalized(
        &self,
        of: &mut OnnxNode<'_, '_>,
        normalizer: &Normalizer,
    ) -> Result<(Term, Term), String> {
        Ok(match normalizer {
            Normalizer::Softmax => (self.softmax(of), self.lse(of, None)),
            Normalizer::Softmax1 => {
                let sink = Term::number(0.0);
                (self.with_sink(of, sink.clone()), self.lse(of, Some(sink)))
            }
            Normalizer::Sink => {
                let sink = of.parameter("sink").unsqueeze(&[1, 2]);
                (self.with_sink(of, sink.clone()), self.lse(of, Some(sink)))
            }
            Normalizer::Elementwise(_) => (self.or(0.0), Term::none()),
            Normalizer::Sparsemax => return Err(words::normalizer("sparsemax")),
            Normalizer::Entmax15 => return Err(words::normalizer("entmax15")),
        })
    }

    /// The scores, with a number in place of those that the mask hides.
    fn or(&self, otherwise: f64) -> Term {
        let scores = self.scores.clone();
        match &self.mask {
            Some(mask) => scores.where_else(mask.clone(), Term::number(otherwise)),
            None => scores,
        }
    }

    fn softmax(&self, of: &mut OnnxNode<'_, '_>) -> Term {
        let softmax = |scores: Term| call_with("Softmax", "axis=-1", [scores]);
        if self.may_be_infinite {
            let lowest = Term::number(f64::MIN);
            let (exponentials, _) = self.exponentials(of, lowest);
            let sum = exponentials.clone().reduce("ReduceSum", -1, true);
            return exponentials.over(call("Max", [sum, Term::number(1.0)]));
        }
        let Some(mask) = &self.mask else {
            return softmax(self.scores.clone());
        };
        let attends = softmax(self.or(f64::NEG_INFINITY));
        // A query without keys has the same finite score for all of them, and then no weight.
        let may_be_empty = softmax(self.or(f64::MIN));
        let may_be_empty = may_be_empty.where_else(mask.clone(), Term::number(0.0));
        call_with(
            "Proved",
            format_args!("of={}", self.proved),
            [attends, may_be_empty],
        )
    }

    /// Exponentials of the scores minus the largest of them, which is `least` or more, and that one.
    fn exponentials(&self, of: &mut OnnxNode<'_, '_>, least: Term) -> (Term, Term) {
        let scores = of.name(self.or(f64::NEG_INFINITY));
        let largest = scores.clone().reduce("ReduceMax", -1, true);
        let largest = of.name(call("Max", [largest, least]));
        let shifted = scores.minus(largest.clone());
        (of.name(call("Exp", [shifted])), largest)
    }

    /// The weights beside a key without a value, of this score.
    fn with_sink(&self, of: &mut OnnxNode<'_, '_>, sink: Term) -> Term {
        let (exponentials, largest) = self.exponentials(of, sink.clone());
        let sum = exponentials.clone().reduce("ReduceSum", -1, true);
        exponentials.over(sum.plus(call("Exp", [sink.minus(largest)])))
    }

    fn lse(&self, of: &mut OnnxNode<'_, '_>, sink: Option<Term>) -> Term {
        let least = sink.clone().unwrap_or_else(|| Term::number(f64::MIN));
        let (exponentials, largest) = self.exponentials(of, least);
        let mut sum = exponentials.reduce("ReduceSum", -1, true);
        if let Some(sink) = sink {
            sum = sum.plus(call("Exp", [sink.minus(largest.clone())]));
        }
        call("Log", [sum]).plus(largest).squeeze(&[3])
    }
}
