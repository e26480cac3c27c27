//! From the lines of a program to the nodes of a graph. A call with the same operands as another one is the same node: masks and angles of
//! all layers are computed once.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::program::{Call, Expr, Program, Statement, Tensor, data_type};
use super::proto::{self, Attribute, Axis, DataType, Message};
use crate::kernel::sinusoid;

/// The fields of `GraphProto`.
pub(super) mod fields {
    pub(in crate::onnx) const NODE: u64 = 1;
    pub(in crate::onnx) const NAME: u64 = 2;
    pub(in crate::onnx) const INITIALIZER: u64 = 5;
    pub(in crate::onnx) const INPUT: u64 = 11;
    pub(in crate::onnx) const OUTPUT: u64 = 12;
}

pub(super) struct Graph<'p> {
    program: &'p Program<'p>,
    /// The type of the weights.
    element: DataType,
    /// `GraphProto`, as far as it is written.
    pub(super) message: Message,
    /// The names of the weights that nodes read.
    pub(super) weights: BTreeSet<String>,
    /// The names of all values.
    names: HashSet<String>,
    /// The values of the program, by their names there.
    values: HashMap<&'static str, String>,
    /// The results of calls and constants.
    known: HashMap<String, String>,
    /// The rounds of the loops around, and those among them whose rounds have weights of their own.
    scope: Vec<String>,
    rounds: Vec<usize>,
    /// For each axis of any length, an input that has it, and where.
    axes: HashMap<&'static str, (String, usize)>,
}

impl<'p> Graph<'p> {
    /// The graph of a program without its weights. `None` if it is malformed, which the macro never writes.
    pub(super) fn of(
        program: &'p Program<'p>,
        statements: &[Statement<'static>],
        element: DataType,
    ) -> Option<Self> {
        let mut graph = Graph {
            program,
            element,
            message: Message::default(),
            weights: BTreeSet::new(),
            names: HashSet::new(),
            values: HashMap::new(),
            known: HashMap::new(),
            scope: Vec::new(),
            rounds: Vec::new(),
            axes: HashMap::new(),
        };
        graph.message.string(fields::NAME, program.model);
        // The names of outputs are those of the declaration, so no other value takes them.
        for statement in statements {
            if let Statement::Output { tensor, .. } = statement {
                graph.names.insert(tensor.name.to_owned());
            }
        }
        graph.run(statements)?;
        Some(graph)
    }

    fn run(&mut self, statements: &[Statement<'static>]) -> Option<()> {
        for statement in statements {
            match statement {
                Statement::Input(tensor) => self.input(tensor),
                Statement::Output { value, tensor } => self.output(value, tensor)?,
                Statement::Let(name, value) => {
                    let value = self.value(value, name)?;
                    self.values.insert(name, value);
                }
                Statement::Repeat {
                    name,
                    count,
                    is_shared,
                    carries,
                    nexts,
                    body,
                } => {
                    self.assign(carries)?;
                    for round in 0..*count {
                        self.scope.push(format!("{name}.{round}"));
                        if !is_shared {
                            self.rounds.push(round);
                        }
                        self.run(body)?;
                        self.assign(nexts)?;
                        self.scope.pop();
                        if !is_shared {
                            self.rounds.pop();
                        }
                    }
                }
            }
        }
        Some(())
    }

    /// All variables at once: the next value of one may be that of another.
    fn assign(&mut self, pairs: &[(&'static str, &'static str)]) -> Option<()> {
        let values = pairs
            .iter()
            .map(|(_, value)| self.values.get(value).cloned());
        let values: Vec<String> = values.collect::<Option<_>>()?;
        let variables = pairs.iter().map(|(variable, _)| *variable);
        self.values.extend(variables.zip(values));
        Some(())
    }

    fn input(&mut self, tensor: &Tensor<'static>) {
        let name = self.unique(tensor.name);
        for (index, axis) in tensor.axes.iter().enumerate() {
            if let Axis::Name(axis) = axis {
                let place = (name.clone(), index);
                self.axes.entry(axis).or_insert(place);
            }
        }
        let ty = tensor.ty.unwrap_or(self.element);
        let info = proto::value_info(&name, ty, &tensor.axes);
        self.message.message(fields::INPUT, &info);
        self.values.insert(tensor.name, name);
    }

    fn output(&mut self, value: &'static str, tensor: &Tensor<'static>) -> Option<()> {
        let value = self.values.get(value)?.clone();
        let node = proto::node("Identity", &[], &[value], &[tensor.name]);
        self.message.message(fields::NODE, &node);
        let ty = tensor.ty.unwrap_or(self.element);
        let info = proto::value_info(tensor.name, ty, &tensor.axes);
        self.message.message(fields::OUTPUT, &info);
        Some(())
    }

    /// The name of the value of an operand, which is to be called so if it is new.
    fn value(&mut self, expr: &Expr<'static>, name: &str) -> Option<String> {
        Some(match expr {
            Expr::None => String::new(),
            Expr::Value(value) => self.values.get(value)?.clone(),
            Expr::Weight(path) => {
                let name = self.weight(path);
                self.weights.insert(name.clone());
                self.names.insert(name.clone());
                name
            }
            Expr::Length(axis) => {
                let (input, index) = self.axes.get(axis)?.clone();
                let index = index as i64;
                let attributes = [
                    ("start", Attribute::Int(index)),
                    ("end", Attribute::Int(index + 1)),
                ];
                self.node("Shape", &attributes, &[input], axis)
            }
            Expr::Int(value) => self.constant(DataType::Int64, &[], &value.to_le_bytes()),
            Expr::Ints(values) => {
                let bytes: Vec<u8> = values
                    .iter()
                    .flat_map(|value| value.to_le_bytes())
                    .collect();
                self.constant(DataType::Int64, &[values.len()], &bytes)
            }
            Expr::Element(value) if self.element == DataType::Float => {
                // The lowest number of 64 bits stands for that of the type.
                let value = match value.is_finite() {
                    true => (*value as f32).max(f32::MIN),
                    false => *value as f32,
                };
                self.constant(DataType::Float, &[], &value.to_le_bytes())
            }
            Expr::Element(value) | Expr::Double(value) => self.doubles(&[], &[*value]),
            Expr::Bool(value) => self.constant(DataType::Bool, &[], &[u8::from(*value)]),
            Expr::Call(call) => return self.call(call, name),
        })
    }

    fn call(&mut self, call: &Call<'static>, name: &str) -> Option<String> {
        let attribute = |of: &str| {
            let mut attributes = call.attributes.iter();
            attributes.find_map(|(name, value)| (*name == of).then_some(value))
        };
        let size = |of: &str| match attribute(of) {
            Some(Attribute::Int(value)) => usize::try_from(*value).ok(),
            _ => None,
        };
        match call.op {
            "Proved" => {
                let is_proved = *self.program.proved.get(size("of")?)?;
                self.value(call.operands.get(usize::from(!is_proved))?, name)
            }
            "Rope" => {
                let Attribute::Text(part) = *attribute("part")? else {
                    return None;
                };
                self.rope(size("of")?, size("width")?, part)
            }
            "Buffer" => {
                let numbers = *self.program.buffers.get(size("of")?)?;
                let Attribute::Ints(shape) = attribute("shape")? else {
                    return None;
                };
                let shape: Vec<usize> = shape.iter().map(|size| *size as usize).collect();
                let buffer = self.doubles(&shape, numbers);
                let to = [("to", Attribute::Int(self.element as i64))];
                Some(self.node("Cast", &to, &[buffer], name))
            }
            "Sinusoid" => {
                let width = size("width")?;
                let frequencies = (0..width).map(|column| sinusoid::frequency(column, width));
                Some(self.doubles(&[width], &frequencies.collect::<Vec<_>>()))
            }
            op => {
                let operands = call.operands.iter();
                let operands = operands.map(|operand| self.value(operand, op_name(operand)));
                let operands: Vec<String> = operands.collect::<Option<_>>()?;
                let attributes = call.attributes.iter().map(|(name, value)| match value {
                    Attribute::Text(ty) if *name == "to" => {
                        let ty = data_type(ty).unwrap_or(self.element);
                        (*name, Attribute::Int(ty as i64))
                    }
                    value => (*name, value.clone()),
                });
                let attributes: Vec<_> = attributes.collect();
                Some(self.node(op, &attributes, &operands, name))
            }
        }
    }

    /// The result of a node, which may be there already.
    fn node(
        &mut self,
        op: &str,
        attributes: &[(&str, Attribute<'_>)],
        operands: &[String],
        name: &str,
    ) -> String {
        let key = format!("{op}{attributes:?}{operands:?}");
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let name = match name.strip_prefix('.') {
            Some(_) => op,
            None => name,
        };
        let name = self.unique(name);
        let node = match op.strip_suffix(".1") {
            // The second of two outputs.
            Some(op) => {
                let first = self.unique(&format!("{name}_values"));
                proto::node(op, attributes, operands, &[&first, &name])
            }
            None => proto::node(op, attributes, operands, &[&name]),
        };
        self.message.message(fields::NODE, &node);
        self.known.insert(key, name.clone());
        name
    }

    fn constant(&mut self, ty: DataType, shape: &[usize], bytes: &[u8]) -> String {
        let key = format!("{ty:?}{shape:?}{bytes:?}");
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let name = self.unique("constant");
        let tensor = proto::tensor(&name, ty, shape, bytes);
        self.message.message(fields::INITIALIZER, &tensor);
        self.known.insert(key, name.clone());
        name
    }

    fn doubles(&mut self, shape: &[usize], values: &[f64]) -> String {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        self.constant(DataType::Double, shape, &bytes)
    }

    /// A part of a rotation, which is `x cos(position frequencies) gains + x[pairs] sin(position frequencies) signs`: coordinates that are
    /// not rotated have the frequency 0 and the sign 0.
    fn rope(&mut self, of: usize, width: usize, part: &str) -> Option<String> {
        let rotary = self.program.rotaries.get(of)?;
        let rotary = match part {
            "long_frequencies" => rotary.for_len(usize::MAX),
            _ => *rotary,
        };
        let (frequencies, magnitude) = rotary.frequencies();
        let mut numbers = match part {
            "gains" => vec![1.0; width],
            _ => vec![0.0; width],
        };
        let mut places: Vec<i64> = (0..width as i64).collect();
        for (pair, frequency) in frequencies.iter().enumerate() {
            let [a, b] = match rotary.interleaved {
                true => [2 * pair, 2 * pair + 1],
                false => [pair, pair + rotary.pairs()],
            };
            let [of_a, of_b] = match part {
                "frequencies" | "long_frequencies" => [*frequency; 2],
                "gains" => [magnitude; 2],
                _ => [-magnitude, magnitude],
            };
            (*numbers.get_mut(a)?, *numbers.get_mut(b)?) = (of_a, of_b);
            places.swap(a, b);
        }
        Some(match part {
            "pairs" => {
                let bytes: Vec<u8> = places
                    .iter()
                    .flat_map(|place| place.to_le_bytes())
                    .collect();
                self.constant(DataType::Int64, &[width], &bytes)
            }
            _ => self.doubles(&[width], &numbers),
        })
    }

    /// The path of a weight in this round: `blocks.*.linear.weight` has the number of the round, and `blocks.*6+3.linear.weight` is that of the
    /// layer 3 of a round of six layers.
    fn weight(&self, path: &str) -> String {
        let mut rounds = self.rounds.iter();
        let names = path.split('.').map(|name| match name.contains('*') {
            false => name.to_owned(),
            true => {
                let terms = name.split('+').map(|term| match term.strip_prefix('*') {
                    Some(per_round) => {
                        let round = rounds.next().copied().unwrap_or_default();
                        round * per_round.parse().unwrap_or(1)
                    }
                    None => term.parse().unwrap_or_default(),
                });
                terms.sum::<usize>().to_string()
            }
        });
        names.collect::<Vec<_>>().join(".")
    }

    /// A name that no other value has.
    fn unique(&mut self, name: &str) -> String {
        let scope: String = self.scope.iter().map(|scope| format!("{scope}/")).collect();
        let name = format!("{scope}{name}");
        let mut names = (2..).map(|count| format!("{name}_{count}"));
        let mut unique = name.clone();
        while !self.names.insert(unique.clone()) {
            unique = names.next().unwrap_or_default();
        }
        unique
    }
}

/// The name of a value that has none.
fn op_name(expr: &Expr<'static>) -> &'static str {
    match expr {
        Expr::Call(call) => call.op,
        _ => "",
    }
}
