//! [`Spec`] to [`Graph`].

use super::{
    Dim, Graph, InitKind, Node, NodeId, Normalizer, Op, Param, ParamKind, data_of, init_kind, shape,
};
use crate::score::{Expr, builtin};
use crate::spec::{self, ParamDecl, ParamInit, Position, QkNorm, Score, Size, Spec, text};

/// The graph of the layer that `spec` declares.
pub(crate) fn build(spec: &Spec) -> Graph {
    let mut builder = Builder {
        spec,
        params: Vec::new(),
        nodes: Vec::new(),
    };
    let x = builder.push("x", Op::Input);
    let context = if spec.d_context.is_some() {
        builder.push("context", Op::Context)
    } else {
        x
    };

    let (v, scores) = builder.values_and_scores(x, context);
    let scores = builder.modify(scores);
    let (scores, normalizer) = builder.normalizer(scores);

    let mask = spec.predicate();
    let data = data_of(spec, mask.as_ref());
    let mut weights = builder.push(
        "weights",
        Op::Normalize {
            scores,
            mask,
            normalizer,
        },
    );
    if let Some(p) = &spec.dropout {
        weights = builder.push(
            "weights",
            Op::Dropout {
                weights,
                p: p.clone(),
            },
        );
    }

    let attended = builder.push("attended", Op::Attend { weights, v });
    let merged = builder.push("merged", Op::MergeHeads { x: attended });
    let output = builder.linear("output", "o_proj", merged);
    Graph {
        params: builder.params,
        nodes: builder.nodes,
        weights,
        output,
        data,
        cross: spec.d_context.is_some(),
    }
}

struct Builder<'a> {
    spec: &'a Spec,
    params: Vec<Param>,
    nodes: Vec<Node>,
}

impl Builder<'_> {
    fn push(&mut self, name: &'static str, op: Op) -> NodeId {
        let shape = shape::infer(&op, &self.nodes, &self.params, self.spec);
        self.nodes.push(Node { name, op, shape });
        NodeId(self.nodes.len() - 1)
    }

    /// A projection, with its parameters.
    fn linear(&mut self, name: &'static str, field: &'static str, x: NodeId) -> NodeId {
        self.params.push(projection(self.spec, field));
        self.push(name, Op::Linear { x, field })
    }

    /// A projection, split into heads.
    fn heads(&mut self, name: &'static str, field: &'static str, x: NodeId) -> NodeId {
        let spec = self.spec;
        let (heads, width) = match field {
            "q_proj" => (&spec.heads, &spec.head_dim),
            "k_proj" => (&spec.kv_heads, &spec.head_dim),
            _ => (&spec.kv_heads, &spec.value_head_dim),
        };
        let x = self.linear(name, field, x);
        self.push(
            name,
            Op::SplitHeads {
                x,
                heads: heads.clone(),
                width: width.clone(),
            },
        )
    }

    /// The values, and the scores of queries and keys.
    fn values_and_scores(&mut self, x: NodeId, context: NodeId) -> (NodeId, NodeId) {
        if self.spec.score == Score::OfPlaces {
            let v = self.heads("v", "v_proj", context);
            return (v, self.push("scores", Op::NoScores { x }));
        }
        let q = self.query(x);
        let k = self.key(context);
        let v = self.heads("v", "v_proj", context);
        (v, self.scores(q, k))
    }

    fn query(&mut self, x: NodeId) -> NodeId {
        let q = self.heads("q", "q_proj", x);
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
                init: Some(init_kind(&self.spec.init, &width, &width, torch)),
                dims: vec![heads, width.clone(), width],
            },
        });
        self.push(
            "q",
            Op::PerHeadLinear {
                q,
                field: "score_proj",
            },
        )
    }

    fn key(&mut self, context: NodeId) -> NodeId {
        let k = self.heads("k", "k_proj", context);
        let k = self.norm("k", "k_norm", k);
        self.rotate("k", k)
    }

    fn norm(&mut self, name: &'static str, field: &'static str, x: NodeId) -> NodeId {
        match self.spec.qk_norm {
            QkNorm::None => x,
            QkNorm::L2 => self.push(name, Op::L2Norm { x }),
            QkNorm::Rms => {
                let dims = vec![self.spec.head_dim.clone()];
                let of = if name == "q" { "queries" } else { "keys" };
                let doc = format!("Gain of the normalised {of}, shared by the heads.");
                self.params.push(Param {
                    field: field.into(),
                    doc,
                    kind: ParamKind::Weight {
                        dims,
                        init: Some(InitKind::Ones),
                    },
                });
                self.push(name, Op::RmsNorm { x, field })
            }
        }
    }

    fn rotate(&mut self, name: &'static str, x: NodeId) -> NodeId {
        match &self.spec.position {
            Position::Rope { theta } => self.push(
                name,
                Op::Rope {
                    x,
                    theta: theta.clone(),
                },
            ),
            _ => x,
        }
    }

    fn scores(&mut self, q: NodeId, k: NodeId) -> NodeId {
        if self.spec.score != Score::Additive {
            return self.push("scores", Op::DotScores { q, k });
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
                init: Some(init_kind(&self.spec.init, &hidden, &Size::known(1), torch)),
                dims: vec![heads, hidden],
            },
        });
        self.push(
            "scores",
            Op::AdditiveScores {
                q,
                k,
                field: "score_proj",
            },
        )
    }

    /// Scale, soft cap and position bias, in this order, as one expression of the score; then the function of the body.
    fn modify(&mut self, scores: NodeId) -> NodeId {
        let spec = self.spec;
        let mut expr = Expr::Score;
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
            Position::None | Position::Rope { .. } => {}
        }
        let scores = match expr {
            Expr::Score => scores,
            expr => self.push("scores", Op::MapScores { scores, expr }),
        };
        self.params.extend(spec.body.params.iter().map(declared));
        match spec.body.score.clone() {
            None => scores,
            Some(expr) => self.push("scores", Op::MapScores { scores, expr }),
        }
    }

    /// A normalizer of single scores is one more function of the score, whose value is the weight.
    fn normalizer(&mut self, scores: NodeId) -> (NodeId, Normalizer) {
        let expr = match &self.spec.normalizer {
            spec::Normalizer::Softmax => return (scores, Normalizer::Softmax),
            spec::Normalizer::Softmax1 => return (scores, Normalizer::Softmax1),
            spec::Normalizer::Sparsemax => return (scores, Normalizer::Sparsemax),
            spec::Normalizer::Entmax15 => return (scores, Normalizer::Entmax15),
            spec::Normalizer::Sink => {
                self.params.push(Param {
                    field: "sink".into(),
                    doc: "The score of the sink, to which what no key gets goes, per head."
                        .to_owned(),
                    kind: ParamKind::Weight {
                        dims: vec![self.spec.heads.clone()],
                        init: None,
                    },
                });
                return (scores, Normalizer::Sink { field: "sink" });
            }
            spec::Normalizer::Elementwise(expr) => expr.clone(),
        };
        let weights = self.push("scores", Op::MapScores { scores, expr });
        (weights, Normalizer::Identity)
    }

    fn rel_pos_table(&mut self, num_buckets: &Size) {
        let torch = InitKind::NormalByFan {
            fan: self.spec.d_model.clone(),
        };
        let init = match &self.spec.init {
            spec::Init::Normal { std } => InitKind::Normal { std: std.clone() },
            _ => torch,
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
    let init = match &param.init {
        ParamInit::Zeros => None,
        ParamInit::Ones => Some(InitKind::Ones),
        ParamInit::Constant(value) => Some(InitKind::Constant(value.clone())),
        ParamInit::Normal { std } => Some(InitKind::Normal { std: std.clone() }),
        ParamInit::Uniform { bound } => Some(InitKind::Within(bound.clone())),
        ParamInit::AlibiSlopes => Some(InitKind::AlibiSlopes),
    };
    Param {
        field: param.name.to_string().into(),
        doc: text::documentation(&param.attrs),
        kind: ParamKind::Weight {
            dims: param.dims.clone(),
            init,
        },
    }
}

/// The projection `field` with its sizes.
fn projection(spec: &Spec, field: &'static str) -> Param {
    let context = spec.d_context.as_ref().unwrap_or(&spec.d_model);
    let q_dim = spec.heads.times(&spec.head_dim);
    let k_dim = spec.kv_heads.times(&spec.head_dim);
    let v_dim = spec.kv_heads.times(&spec.value_head_dim);
    let (input, output, bias, of) = match field {
        "q_proj" => (spec.d_model.clone(), q_dim.clone(), spec.bias.q, "Queries"),
        "k_proj" => (context.clone(), k_dim.clone(), spec.bias.k, "Keys"),
        "v_proj" => (context.clone(), v_dim.clone(), spec.bias.v, "Values"),
        _ => {
            let attended = spec.heads.times(&spec.value_head_dim);
            (attended, spec.d_model.clone(), spec.bias.o, "The output")
        }
    };
    let from = match field {
        "o_proj" => "the attended values of all heads",
        "q_proj" => "`x`",
        _ if spec.d_context.is_some() => "`context`",
        _ => "`x`",
    };
    let torch = match field {
        "o_proj" => InitKind::Uniform {
            gain: 1,
            fans: vec![input.clone()],
        },
        // PyTorch draws the three projections of one width as one packed matrix.
        _ if context.same(&spec.d_model) => InitKind::Uniform {
            gain: 6,
            fans: vec![input.clone(), q_dim, k_dim, v_dim],
        },
        _ => InitKind::Uniform {
            gain: 6,
            fans: vec![input.clone(), output.clone()],
        },
    };
    let init = init_kind(&spec.init, &input, &output, torch);
    Param {
        field: field.into(),
        doc: format!("{of} from {from}."),
        kind: ParamKind::Linear {
            input,
            output,
            bias,
            init,
        },
    }
}

impl Dim {
    pub(super) fn known(size: &Size) -> Dim {
        Dim::Size(size.clone())
    }
}
