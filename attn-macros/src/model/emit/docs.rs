//! The documentation of the emitted items, and the names of layers and operations in it.

use std::fmt::Write;

use super::Emitter;
use crate::markdown::Table;
use crate::messages;
use crate::model::graph::{Field, Holder, Model, ModuleId, Node, ParamPath, Submodule, ValueId};
use crate::model::types::tuple;
use crate::ops::attention_layer::Attend;
use crate::ops::{Label, Rounding};

/// `ids[batch, seq]`, or several in parentheses.
pub(super) fn accepted(cx: &Emitter<'_>) -> String {
    let types = cx.model.inputs.iter().enumerate().map(|(index, id)| {
        let ty = &cx.model.value(*id).ty;
        match cx.model.default_of(index) {
            None => ty.to_string(),
            Some(_) => format!("Option<{ty}>"),
        }
    });
    tuple(&types.collect::<Vec<_>>())
}

/// The documentation of the struct of the inputs, and of its fields.
pub(super) fn inputs(cx: &Emitter<'_>) -> (String, Vec<String>) {
    let forward = cx.method_name("forward");
    let model = &cx.model.item.name;
    let doc = format!(
        "The inputs of [`{model}::{forward}`] by name, in the place of a tuple. `{}` has the tape, if there is one.",
        cx.model.input_names[0]
    );
    let mut ids = cx.model.inputs.iter().enumerate();
    let names = cx.model.input_names.iter();
    let docs = names.map(|_| {
        ids.next()
            .map_or_else(String::new, |(index, id)| described_input(cx, index, *id))
    });
    (doc, docs.collect())
}

/// `[seq, 8]`, and what stands for it where it is left out.
fn described_input(cx: &Emitter<'_>, index: usize, id: ValueId) -> String {
    let ty = &cx.model.value(id).ty;
    match cx.model.default_of(index) {
        None => format!("`{ty}`"),
        Some(default) => format!("`{ty}`, or `None`, which is {default}"),
    }
}

/// `[batch, seq, 65]`, several in parentheses, or by name in braces.
pub(super) fn returned(cx: &Emitter<'_>) -> String {
    if cx.model.result_names.is_empty() {
        return listed(cx, &cx.model.results);
    }
    let results = cx.model.result_names.iter().zip(&cx.model.results);
    let results = results.map(|(name, id)| format!("{name}: {}", cx.model.value(*id).ty));
    format!("{{ {} }}", results.collect::<Vec<_>>().join(", "))
}

/// The documentation of the struct of the results, and of its fields.
pub(super) fn results(cx: &Emitter<'_>) -> (String, Vec<String>) {
    let forward = cx.method_name("forward");
    let model = &cx.model.item.name;
    let mut doc = format!("What [`{model}::{forward}`] returns.");
    if cx.model.result_names.len() > 1 {
        doc.push_str(
            " The first result has the tape: add up the losses of all, and call `backward` once.",
        );
    }
    let types = cx.model.signature.iter().flatten();
    let mut types = types.map(|ty| format!("`{ty}`"));
    let docs = cx.model.result_names.iter();
    (
        doc,
        docs.map(|_| types.next().unwrap_or_default()).collect(),
    )
}

fn listed(cx: &Emitter<'_>, values: &[ValueId]) -> String {
    let types = values.iter().map(|id| &cx.model.value(*id).ty);
    tuple(&types.collect::<Vec<_>>())
}

/// The note of an error about an input.
pub(super) fn axes_note(cx: &Emitter<'_>) -> String {
    let symbols = cx.model.symbols.iter().map(|name| format!("`{name}`"));
    let symbols = symbols.collect::<Vec<_>>().join(", ");
    let mut note = String::new();
    if !symbols.is_empty() {
        let _ = write!(
            note,
            "{symbols}: `usize` or `Const<N>`, the same wherever the name stands; "
        );
    }
    note.push_str("other axes are a `Const`; ids and lengths are tensors of `usize`, masks of `bool`; elements and device are those of the model: `{E}`, `{D}`");
    if cx.model.inputs.len() > 1 {
        let names = cx
            .model
            .inputs
            .iter()
            .map(|id| cx.model.value(*id).source.as_str());
        note.push('\n');
        note.push_str(&messages::one_tuple(&cx.method_name("forward"), names));
        note.push_str("\nonly the first input has a tape");
    }
    note
}

/// The documentation of the struct.
pub(super) fn model(cx: &Emitter<'_>) -> String {
    let mut shapes = Table::new(["", ""]);
    for (index, id) in cx.model.inputs.iter().enumerate() {
        let name = &cx.model.value(*id).source;
        shapes.row([&format!("`{name}`"), &described_input(cx, index, *id)]);
    }
    if cx.model.result_names.is_empty() {
        shapes.row(["output", &format!("`{}`", listed(cx, &cx.model.results))]);
    }
    for (name, result) in cx.model.result_names.iter().zip(&cx.model.results) {
        let ty = &cx.model.value(*result).ty;
        shapes.row([&format!("output `{name}`"), &format!("`{ty}`")]);
    }
    let mut doc = format!("\n\nDeclared with `model!`.\n\n# Shapes\n\n{shapes}");
    if !cx.model.symbols.is_empty() {
        let symbols = cx.model.symbols.iter().map(|name| format!("`{name}`"));
        let symbols = symbols.collect::<Vec<_>>().join(", ");
        let _ = writeln!(
            doc,
            "\n{symbols}: any dfdx `Dim`, `usize` or `Const<N>`. Ids and lengths are tensors of `usize`, masks of `bool`."
        );
    }
    doc.push_str("\n# Layers\n\n");
    doc.push_str(&table(cx, ModuleId(0)));
    doc.push_str(&rounding_points(cx));
    doc
}

/// The products that a trainer rounds on request, by the names of their layers.
#[derive(Default)]
struct RoundingPoints {
    linear: Vec<String>,
    /// Whether there is a table that a `linear` may be tied to.
    has_table: bool,
    /// Layers whose hidden layer reads a rounded product.
    hidden: Vec<String>,
    attention: Vec<String>,
    /// Attentions whose products are those of the model.
    whole_attention: Vec<String>,
}

/// The layers whose products a trainer rounds on request.
fn rounding_points(cx: &Emitter<'_>) -> String {
    let mut points = RoundingPoints::default();
    points.push(cx, ModuleId(0), "");
    let RoundingPoints {
        linear,
        has_table,
        hidden,
        attention,
        whole_attention,
    } = points;
    let [linear, hidden, attention, whole_attention] =
        [linear, hidden, attention, whole_attention].map(|names| names.join(", "));
    let hidden = match hidden.is_empty() {
        true => hidden,
        false => format!(
            " In {hidden}, the hidden layer reads the product, without its bias, rounded to bf16, which is kept for the derivative."
        ),
    };
    let tied = match has_table {
        true => " So it does for a `linear` that is tied to a table.",
        false => "",
    };
    let mut doc = String::new();
    if !linear.is_empty() {
        let _ = writeln!(
            doc,
            "A trainer with `.dtype(Dtype::Bf16)` rounds both operands of the products `y = x Wᵀ`, `dx = dy W` and `dW = dyᵀ x` of these layers, each where \
             it is read: {linear}.{tied}{hidden} All other numbers are those of the model. A session with `.weights(WeightFormat::Bf16)?` rounds both operands of `y`."
        );
    }
    if !attention.is_empty() {
        let _ = writeln!(
            doc,
            "\nOf these attentions, a trainer in bf16 rounds both operands of `s = q kᵀ`, `out = p v`, `dp = dout vᵀ`, `dv = pᵀ dout`, `dk = dsᵀ q` and `dq = ds k`: {attention}. \
             Queries times the scale, keys and values are rounded after bias, norm and rotation, `p` after dropout. Before the sum of a row is known, `p` is \
             `exp(s - max)` with the largest score so far. Scores, softmax, `δ` and sums are those of the model. A session with `.cache(Dtype::Bf16)?` rounds both \
             operands of `s` and `out`."
        );
    }
    if !whole_attention.is_empty() {
        let _ = writeln!(
            doc,
            "\nScores that are additive or that heads mix: all numbers between the projections of {whole_attention} are those of the model."
        );
    }
    match doc.is_empty() {
        true => doc,
        false => format!("\n# Products in bf16\n\n{}", doc.trim_start()),
    }
}

impl RoundingPoints {
    fn push(&mut self, cx: &Emitter<'_>, id: ModuleId, path: &str) {
        for field in &cx.model.module(id).fields {
            let name = format!("{path}{}", field.saved);
            self.has_table |=
                matches!(&field.layer, Submodule::Layer(layer) if layer.table().is_some());
            match &field.layer {
                Submodule::Layer(layer) if layer.rounding() != Rounding::None => {
                    if layer.rounding() == Rounding::ProductsAndHidden {
                        self.hidden.push(format!("`{name}`"));
                    }
                    self.linear.push(format!("`{name}`"));
                }
                Submodule::Attention(index) => {
                    let attention = &cx.model.attentions[*index];
                    if attention.spec.of_operands.is_none() {
                        self.linear.push(format!("the projections of `{name}`"));
                    }
                    let attend = attention.graph.attention();
                    match attend.is_some_and(Attend::rounds_products) {
                        true => self.attention.push(format!("`{name}`")),
                        false => self.whole_attention.push(format!("`{name}`")),
                    }
                }
                layer => {
                    if let Some((module, inner)) = layer.inner() {
                        self.push(cx, module, &format!("{name}{inner}"));
                    }
                }
            }
        }
    }
}

/// The documentation of the body of a `repeat`, or of a call of a block.
pub(super) fn module(cx: &Emitter<'_>, id: ModuleId) -> String {
    let what = match &cx.model.module(id).holder {
        Holder::Variable(_) => "A round of `repeat`".to_owned(),
        Holder::Field(place) => {
            let layer = name_of_layer(cx.model, place);
            format!("\n\nA call of `{layer}`")
        }
    };
    format!(
        "{what} in [`{}`].\n\n# Layers\n\n{}",
        cx.label(),
        table(cx, id)
    )
}

/// The layers of a module. Those of a loop or a block follow it.
fn table(cx: &Emitter<'_>, id: ModuleId) -> String {
    let mut table = Table::new(["name", "layer", "output"]);
    push_rows(cx, id, "", &mut table);
    table.to_string()
}

fn push_rows(cx: &Emitter<'_>, id: ModuleId, path: &str, table: &mut Table<3>) {
    for field in &cx.model.module(id).fields {
        let name = format!("{path}{}", field.saved);
        table.row([
            &format!("`{name}`"),
            &described(cx.model, field),
            &format!("`{}`", field.output),
        ]);
        if let Some((module, inner)) = field.layer.inner() {
            push_rows(cx, module, &format!("{name}{inner}"), table);
        }
    }
}

/// The documentation of a field of the struct.
pub(super) fn field(cx: &Emitter<'_>, field: &Field) -> String {
    match &field.layer {
        Submodule::Attention(index) => {
            let name = &cx.model.attentions[*index].spec.item.name;
            format!("[`{name}`]: `{}`", field.output)
        }
        _ => format!("{}: `{}`", described(cx.model, field), field.output),
    }
}

/// A layer with its sizes, and its initial distribution if one is declared.
fn described(model: &Model, field: &Field) -> String {
    let layer = markdown(model, &field.layer);
    match &field.init {
        None => layer,
        Some(init) => format!("{layer}, init {init}"),
    }
}

/// The layer in Markdown, where a type in code is not parsed as an HTML tag.
fn markdown(model: &Model, layer: &Submodule) -> String {
    match layer {
        Submodule::Opaque { ty, .. } => format!("module `{ty}`"),
        layer => layer_name(model, layer),
    }
}

/// The short name of a layer, with its sizes.
pub(super) fn layer_name(model: &Model, layer: &Submodule) -> String {
    match layer {
        Submodule::Attention(index) => {
            let is_of_operands = model.attentions[*index].spec.of_operands.is_some();
            let name = if is_of_operands {
                "attend"
            } else {
                "attention"
            };
            name.to_owned()
        }
        layer => layer.label(),
    }
}

/// The documentation of `composed`.
pub(super) const COMPOSED: &str =
    "The equivalent chain of dfdx's operations, as a reference and for debugging.";

/// The documentation of `trainer`.
pub(super) const TRAINER: &str = "Training steps on the model's `loss`, with this algorithm: `model.trainer(AdamWConfig::default()).clip(1.0)`.

The trainer owns the model. A step is forward, loss, backward, clipping and the optimizer, on memory of the trainer's own.";

/// The documentation of the composed form of a function beside `forward`.
pub(super) fn composed(cx: &Emitter<'_>) -> [String; 2] {
    let [forward, composed] = ["forward", "composed"].map(|name| cx.method_name(name));
    [
        format!(
            "[`{forward}`](Self::{forward}) as the equivalent chain of dfdx's operations.\n\n{PANICS}"
        ),
        format!("[`{composed}`](Self::{composed}) with a typed error.\n\n{ERRORS}"),
    ]
}

/// The documentation of `forward`, `try_forward`, `forward_mut` and `try_forward_mut`.
pub(super) fn methods(cx: &Emitter<'_>) -> [String; 4] {
    let input = accepted(cx);
    let output = returned(cx);
    let [forward, forward_mut] = ["forward", "forward_mut"].map(|name| cx.method_name(name));
    // Comments of the user may stand before it.
    let begin = if cx.model.function.is_some() {
        "\n\n"
    } else {
        ""
    };
    [
        format!(
            "{begin}Runs the model without dropout, so it is deterministic: takes `{input}`, returns `{output}`.\n\n{PANICS}"
        ),
        format!("[`{forward}`](Self::{forward}) with a typed error.\n\n{ERRORS}"),
        format!("Runs the model in training, with dropout if the input is traced.\n\n{PANICS}"),
        format!("[`{forward_mut}`](Self::{forward_mut}) with a typed error.\n\n{ERRORS}"),
    ]
}

const PANICS: &str = "# Panics\nIf the method with the prefix `try_` would return an error.";
const ERRORS: &str = "# Errors\nIf sizes that are known only at run time do not match or do not fit the memory, if an id is out of range, or if the device fails.";

/// The documentation of `session` and `sessions`.
pub(super) fn sessions(cx: &Emitter<'_>) -> [String; 2] {
    let [forward, session] = ["forward", "session"].map(|name| cx.method_name(name));
    let given = cx.model.given_inputs();
    let given: Vec<_> = given
        .map(|(_, id)| format!("`{}`", cx.model.value(id).source))
        .collect();
    let (given, of_several) = match given.as_slice() {
        [] => Default::default(),
        given => (
            format!(
                " What follows of {} alone is computed now, and not for each token.",
                given.join(", ")
            ),
            " As many as what they are given is of.",
        ),
    };
    [
        format!(
            "A sequence of up to `capacity` tokens that the model continues token by token, with its current weights.\n\n\
             The results of a token are those of `{forward}` for the whole sequence up to it, but computed with a cache of \
             the tokens before. Without dropout.{given}\n\n\
             # Errors\nIf `capacity` exceeds the model's positions or the memory."
        ),
        format!(
            "Several independent sequences: see [`{session}`](Self::{session}).{of_several}\n\n\
             # Errors\nThe errors of [`{session}`](Self::{session})."
        ),
    ]
}

/// The documentation of `attention_maps`, `values`, `first_non_finite`, and their twins with `try_`.
pub(super) fn inside(cx: &Emitter<'_>) -> [String; 6] {
    let input = accepted(cx);
    let output = returned(cx);
    let modules = match cx.is_opaque() {
        true => " Attentions of a `module` are not included.",
        false => "",
    };
    let [forward, forward_mut] = ["forward", "forward_mut"].map(|name| cx.method_name(name));
    let [maps, values, finite] =
        ["attention_maps", "values", "first_non_finite"].map(|name| cx.method_name(name));
    [
        format!(
            "The weights of all attentions of the model, in the order of execution: takes `{input}`, as [`{forward}`](Self::{forward}). \
             The name of an attention in a `repeat` has the number of the round: `blocks.3.attention`.{modules}\n\n\
             The model runs as a chain of operations, and keeps all weights: its memory grows with the square of the lengths.\n\n{PANICS}"
        ),
        format!("[`{maps}`](Self::{maps}) with a typed error.\n\n{ERRORS}"),
        format!(
            "The result of each operation of the model, in the order of execution: takes `{input}`, as [`{forward}`](Self::{forward}). \
             A value has the name of its variable, behind the rounds that it stands in: `blocks.3.x`.\n\n\
             The model runs as a chain of operations with the kernels of [`{forward}`](Self::{forward}). All values are in memory at once.\n\n{PANICS}"
        ),
        format!("[`{values}`](Self::{values}) with a typed error.\n\n{ERRORS}"),
        format!(
            "The first operation whose result is NaN or infinite, or else, backward from the loss, the first result whose gradient is. Takes \
             `{input}`, as [`{forward_mut}`](Self::{forward_mut}), and a loss of `{output}`. There is a backward pass if the input is traced.\n\n\
             The model runs as a chain of operations in training, with dropout if the input is traced.\n\n{PANICS}"
        ),
        format!("[`{finite}`](Self::{finite}) with a typed error.\n\n{ERRORS}"),
    ]
}

/// The same of the layer at a place.
fn name_of_layer(model: &Model, place: &ParamPath) -> String {
    let layer = model.layer(place);
    layer.map_or_else(String::new, |layer| layer_name(model, layer))
}

/// A layer with the name of its field, unless the layer's own name begins with it.
pub(super) fn place_name(model: &Model, place: &ParamPath) -> String {
    let layer = name_of_layer(model, place);
    match layer.starts_with(&place.field) {
        true => layer,
        false => format!("{}: {layer}", place.field),
    }
}

/// The short name of an operation, after the name that the user gave its result.
pub(in crate::model) fn operation_name(model: &Model, node: &Node) -> String {
    let operation = match node.op.description().label {
        Label::Layer(place) => return place_name(model, place),
        Label::Text(operation) => operation,
    };
    match &node.name {
        Some(name) => format!("{name}: {operation}"),
        None => operation,
    }
}
