//! The structs into which a call and the layers are read.

use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};

use super::{FusedNode, ModelFrame};
use crate::emit::block::{Frame, product, size};
use crate::emit::input;
use crate::model::emit::{field, item};
use crate::model::graph::{Field, Module, Node, Region, Repeat, Scan, Step, Submodule};
use crate::model::plan::Forward;
use crate::model::recompute::keeps_memory;
use crate::model::types::{Axis, ValueKind};
use crate::ops::{Attention, Kept};

impl ModelFrame<'_> {
    /// The nodes of attentions. Of one that the function runs twice there are two.
    pub(super) fn attentions(&self) -> Vec<&Node> {
        let nodes = self.model().nodes().into_iter();
        nodes.filter(|node| node.attention().is_some()).collect()
    }

    /// `Sizes`, `Inputs` and `Call`.
    pub(super) fn emit_call(&self) -> TokenStream {
        let symbols = self.model().axes().map(field);
        let inputs = self.model().inputs.iter().map(|id| {
            let name = self.input_field(*id);
            match self.ty(*id).kind {
                ValueKind::Floats => quote!(#name: p::Operand<E>),
                ValueKind::Ids | ValueKind::Lens => quote!(#name: p::Ids),
                ValueKind::Bools => quote!(#name: p::Vec<bool>),
            }
        });
        let attentions = self.attentions().into_iter();
        let data = attentions.filter_map(Node::attention).map(|attention| {
            let attention = self.attention(attention);
            quote!(#attention::Data)
        });
        quote_spanned! {self.cx.at=>
            /// The axes that only the running program knows.
            #[derive(p::Clone, p::Copy)]
            struct Sizes {
                #(#symbols: usize,)*
            }

            struct Inputs<E: p::Element> {
                #(#inputs,)*
                __types: p::PhantomData<E>,
            }

            /// One call: sizes, inputs, and what each attention reads of these.
            #[allow(dead_code)]
            struct Call<E: p::Element> {
                sizes: Sizes,
                inputs: Inputs<E>,
                data: (#(#data,)*),
            }
        }
    }

    /// The lines that read the call, and find every mistake in it; for a pass over whole sequences, that there is no memory for one, too.
    pub(super) fn emit_read(&self, label: &str, is_pass: bool) -> TokenStream {
        let sizes = self.model().axes().map(|symbol| {
            let name = field(symbol);
            let axis = self.axis_of_call(symbol);
            quote!(#name: p::Dim::size(&#axis))
        });
        let inputs = self.model().inputs.iter().map(|id| {
            let name = self.input_field(*id);
            let value = self.value(*id);
            match self.ty(*id).kind {
                ValueKind::Floats => quote!(#name: operation.parameter(&#value)?),
                ValueKind::Ids | ValueKind::Lens => quote!(#name: p::Ids::read(&#value)),
                ValueKind::Bools => quote!(#name: p::values(&#value)),
            }
        });
        let attentions = self.attentions().into_iter();
        let data = attentions.filter_map(|node| Some(self.emit_data(node, node.attention()?)));
        let check_sizes = self.emit_check_sizes(label);
        let symbols = self.model().symbols.iter().map(|name| field(name));
        let check_memory =
            is_pass.then(|| quote!(footprint::<E>(#(sizes.#symbols),*).check_in::<E, D, T>(operation.dtype(), #label)?;));
        let checks = self.emit_checks();
        quote! {
            let sizes = Sizes { #(#sizes),* };
            #check_sizes
            #check_memory
            let inputs = Inputs { #(#inputs,)* __types: p::PhantomData };
            let data = (#(#data,)*);
            let call = Call::<E> { sizes, inputs, data };
            #checks
        }
    }

    /// The inputs that an attention reads.
    fn emit_data(&self, node: &Node, attention: &Attention) -> TokenStream {
        let spec = &self.model().attentions[attention.index].spec;
        let query = self.ty(node.operands[0]);
        let key = self.ty(node.operands[attention.inputs.keys]);
        let lead = (query.axes.len() > 2).then(|| self.cx.axis(&query.axes[0]));
        let lead = lead.map(|batch| quote!(#batch,));
        let [query, key] = [query, key].map(|ty| self.cx.axis(&ty.axes[ty.axes.len() - 2]));
        let (label, shape) = (spec.item.name.to_string(), quote!((#lead #query, #key)));
        let reads = self.model().data(node).into_iter().map(|(data, tensors)| {
            let axes = &self.ty(tensors[0]).axes;
            let axes = axes.iter().map(|axis| self.cx.axis(axis));
            let of = input::Given {
                shape: &shape,
                own_shape: &quote!((#(#axes,)*)),
                batched: lead.is_some(),
            };
            let given = self.cx.data_of_call(node, tensors, |id| self.value(id));
            input::read_given(&label, data, of, &given)
        });
        let reads = reads.collect::<Vec<_>>();
        let axes = self.axes(&node.operands, attention);
        if reads.is_empty() {
            return quote!(());
        }
        quote!({
            let axes = #axes;
            (#(#reads,)*)
        })
    }

    /// Every tensor can exist.
    fn emit_check_sizes(&self, label: &str) -> TokenStream {
        let mut shapes: Vec<(String, Vec<Axis>, TokenStream)> = Vec::new();
        let mut push = |axes: &[Axis], width: TokenStream| {
            let names: Vec<_> = axes.iter().map(Axis::to_string).collect();
            let name = format!("{} {width}", names.join(" "));
            if shapes.iter().all(|(other, ..)| *other != name) {
                shapes.push((name, axes.to_vec(), width));
            }
        };
        let scans = self.model().body.scans().into_iter();
        for id in scans.flat_map(Scan::defined) {
            let axes = &self.ty(id).axes;
            let (before, last) = axes.split_at(axes.len().saturating_sub(1));
            push(before, product(last));
        }
        for node in self.model().nodes() {
            for id in node.results() {
                let ty = self.ty(id);
                let (before, last) = ty.axes.split_at(ty.axes.len().saturating_sub(1));
                push(before, product(last));
            }
            let ty = self.ty(node.result);
            let (before, _) = ty.axes.split_at(ty.axes.len().saturating_sub(1));
            if let Some(hidden) = node.op.cost(&FusedNode::new(self, node).extents()).hidden {
                push(before, hidden);
            }
        }
        let checks = shapes.iter().map(|(_, axes, width)| {
            let axes = axes.iter().map(|axis| {
                let name = axis.to_string();
                let size = size(axis);
                quote!((#name, #size))
            });
            quote!(p::check_sizes(#label, &[#(#axes,)* ("width", #width)])?;)
        });
        let numbers = shapes.iter().map(|(_, axes, width)| {
            let rows = product(axes);
            quote!(#rows * #width)
        });
        quote! {
            #(#checks)*
            let numbers = p::largest(&[#(#numbers),*]);
        }
    }

    /// Ids are in their tables, sequences no longer than their positions, lengths within sequences, and every attention finds
    /// what it reads.
    fn emit_checks(&self) -> TokenStream {
        let nodes = self.model().nodes().into_iter();
        let checks = nodes.filter_map(|node| node.op.check(&FusedNode::new(self, node)));
        checks.collect()
    }

    /// The weights, which all functions share.
    pub(super) fn emit_weights(&self) -> TokenStream {
        let modules = self.model().structs();
        let weights = modules.map(|id| self.emit_weights_of(self.model().module(id)));
        let weights = weights.filter(|_| self.model().function.is_none());
        quote!(#(#weights)*)
    }

    /// The values that are kept: of the function, and of the body of each `repeat`.
    pub(super) fn emit_saved(&self) -> TokenStream {
        let mut saved = Vec::new();
        self.emit_saved_of(
            self.whole_saved(),
            &self.model().grouped,
            self.plan(),
            &mut saved,
        );
        saved.into_iter().collect()
    }

    /// The type of what the function keeps.
    pub(super) fn whole_saved(&self) -> Ident {
        self.type_name(&self.model().modules[0], "Saved")
    }

    fn emit_weights_of(&self, module: &Module) -> TokenStream {
        let name = self.cx.module_name(module);
        let weights = self.weights_type(module);
        let read = module.fields.iter().filter(|of| !self.is_taken(module, of));
        let read: Vec<_> = read.collect();
        let fields: Vec<_> = read.iter().map(|of| field(&of.name)).collect();
        let values = read.iter().map(|of| self.emit_weights_field(of));
        let types = read.iter().map(|of| {
            let layer = item::layer_type(self.cx, &of.layer, &quote!(, E));
            quote!(<#layer as p::FusedLayer<E>>::Weights)
        });
        quote_spanned! {self.cx.at=>
            #[allow(dead_code)]
            pub struct #weights<E: p::Element> {
                #(#fields: #types,)*
                __types: p::PhantomData<E>,
            }

            impl<E: p::Element> p::WantsGradient for #weights<E> {
                fn slots(&self, visit: p::VisitSlot<'_>) {
                    p::visit_slots(&[#(&self.#fields),*], visit);
                }
            }

            impl<E: p::Element> p::VisitWeights<E> for #weights<E> {
                fn visit_weights(&mut self, visit: p::WeightVisitor<'_, E>) {
                    p::visit_weights(&mut [#(&mut self.#fields),*], visit);
                }
            }

            impl<E: p::Element, D: p::Storage<E>> p::FusedLayer<E> for #name<E, D> {
                type Weights = #weights<E>;
            }

            impl<E: p::Element, D: p::Backend<E>> p::Weighted<E, D> for #name<E, D> {
                fn weights<T: p::Tape<E, D>>(
                    &self,
                    operation: &mut p::Operation<E, D, T>,
                ) -> Result<Self::Weights, D::Err> {
                    Ok(#weights {
                        #(#fields: #values,)*
                        __types: p::PhantomData,
                    })
                }
            }
        }
    }

    /// Whether an attention reads the parameters of a layer, and nobody else.
    fn is_taken(&self, module: &Module, of: &Field) -> bool {
        let mut taken = self.model().taken.iter();
        taken.any(|place| {
            place.field == of.name && std::ptr::eq(self.model().module(place.module), module)
        })
    }

    /// The line that reads the parameters of a layer.
    fn emit_weights_field(&self, of: &Field) -> TokenStream {
        let name = field(&of.name);
        let projected: Vec<_> = match of.layer {
            Submodule::Attention(index) => self.model().attentions[index].projected().collect(),
            _ => Vec::new(),
        };
        if projected.is_empty() {
            return quote!(p::Weighted::weights(&self.#name, operation)?);
        }
        let layers = projected
            .iter()
            .map(|projected| field(&projected.place.field));
        quote!(p::WithProjections::weights(&self.#name, &[#(&self.#layers),*], operation)?)
    }

    /// The struct of what a region keeps, and those of the loops in it.
    pub(super) fn emit_saved_of(
        &self,
        name: Ident,
        region: &Region,
        plan: &Forward,
        structs: &mut Vec<TokenStream>,
    ) {
        let values = plan.saved.iter().map(|id| {
            let name = self.value(*id);
            match self.ty(*id).kind {
                ValueKind::Ids => quote!(#name: p::IdArray),
                _ => quote!(#name: p::Array<E>),
            }
        });
        let kept = self.kept_of(region);
        structs.push(quote_spanned! {self.cx.at=>
            /// Values that the derivative reads.
            struct #name<E: p::Element> {
                #(#values,)*
                #(#kept,)*
                __types: p::PhantomData<E>,
            }
        });
        for (step, planned) in region.steps.iter().zip(&plan.steps) {
            if let Step::Repeat(repeat) = step {
                let name = self.saved_type(repeat);
                self.emit_saved_of(name, &repeat.body, &planned.body, structs);
            }
            if let Step::Scan(scan) = step {
                self.emit_saved_of_step(scan, structs);
            }
        }
    }

    /// The fields of what a region keeps beside values.
    pub(super) fn kept_of(&self, region: &Region) -> Vec<TokenStream> {
        let kept = region.steps.iter().flat_map(|step| match step {
            Step::Node(node) if keeps_memory(node) && self.is_again(node) => {
                let seeds = self.seeds(node);
                let seeds = seeds.map(|name| quote!(#name: p::Seeds));
                seeds.into_iter().collect()
            }
            Step::Node(node) => {
                let name = self.kept(node.result);
                let ty = self.kept_type(node);
                ty.map(|ty| quote!(#name: #ty)).into_iter().collect()
            }
            Step::Repeat(repeat) => {
                let name = self.kept_of_rounds(repeat);
                let ty = self.saved_type(repeat);
                vec![quote!(#name: p::Vec<#ty<E>>)]
            }
            Step::Scan(scan) => {
                let fields = self.fields_of_scan(scan).into_iter();
                fields.map(|(name, ty)| quote!(#name: #ty)).collect()
            }
        });
        kept.collect()
    }

    fn kept_type(&self, node: &Node) -> Option<TokenStream> {
        Some(match node.op.properties().kept? {
            Kept::Array => quote!(p::Array<E>),
            Kept::Hidden => quote!(p::layers::Hidden<E>),
            Kept::Dropout => quote!(p::layers::Dropout),
            Kept::Loss => quote!(p::layers::KeptLoss<E>),
            Kept::Attention => {
                let attention = self.attention(node.attention()?);
                quote!(#attention::Saved)
            }
        })
    }

    pub(super) fn body_of(&self, repeat: &Repeat) -> &Module {
        self.model().module(repeat.module)
    }
}
