//! Completions and hover texts of rust-analyzer inside of the macros. Without rust-analyzer each test reports this; with
//! `ATTN_EDITOR=required` it fails.

mod completions;
mod meanings;
mod server;

use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::Result;
use server::Server;

/// Queries the server, which all tests share and which loads the program once.
fn ask<T>(question: impl FnOnce(&mut Server) -> Result<T>) -> Option<T> {
    static SERVER: OnceLock<Option<Mutex<Server>>> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        let is_required = std::env::var("ATTN_EDITOR").is_ok_and(|value| value == "required");
        assert!(
            server::is_there() || !is_required,
            "there is no rust-analyzer: `rustup component add rust-analyzer`"
        );
        let server = server::is_there().then(Server::start);
        server.map(|server| Mutex::new(server.expect("rust-analyzer loads a program")))
    });
    let Some(server) = server else {
        eprintln!("skipped: there is no rust-analyzer, `rustup component add rust-analyzer`");
        return None;
    };
    let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
    Some(question(&mut server).expect("rust-analyzer answers"))
}

/// `attention!` with these keys, and an optional body.
fn layer(keys: &str, end: &str) -> String {
    format!("attn::attention! {{ pub struct Layer<heads = 2, d_model = 8, {keys}>{end} }}")
}

/// `attention!` with these items in its body.
fn body(items: &str) -> String {
    layer(
        "mask = causal",
        &format!(
            "{{
                param slope: [heads] = ones;
                data far: [batch, kv_len];
                {items}
            }}"
        ),
    )
}

/// `model!` with these statements.
fn model(statements: &str) -> String {
    format!(
        "attn::model! {{
            pub struct Model<d_model = 8, hidden = 32>;
            fn forward(x: [batch, seq, d_model], lens: lens[batch]) -> [batch, seq, d_model] {{
                {statements}
            }}
        }}"
    )
}
