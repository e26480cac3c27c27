//! The networks that the program is compiled for.

use crate::folder::Folder;
use anyhow::{Context, Result, bail};
use attn::{generate::Session, prelude::*};
use zoo::families;

/// Each family of the gallery with a network of it. A network takes some seconds to compile.
macro_rules! networks {
    ($($family:ident: $network:ty,)*) => {
        /// The networks, as they stand below.
        const NAMES: &[&str] = &[$(stringify!($network)),*];

        /// A session of the network with the sizes of this folder's `config.json`.
        ///
        /// # Errors
        /// If there is none: with the declaration to paste here.
        pub(crate) fn session(folder: &Folder, capacity: usize) -> Result<Session<f32>> {
            let family = families::of_config(&folder.config)?;
            let config = (family.config)();
            $(
                if family.name == stringify!($family) && config.check::<$network>(folder.config.clone()).is_ok() {
                    let mut network = Cpu::default().build_module::<$network, f32>();
                    let weights = family.weights(&folder.path, &folder.config)?;
                    zoo::load(&mut network, &folder.path, &config, &weights)?;
                    return network.session(capacity).with_context(|| format!("--context {capacity}"));
                }
            )*
            other_sizes(family, folder)
        }
    };
}

networks! {
    gpt2: zoo::gpt2::Gpt2,
    llama: zoo::llama::Llama,
    qwen2: zoo::qwen2::Qwen2,
    smollm: zoo::smollm::SmolLm,
    smollm: tiny::SmolLm,
}

/// The sizes of a checkpoint that the tests have.
mod tiny {
    use attn::prelude::*;

    model! {
        use zoo::smollm::smollm;

        pub(crate) struct SmolLm<
            vocab = 61, d_model = 24, heads = 4, kv_heads = 2, hidden = 40, layers = 2, theta = 1000.0, epsilon = 1e-3,
        >;

        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            smollm::<..>(tokens)
        }
    }
}

/// The lines to add to this file.
fn other_sizes(family: families::Family, folder: &Folder) -> Result<Session<f32>> {
    let declaration = family.declaration(&folder.config)?;
    bail!(
        "this program is compiled for {}, and not for the sizes of this config.json. Paste this declaration into examples/zoo/chat/networks.rs, \
         add `{}: {},` to `networks!`, and compile it again:\n\n{declaration}",
        NAMES.join(", "),
        family.name,
        family.network
    )
}
