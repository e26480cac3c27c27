//! [`Spec`] to [`Graph`].

use super::block::{self, LayerBlock, axis};
use super::{Graph, InitKind, Param, ParamKind, data_of, init_kind};
use crate::model::graph::ValueId;
use crate::model::types::{Axis, Type};
use crate::ops::attention_layer::{
    Attend, HeadTransform, Linear, MergeHeads, Norm, PerHeadLinear, Similarity, SplitHeads,
    TransformHeads,
};
use crate::score::{Expr, builtin};
use crate::spec::{
    Dim, Distribution, GainKind, ParamDecl, Position, QkNorm, Score, Size, Spec, fans, text,
};

/// The graph of the layer that `spec` declares.
pub(crate) fn build(spec: &Spec) -> Graph {
    let mut builder = Builder {
        spec,
        params: Vec::new(),
        block: LayerBlock::new(),
    };
    let (similarity, operands) = match &spec.of_operands {
        Some(width) => builder.given(width),
        None => builder.projected(),
    };
    let functions = builder.functions();
    let values = builder.values_of_body();
    builder.normalizer();
    builder.mixing();
    let mask = spec.predicate();
    let data = data_of(spec, mask.as_ref());
    let attend = Attend {
        similarity,
        functions,
        mask,
        normalizer: spec.normalizer.clone(),
        talking: spec.talking_heads,
        dropout: spec.dropout.clone(),
        parts: None,
        loads: vec![HeadTransform::default(); operands.len()],
        given: values.len(),
    };
    let operands = [operands, values].concat();
    let width = spec.value_head_dim.clone();
    let ty = vectors(&Dim::Query, &spec.heads, &width);
    let attended = builder.block.push("attended", attend, &operands, ty);
    let ty = tokens(&Dim::Query, spec.heads.times(&width));
    let merged = builder.block.push("merged", MergeHeads, &[attended], ty);
    if spec.of_operands.is_none() {
        builder.linear("output", "o_proj", merged);
    }
    Graph {
        params: builder.params,
        block: builder.block,
        weights: [
            Dim::Batch,
            Dim::Size(spec.heads.clone()),
            Dim::Query,
            Dim::Key,
        ],
        given: super::declared(spec, true).collect(),
        data,
        cross: spec.d_context.is_some(),
    }
}

/// `[batch, len, width]`
fn tokens(len: &Dim, width: Size) -> Type {
    Type::floats(vec![axis(&Dim::Batch), axis(len), Axis::Size(width)])
}

/// `[batch, heads, len, width]`
fn vectors(len: &Dim, heads: &Size, width: &Size) -> Type {
    let [heads, width] = [heads, width].map(|size| Axis::Size(size.clone()));
    Type::floats(vec![axis(&Dim::Batch), heads, axis(len), width])
}

struct Builder<'a> {
    spec: &'a Spec,
    params: Vec<Param>,
    block: LayerBlock,
}

impl Builder<'_> {
    fn input(&mut self, name: &str, len: Dim, width: &Size) -> ValueId {
        let input = self.block.add_value(name, tokens(&len, width.clone()));
        self.block.inputs.push(input);
        input
    }

    /// A projection, with its parameters.
    fn linear(&mut self, name: &str, field: &'static str, x: ValueId) -> ValueId {
        let (param, output) = projection(self.spec, field);
        self.params.push(param);
        let ty = self.block.value(x).ty.ending_in(output);
        self.block.push(name, Linear::new(field), &[x], ty)
    }

    /// Vectors side by side, split into heads.
    fn heads(&mut self, name: &str, x: ValueId) -> ValueId {
        let spec = self.spec;
        let (heads, width) = match name {
            "q" => (&spec.heads, &spec.head_dim),
            "k" => (&spec.kv_heads, &spec.head_dim),
            _ => (&spec.kv_heads, &spec.value_head_dim),
        };
        let len = self.block.value(x).ty.axes[1].clone();
        let ty = vectors(&block::dim(&len), heads, width);
        self.block.push(name, SplitHeads, &[x], ty)
    }

    /// How the scores come about, and the operands of attention: projections of the inputs. Where scores depend on places alone, the
    /// first one is the input that has the queries, and there are no keys.
    fn projected(&mut self) -> (Similarity, Vec<ValueId>) {
        let spec = self.spec;
        let x = self.input("x", Dim::Query, &spec.d_model);
        let sources = spec.sources();
        let sources = sources.map(|(name, width)| self.input(name, Dim::Key, width));
        let sources: Vec<ValueId> = sources.collect();
        let keys = *sources.first().unwrap_or(&x);
        let values = *sources.last().unwrap_or(&x);
        if spec.score == Score::OfPlaces {
            let v = self.linear("v", "v_proj", values);
            let v = self.heads("v", v);
            return (Similarity::None, vec![x, v]);
        }
        let q = self.linear("q", "q_proj", x);
        let q = self.query(q);
        let k = self.linear("k", "k_proj", keys);
        let k = self.key(k);
        let v = self.linear("v", "v_proj", values);
        let v = self.heads("v", v);
        (self.similarity(), vec![q, k, v])
    }

    /// The same of an `attend`: its inputs.
    fn given(&mut self, width: &Size) -> (Similarity, Vec<ValueId>) {
        let spec = self.spec;
        let keys = match spec.d_context {
            Some(_) => Dim::Key,
            None => Dim::Query,
        };
        let q = self.input("q", Dim::Query, &spec.heads.times(width));
        let k = self.input("k", keys.clone(), &spec.kv_heads.times(width));
        let v = self.input("v", keys, &spec.kv_heads.times(&spec.value_head_dim));
        let v = self.heads("v", v);
        if spec.score == Score::OfPlaces {
            return (Similarity::None, vec![q, v]);
        }
        let q = self.query(q);
        let k = self.key(k);
        (self.similarity(), vec![q, k, v])
    }

    fn query(&mut self, q: ValueId) -> ValueId {
        let q = self.heads("q", q);
        let q = self.norm("q", "q_norm", q);
        let q = self.rotate("q", q);
        if self.spec.score != Score::Bilinear {
            return q;
        }
        let heads = self.spec.heads.clone();
        let width = self.spec.head_dim.clone();
        let torch = InitKind::Uniform {
            gain: 1,
            fans: vec![width.clone()],
        };
        self.params.push(Param {
            field: "score_proj".into(),
            doc: "The matrix between a query and a key, per head.".to_owned(),
            kind: ParamKind::Weight {
                init: Some(init_kind(self.spec.init.as_ref(), &width, &width, torch)),
                dims: vec![heads.clone(), width.clone(), width],
            },
        });
        let field = "score_proj";
        let ty = self.block.value(q).ty.clone();
        self.block
            .push("q", PerHeadLinear { heads, field }, &[q], ty)
    }

    fn key(&mut self, k: ValueId) -> ValueId {
        let k = self.heads("k", k);
        let k = self.norm("k", "k_norm", k);
        self.rotate("k", k)
    }

    fn norm(&mut self, name: &str, field: &'static str, x: ValueId) -> ValueId {
        let (gain, epsilon) = match &self.spec.qk_norm {
            QkNorm::None => return x,
            QkNorm::L2(epsilon) => {
                let norm = Norm::L2(epsilon.clone());
                return self.transform(name, HeadTransform::norm(norm), x);
            }
            QkNorm::Rms(gain, epsilon) => (*gain, epsilon.clone()),
        };
        let learned = match gain {
            GainKind::One => None,
            GainKind::Factor => Some(("Gain", Distribution::Ones)),
            GainKind::OnePlus => Some(("Gain minus 1", Distribution::Zeros)),
        };
        if let Some((what, init)) = learned {
            let of = if name == "q" { "queries" } else { "keys" };
            let doc = format!("{what} of the normalised {of}, shared by the heads.");
            self.params.push(Param {
                field: field.into(),
                doc,
                kind: ParamKind::Weight {
                    dims: vec![self.spec.head_dim.clone()],
                    init: Some(InitKind::Given(init)),
                },
            });
        }
        let norm = Norm::Rms {
            gain,
            field,
            epsilon,
        };
        self.transform(name, HeadTransform::norm(norm), x)
    }

    fn rotate(&mut self, name: &str, x: ValueId) -> ValueId {
        match &self.spec.position {
            Position::Rope(rotary) => {
                let how = HeadTransform::rope(rotary.clone(), name == "k");
                self.transform(name, how, x)
            }
            _ => x,
        }
    }

    fn transform(&mut self, name: &str, how: HeadTransform, x: ValueId) -> ValueId {
        let heads = match name {
            "q" => self.spec.heads.clone(),
            _ => self.spec.kv_heads.clone(),
        };
        let ty = self.block.value(x).ty.clone();
        self.block
            .push(name, TransformHeads { heads, how }, &[x], ty)
    }

    fn similarity(&mut self) -> Similarity {
        if self.spec.score != Score::Additive {
            return Similarity::Dot;
        }
        let heads = self.spec.heads.clone();
        let hidden = self.spec.head_dim.clone();
        let torch = InitKind::Uniform {
            gain: 1,
            fans: vec![hidden.clone()],
        };
        self.params.push(Param {
            field: "score_proj".into(),
            doc: "The vector `w_v` that turns the hidden layer into a score, per head.".to_owned(),
            kind: ParamKind::Weight {
                init: Some(init_kind(
                    self.spec.init.as_ref(),
                    &hidden,
                    &Size::known(1),
                    torch,
                )),
                dims: vec![heads, hidden],
            },
        });
        Similarity::Additive {
            field: "score_proj",
        }
    }

    /// Scale, soft cap and position bias, in this order, as one expression of the score; then the function of the body.
    fn functions(&mut self) -> Vec<Expr> {
        let spec = self.spec;
        let mut expr = Expr::SCORE;
        if let Some(scale) = &spec.scale {
            expr = builtin::scale(expr, scale);
        }
        if let Some(cap) = &spec.softcap {
            expr = builtin::softcap(expr, cap);
        }
        match &spec.position {
            Position::Alibi => expr = builtin::alibi(expr, &spec.heads),
            Position::RelPosBias {
                num_buckets,
                max_distance,
                one_sided,
            } => {
                self.rel_pos_table(num_buckets);
                expr = builtin::rel_pos_bias(expr, num_buckets, max_distance, *one_sided);
            }
            Position::None | Position::Rope(_) => {}
        }
        self.params.extend(spec.body.params.iter().map(declared));
        let of_keys = (!matches!(expr, Expr::Operand(_))).then_some(expr);
        of_keys.into_iter().chain(spec.body.score.clone()).collect()
    }

    /// The inputs that the body reads beside sequences.
    fn values_of_body(&mut self) -> Vec<ValueId> {
        let values = super::declared(self.spec, true).map(|declared| {
            let axes = declared.dims.iter().map(axis).collect();
            let name = format!("param_{}", declared.name);
            let input = self.block.add_value(&name, Type::floats(axes));
            self.block.inputs.push(input);
            input
        });
        values.collect()
    }

    /// The parameters of the normalizer.
    fn normalizer(&mut self) {
        if let Some(field) = self.spec.normalizer.field() {
            self.params.push(Param {
                field: field.into(),
                doc: "The score of the sink, to which what no key gets goes, per head.".to_owned(),
                kind: ParamKind::Weight {
                    dims: vec![self.spec.heads.clone()],
                    init: None,
                },
            });
        }
    }

    /// The matrices by which heads talk to each other.
    fn mixing(&mut self) {
        let heads = self.spec.heads.clone();
        let [scores, weights] = self.spec.talking_heads.fields();
        for (field, of) in [(scores, "scores"), (weights, "weights")] {
            let Some(field) = field else { continue };
            let torch = InitKind::Uniform {
                gain: 1,
                fans: vec![heads.clone()],
            };
            self.params.push(Param {
                field: field.into(),
                doc: format!("The {of} of a head from those of all heads."),
                kind: ParamKind::Weight {
                    init: Some(init_kind(self.spec.init.as_ref(), &heads, &heads, torch)),
                    dims: vec![heads.clone(), heads.clone()],
                },
            });
        }
    }

    fn rel_pos_table(&mut self, num_buckets: &Size) {
        let init = match &self.spec.init {
            // The table is no matrix of a linear map, so it has no fans.
            Some(init) if init.of_matrices().is_none() => InitKind::Given(init.clone()),
            _ => InitKind::Normal {
                gain: 1,
                fans: vec![self.spec.d_model.clone()],
            },
        };
        self.params.push(Param {
            field: "rel_pos_bias".into(),
            doc: "The bias of each bucket of distances, per head.".to_owned(),
            kind: ParamKind::Weight {
                dims: vec![num_buckets.clone(), self.spec.heads.clone()],
                init: Some(init),
            },
        });
    }
}

/// A tensor that the body declares.
fn declared(param: &ParamDecl) -> Param {
    let given = InitKind::Given(param.init.clone());
    let init = match fans(&param.dims) {
        Some([input, output]) => init_kind(Some(&param.init), &input, &output, given),
        None => given,
    };
    Param {
        field: param.name.to_string().into(),
        doc: text::documentation(&param.attrs),
        kind: ParamKind::Weight {
            dims: param.dims.clone(),
            init: Some(init),
        },
    }
}

/// The projection `field` with its sizes, and the width of its result.
fn projection(spec: &Spec, field: &'static str) -> (Param, Size) {
    let (keys, d_keys) = spec.source_of_keys();
    let (values, d_values) = spec.source_of_values();
    let q_dim = spec.heads.times(&spec.head_dim);
    let k_dim = spec.kv_heads.times(&spec.head_dim);
    let v_dim = spec.kv_heads.times(&spec.value_head_dim);
    let (input, output, bias, of) = match field {
        "q_proj" => (spec.d_model.clone(), q_dim.clone(), spec.bias.q, "Queries"),
        "k_proj" => (d_keys.clone(), k_dim.clone(), spec.bias.k, "Keys"),
        "v_proj" => (d_values.clone(), v_dim.clone(), spec.bias.v, "Values"),
        _ => {
            let attended = spec.heads.times(&spec.value_head_dim);
            (attended, spec.d_model.clone(), spec.bias.o, "The output")
        }
    };
    let from = match field {
        "o_proj" => "the attended values of all heads".to_owned(),
        "q_proj" => "`x`".to_owned(),
        "k_proj" => format!("`{keys}`"),
        _ => format!("`{values}`"),
    };
    let torch = match field {
        "o_proj" => InitKind::Uniform {
            gain: 1,
            fans: vec![input.clone()],
        },
        // PyTorch draws the three projections of one width as one packed matrix.
        _ if *d_keys == spec.d_model && *d_values == spec.d_model => InitKind::Uniform {
            gain: 6,
            fans: vec![input.clone(), q_dim, k_dim, v_dim],
        },
        _ => InitKind::Uniform {
            gain: 6,
            fans: vec![input.clone(), output.clone()],
        },
    };
    let init = init_kind(spec.init.as_ref(), &input, &output, torch);
    let param = Param {
        field: field.into(),
        doc: format!("{of} from {from}."),
        kind: ParamKind::Linear {
            input,
            output: output.clone(),
            bias,
            init,
        },
    };
    (param, output)
}
