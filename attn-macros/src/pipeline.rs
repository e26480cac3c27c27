//! The whole story of an expansion.

use proc_macro2::TokenStream;

use crate::messages::model as messages;
use crate::model::passes::{MemoryPlan, Passes};
use crate::model::recompute::Chosen;
use crate::{comments, depth, diag::Diagnostics, editor, emit, graph, model as network, spec};

/// Expands the specs in `input`. Whatever the tokens, this returns: mistakes are collected on the way, reported together,
/// and the item is emitted all the same, so that its users do not turn red as well.
pub(crate) fn attention(input: TokenStream) -> TokenStream {
    let cx = Diagnostics::default();
    let (input, in_editor) = editor::asks(input);
    let input = comments::remove(depth::limit(input, &cx), &cx);
    let (krate, specs) = spec::parse(input.clone(), &cx);
    let mut output = match in_editor {
        true => editor::layers(&krate, input),
        false => TokenStream::new(),
    };
    for draft in specs {
        let spec = spec::check(draft, &krate, &cx);
        let graph = graph::build(&spec);
        let fused = fuse_layer(&graph);
        let layer = graph::AttentionLayer {
            spec,
            graph,
            fused,
            operands: Vec::new(),
            values_in_keys: None,
        };
        let passes = layer.passes();
        output.extend(emit::layer(
            &krate,
            &layer,
            passes.as_ref(),
            emit::Caller::User,
        ));
    }
    output.extend(cx.into_compile_errors());
    output
}

/// Expands the models in `input`, in the same way.
pub(crate) fn model(input: TokenStream) -> TokenStream {
    let cx = Diagnostics::default();
    let (input, in_editor) = editor::asks(network::import::arrived(input));
    if in_editor {
        cx.keep_shapes();
    }
    let input = comments::remove(depth::limit(input, &cx), &cx);
    if let Some(call) = network::import::next(&input, in_editor, &cx) {
        return call;
    }
    let declarations = network::parse(input.clone(), &cx);
    let exports = declarations.exports(&cx);
    let krate = declarations.krate;
    let drafts = declarations.models;
    let types = drafts.iter().map(|draft| draft.item.name.to_string());
    let mut types: Vec<String> = types.collect();
    let mut layers = TokenStream::new();
    for draft in drafts {
        let mut models = network::lower(draft, &types, &krate, &cx);
        fuse_models(&mut models);
        let [model, others @ ..] = models.as_slice() else {
            continue;
        };
        types.extend(model.types());
        let splits = models.iter().map(split).collect::<Vec<_>>();
        let plans = models.iter().zip(&splits);
        let mut plans = plans.map(|(model, split)| plans_of(model, split.as_ref()));
        let passes = plans.next().unwrap_or_default();
        let functions: Vec<_> = others.iter().zip(plans).collect();
        let of_layers = model.attentions.iter().map(graph::AttentionLayer::passes);
        let of_layers: Vec<_> = of_layers.collect();
        layers.extend(network::emit::model(
            &krate, model, &passes, &of_layers, &functions,
        ));
    }
    if cx.count() == 0 {
        let imports = declarations.imports.iter().zip(&declarations.calls);
        let unused = imports.filter(|(_, is_called)| !is_called.get());
        unused.for_each(|((_, name), _)| cx.error(name, messages::unused_import(name)));
    }
    let is_sound = cx.count() == 0;
    let exports = exports.iter().map(|export| export.emit(is_sound));
    layers.extend(exports);
    // The names stand in front, and the shapes that they show come out of the models.
    let mut output = match in_editor {
        true => editor::models(&krate, input, &declarations.imports, &cx),
        false => TokenStream::new(),
    };
    output.extend(layers);
    output.extend(cx.into_compile_errors());
    output
}

/// The model with its loops split, if it has a bound on its memory.
pub(crate) fn split(model: &network::graph::Model) -> Option<network::graph::Model> {
    let is_bound = model.is_known() && model.budget.is_some();
    is_bound.then(|| network::budget::split(model)).flatten()
}

/// The passes of a function; of one with a bound on its memory, those of each plan, and none of one without a fused form.
pub(crate) fn plans_of<'m>(
    model: &'m network::graph::Model,
    split: Option<&'m network::graph::Model>,
) -> Vec<MemoryPlan<'m>> {
    if !model.is_known() {
        return Vec::new();
    }
    let given = network::given::Given::of(model).read_by_tokens(model.block());
    let planned = |model: &'m network::graph::Model, chosen: &Chosen, work| MemoryPlan {
        model,
        passes: Passes::of_session(model.block(), &given, chosen),
        work,
    };
    let Some(budget) = &model.budget else {
        return vec![planned(model, &Chosen::default(), None)];
    };
    let plans = network::budget::plans(model, split, budget).into_iter();
    let plans = plans.map(|plan| {
        let of = split.filter(|_| plan.is_split).unwrap_or(model);
        planned(of, &plan.chosen, Some(plan.work))
    });
    plans.collect()
}

/// The operations of the functions of a model for the fused form.
pub(crate) fn fuse_models(models: &mut [network::graph::Model]) {
    network::take_projections(models);
    models.iter_mut().for_each(fuse_model);
}

/// The same of one function, behind what they have in common: elementwise ones that are one pass over memory become one.
fn fuse_model(model: &mut network::graph::Model) {
    model.grouped = network::take_logits(model);
    model.grouped = network::split_products(model);
    let products = network::all_at_once(model);
    let repeating = network::read_in_place(&products, &model.results);
    let grouped = network::group(&repeating, &model.results);
    let grouped = network::keep_by_group(model, &grouped);
    model.grouped = network::read_results(&network::hoist(&grouped));
    network::share_memory(model);
}

/// The operations of a layer for the fused form, each a call of a kernel. `None` if the kernels do not know what its scores read.
pub(crate) fn fuse_layer(graph: &graph::Graph) -> Option<graph::block::LayerBlock> {
    graph::fuse_operands(graph, &[])
}
