//! Spellings of other libraries and languages: each is one error, which says what to write.

use super::expand;
use crate::tests::support::reports;

/// A model, of which one line is replaced by a wrong one.
const LINES: [&str; 8] = [
    "struct Net<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;",
    "fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {",
    "let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);",
    "repeat layers {",
    "x = x + attention::<heads, mask = causal>(layer_norm(x));",
    "}",
    "linear::<vocab>(layer_norm(x))",
    "}",
];

/// The tokens and messages of the errors.
fn errors(line: usize, wrong: &str) -> Vec<(String, String)> {
    let mut lines = LINES;
    lines[line] = wrong;
    let source = lines.join("\n");
    let found = reports(&expand(&source)).into_iter().map(|report| {
        let at = report.at.expect("an error stands somewhere");
        (source[at].to_owned(), report.message)
    });
    found.collect()
}

#[test]
fn the_model_without_a_mistake_has_no_error() {
    assert_eq!(errors(0, LINES[0]), []);
}

/// The comment is the only mistake: there is no second error.
#[test]
fn a_comment_alone_is_one_error() {
    let found = reports(&expand("# blocks"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].message.contains("`//`"), "{found:?}");
}

/// The line, the mistake, the token of the error, and parts of its message.
#[test]
fn one_mistake_is_one_error_with_what_to_write() {
    let is_right = |(line, wrong, at, says): &Case| match errors(*line, wrong).as_slice() {
        [(found, message)] => {
            found.starts_with(at) && says.iter().all(|part| message.contains(part))
        }
        _ => false,
    };
    let wrong: Vec<_> = CASES.iter().filter(|case| !is_right(case)).collect();
    let found: Vec<_> = wrong.iter().map(|case| errors(case.0, case.1)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}\n{found:#?}");
}

type Case = (usize, &'static str, &'static str, &'static [&'static str]);

#[rustfmt::skip]
const CASES: &[Case] = &[
    // The header.
    (0, "struct Net { vocab: 65, d_model: 32, heads: 4, layers: 2, max_len: 64 }", "{",
        &["angle brackets", "`struct Net<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;`"]),
    (0, "struct Net(vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64);", "(", &["`struct Net<vocab = 65, "]),
    (0, "struct Net<vocab: usize = 65, d_model: usize = 32, heads: usize = 4, layers: usize = 2, max_len: usize = 64>;", "vocab",
        &["expected `name = size`", "every size is a `usize`: `vocab = 65`"]),
    (0, "struct Net<const vocab: usize = 65, const d_model: usize = 32, const heads: usize = 4, const layers: usize = 2, const max_len: usize = 64>;",
        "const", &["`vocab = 65`"]),
    (0, "struct Net<vocab = 65, d_model = 32.0, heads = 4, layers = 2, max_len = 64>;", "32.0",
        &["`d_model` expects a positive whole number, found `32.0`"]),
    (0, "struct Net<vocab = \"65\", d_model = 32, heads = 4, layers = 2, max_len = 64>;", "\"65\"",
        &["`vocab` expects a positive whole number"]),
    (0, "struct Net<vocab = 65, d_model = 8 * heads, heads = 4, layers = 2, max_len = 64>;", "heads",
        &["reads `heads`, which is not set yet", "declare `heads` before `d_model`"]),
    (0, "struct Net<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64, mask = causal>;", "mask",
        &["`mask` is none", "`attention::<heads, mask = causal>(x)`"]),
    (0, "struct Net<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64, dropout = 0.1>;", "dropout",
        &["`attention::<.., dropout = dropout>(x)`"]),
    // The signature.
    (1, "fn forward(tokens: ids[batch; seq]) -> [batch, seq, vocab] {", ";", &["expected `,` between axes", "`[batch, seq]`"]),
    (1, "fn forward(tokens: ids[batch, seq]) -> Tensor {", "Tensor", &["expected a shape, found `Tensor`", "`[batch, seq, d_model]`"]),
    (1, "fn forward(tokens: ids[_, seq]) -> [_, seq, vocab] {", "_", &["found `_`", "`[batch, seq]`"]),
    (1, "fn forward(tokens: ids[-1, seq]) -> [-1, seq, vocab] {", "-", &["found `-1`", "`[batch, seq]`"]),
    (1, "fn forward(tokens: ids[..]) -> [.., vocab] {", "..", &["found `..`", "`[batch, seq]`"]),
    (1, "fn forward(tokens: ids[None, seq]) -> [None, seq, vocab] {", "None", &["found `None`", "`[batch, seq]`"]),
    // Variables.
    (2, "x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);", "x",
        &["there is no variable `x`", "`let mut x = ..;`"]),
    (2, "let q, k = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);", ",",
        &["several names stand in parentheses", "`let x = ..;`"]),
    (2, "let hidden = 4 * d_model; let mut x = embedding::<vocab, d_model>(tokens); x = feed_forward::<hidden>(x);", "*",
        &["found a number", "`struct Net<.., hidden = { 4 * d_model }>;`"]),
    // Keys in other brackets, and other names.
    (2, "let mut x = embedding(vocab, d_model)(tokens);", "(", &["`embedding::<vocab, d_model>(tokens)`"]),
    (2, "let mut x = embedding[vocab, d_model](tokens);", "[", &["`embedding::<vocab, d_model>(tokens)`"]),
    (2, "let mut x = embedding(tokens, vocab, d_model);", "vocab", &["`embedding::<vocab, d_model>(x)`"]),
    (2, "let mut x = nn::Embedding(vocab, d_model)(tokens);", "nn", &["found `nn::Embedding`", "`embedding::<vocab, d_model>(ids)`"]),
    (2, "let mut x = attn::embedding::<vocab, d_model>(tokens);", "attn", &["`embedding::<vocab, d_model>(x)`"]),
    (2, "let mut x = embedding::<num_embeddings = vocab, d_model = d_model>(tokens);", "num_embeddings", &["did you mean `vocab`?"]),
    (2, "let mut x = embedding::<vocab, embedding_dim = d_model>(tokens);", "embedding_dim", &["did you mean `d_model`?"]),
    (2, "let mut x = embedding::<vocab, d_model>(tokens) + sinusoidal_position::<max_len, d_model>(tokens);", "max_len",
        &["`sinusoidal_position::<d_model>(x)`"]),
    (2, "let mut x = embedding::<vocab, d_model>(tokens) * tan(d_model);", "tan", &["unknown operation `tan`", "`sin(x) / cos(x)`"]),
    (2, "let mut x = embedding::<vocab, d_model>(tokens) * consts::SCALE;", "consts", &["`{ consts::SCALE }`"]),
    (4, "x = x + attention::<heads>(layer_norm(x, 1e-5));", "1e-5", &["`layer_norm::<epsilon = 1e-5>(x)`"]),
    (4, "x = x + attention::<heads>(dropout(layer_norm(x), 0.1));", "0.1", &["`dropout::<0.1>(x)`"]),
    (4, "x = x + attention::<heads>(layer_norm(x).dropout(0.1));", ".", &["`dropout::<p>(x)`"]),
    (4, "x = x + dropout::<dropout>(x);", "dropout", &["`dropout` is an operation", "`struct Net<dropout = 0.1>;`"]),
    (4, "x = x + attention::<heads, causal>(layer_norm(x));", "causal", &["did you mean `mask = causal`?"]),
    (4, "x = x + attention::<heads, causal = true>(layer_norm(x));", "causal", &["did you mean `mask = causal`?"]),
    (4, "x = x + attention::<heads>(layer_norm(x), mask = causal);", "mask", &["`attention::<heads, mask = causal>(x)`"]),
    (4, "x = x + attention::<heads, mask = causal>(layer_norm(x), padding = tokens);", "padding", &["`mask = causal & padding`"]),
    (4, "x = x + attention::<heads>(layer_norm(x)) { fn mask(q, kv_idx) { kv_idx <= q } };", "q", &["did you mean `q_idx`?"]),
    (4, "x = x + attention::<heads, mask = |q, k| q >= k>(layer_norm(x));", "|q, k| q >= k", &["`mask` expects a word, found a closure"]),
    (4, "x = x + attention::<heads, mask = |q, k| q > k>(layer_norm(x));", "|q, k| q > k", &["`mask` expects a word, found a closure"]),
    (4, "x = x + attention::<heads, normalizer = relu^2>(layer_norm(x));", "relu^2", &["`relu(2)`"]),
    (4, "x = x + feed_forward::<128, gelu_tanh>(x);", "gelu_tanh", &["did you mean `activation = gelu_tanh`?"]),
    (4, "x = x ** 2;", "*", &["`x * x`"]),
    (4, "x = x % 2;", "%", &["`x - y * floor(x / y)`"]),
    (4, "x = x > 0;", ">", &["`if x < y { x } else { y }`"]),
    (4, "x = x * (x == 0);", "=", &["`if x < y { x } else { y }`"]),
    (4, "x = relu(x) if x > 0 else x;", "if", &["`if x < 0 { 0 } else { x }`"]),
    (4, "x = if arange::<seq>() <= arange::<kv>() { x } else { 0 };", "kv", &["`arange::<seq>() as [kv = seq]`"]),
    (4, "x = x + x[d_model = 0, seq = 0] * one_hot::<d_model>(arange::<1>())[1 = 0];", "*",
        &["left is [batch], right is [32]", "`expand::<[batch, 32]>(left)`"]),
    (4, "x = x + layer_norm(x)?;", "?", &["remove it"]),
    // Statements.
    (3, "# blocks\nrepeat layers {", "#", &["`//`"]),
    (3, "println!(\"{:?}\", x);\nrepeat layers {", "println", &["`println!`", "`Net::summary_of(batch, seq)`"]),
    (3, "repeat layers, name = \"blocks\" {", "\"blocks\"", &["found `\"blocks\"`", "`name = blocks`"]),
    (5, "};", ";", &["remove it"]),
    // The result.
    (6, "linear(layer_norm(x), vocab)", "vocab", &["`linear::<vocab>(x)`"]),
    (6, "linear::<tied = \"embedding\">(layer_norm(x))", "\"embedding\"", &["`tied = embedding`"]),
    (6, "linear::<tied = true>(layer_norm(x))", "true", &["`tied = embedding`"]),
    (6, "linear::<tied = embedding.weight>(layer_norm(x))", "embedding", &["`tied = embedding`"]),
    (6, "linear::<vocab, name = \"head\">(layer_norm(x))", "\"head\"", &["`name = head`"]),
    (6, "linear::<vocab, name = 3>(layer_norm(x))", "3", &["`name = head`"]),
    (6, "linear::<vocab>(layer_norm(x[:, -1]))", ":", &["`x[seq = -1]`"]),
    (6, "linear::<vocab>(layer_norm(x.narrow(1, 0, 4)))", ".", &["no methods"]),
    (6, "linear::<vocab>(narrow(x, 1, 0, 4))", "narrow", &["`x[seq = 1..3]`"]),
    (6, "linear::<vocab>(chunk(x, 2))", "chunk", &["`let (a, b) = split::<axis>(x);`"]),
    (6, "linear::<vocab>(x + unsqueeze(x, 1))", "unsqueeze", &["by the names of their axes"]),
    (6, "linear::<vocab>(squeeze(x, 1))", "squeeze", &["`x[axis = 0]`"]),
    (6, "linear::<vocab>(view(x, 2, -1))", "view", &["`rearrange::<[batch, (heads, d_head)] -> [batch, heads, d_head]>(x)`"]),
    (6, "linear::<vocab>(x.reshape(2, -1))", ".", &["no methods"]),
    (6, "linear::<vocab>(flatten(x))", "flatten", &["which merges two"]),
    (6, "linear::<vocab>(unfold(x, 1, 3, 1))", "unfold", &["`windows::<seq, size = 3, step = 1, to = n>(x)`"]),
    (6, "linear::<vocab>(roll(x, 1))", "roll", &["`shift::<seq, 1>(x)`"]),
    (6, "linear::<vocab>(vstack(x, x))", "vstack", &["`stack::<[2, batch, d_model]>(a, b)`"]),
    (6, "linear::<vocab>(rearrange(x, \"b (h w) c -> b h w c\"))", "\"b (h w) c -> b h w c\"", &["`rearrange::<[b, (h, w), c] -> [b, h, w, c]>(x)`"]),
    (6, "linear::<vocab>(rearrange::<\"b (h w) c -> b h w c\">(x))", "\"b (h w) c -> b h w c\"", &["`rearrange::<[b, (h, w), c] -> [b, h, w, c]>(x)`"]),
    (6, "linear::<vocab>(x + nn::Parameter(zeros(d_model)))", "nn", &["`param token: [1, d_model] = normal(0.02);`"]),
    (6, "linear::<vocab, init = xavier_uniform_>(x)", "xavier_uniform_", &["did you mean `xavier_uniform`?"]),
    (6, "softmax(linear::<vocab>(layer_norm(x)), -1)", "-", &["`softmax::<seq>(x)`"]),
    (6, "sum(linear::<vocab>(x), 1)", "1", &["`sum::<seq>(x)`"]),
    (6, "linear::<vocab>(sum(x))", "sum", &["`sum::<axis = seq>(..)`"]),
    (6, "max(linear::<vocab>(x))", "max", &["`max::<seq>(x)`"]),
    (6, "linear::<vocab>(var(x))", "var", &["`variance::<seq>(x)`"]),
    (6, "linear::<vocab>(cat([x, x]))", "[", &["`concat(a, b)`"]),
    (6, "matmul(x, x)", "matmul", &["`einsum::<[batch, seq, e]>(x, w)`"]),
    (6, "einsum(\"bsd,dv->bsv\", x, x)", "\"bsd,dv->bsv\"", &["`einsum::<[batch, seq, e]>(x, w)`"]),
    (6, "einsum(x, x, \"b s d, d v -> b s v\")", "\"b s d, d v -> b s v\"", &["by their names"]),
    (6, "linear::<vocab>(x) @ x", "@", &["`einsum::<[batch, seq, e]>(x, w)`"]),
    (6, "linear::<vocab>(elu(x))", "elu", &["`if x > 0 { x } else { exp(x) - 1 }`"]),
    (6, "linear::<vocab>(softplus(x))", "softplus", &["`max(x, 0) + ln(1 + exp(-abs(x)))`"]),
    (6, "let last = tokens; linear::<vocab>(x[seq = last - 1])", "last", &["ids have no arithmetic, found `last - 1`", "`x[seq = last]`"]),
    (6, "linear::<vocab>(x.view(2, -1))", ".", &["no methods", "which merges two"]),
    (6, "linear::<vocab>(torch.cat((x, x), -1))", ".", &["`concat(a, b)`"]),
    (6, "linear::<vocab>(x.T)", ".", &["`permute::<[seq, batch, d_model]>(x)`"]),
    (6, "linear::<vocab>(softmax(x, dim = -1))", "dim", &["`softmax::<axis = ..>(..)`"]),
    (6, "linear::<vocab>(permute(x, 0, 2, 1))", "0", &["`permute::<[seq, batch, d_model]>(x)`"]),
    (6, "linear::<vocab>(x ^ 2)", "^", &["`x * x`"]),
    (6, "linear::<vocab>(where(x > 0, x, 0))", "where", &["`if x < 0 { 0 } else { x }`"]),
    (6, "linear::<vocab>(if x > 0 and x < 1 { x } else { 0 })", "and", &["`&&`"]),
    (6, "linear::<vocab>(if not x > 0 { x } else { 0 })", "not", &["`!`"]),
    (6, "self.head(layer_norm(x))", "self", &["by their names"]),
    (6, "return linear::<vocab>(layer_norm(x))", "return", &["without `return`"]),
    (6, "linear::<vocab>(x[seq = 0:3])", "0", &["`0..3`"]),
    (6, "linear::<vocab, activation = relu>(x)", "activation", &["`relu(linear::<out>(x))`"]),
    (6, "linear::<vocab>(x + mean::<seq, keepdim = true>(x))", "keepdim", &["by the names of the axes"]),
    // The statements behind a mistake are read all the same.
    (6, "let last = argmax::<seq>(x); linear::<vocab>(foo(x)[seq = last])", "foo", &["unknown operation `foo`"]),
    (6, "MyHead(x)", "MyHead", &["`module::<MyHead, out = [batch, seq, d_model]>(x)`"]),
    (6, "linear::<vocab>(layer_norm(x)), x", ",", &["`(x, y)`"]),
    (6, "module::<Net, out = [batch, seq, vocab]>(x)", "Net", &["`Net` contains itself", "`repeat 2 { .. }`"]),
];
