//! Every mistake is reported once, at its token, which is marked by `«` and `»` here.

use super::layer;
use crate::tests::support::{check_source, expand, parse_file, reports, unmarked};

/// Claims that these messages, in this order, are reported for a marked body. One that ends in `..` is the start of a message.
/// The end of the body may be among the marked tokens.
fn check(body: &str, messages: &[&str]) {
    let open = body.strip_suffix("«}»");
    let marked = match open {
        Some(body) if body.matches('{').count() == body.matches('}').count() => {
            layer(body).trim_end_matches('}').to_owned() + "«}»"
        }
        _ => layer(body),
    };
    check_source(&marked, messages);
}

/// The same for an expression, which is added to the score.
fn check_expr(expr: &str, messages: &[&str]) {
    let body = format!(
        "param slope: [heads] = ones;
         param bias: [heads, 3] = zeros;
         fn score(score, h, q_idx, kv_idx) {{ score + {expr} }}"
    );
    check(&body, messages);
}

macro_rules! mistakes {
    ($($name:ident by $check:ident: { $($body:literal => $($message:literal),+;)* })*) => {$(
        #[test]
        fn $name() {
            $($check($body, &[$($message),+]);)*
        }
    )*};
}

mistakes! {
    items by check: {
        "«date» bias: [heads];" => "expected `param`, `data`, `fn score`, `fn mask` or `fn normalize`, found `date`\nhelp: a body has `param ..";
        "«pub» param a: [heads] = zeros;" => "expected `param`, `data`, `fn score`, `fn mask` or `fn normalize`, found `pub`\nhelp: a body has `param ..";
        "fn «scor»(score) { score }" => "a body has no `fn scor`, it has `fn score`, `fn mask` and `fn normalize`\nhelp: did you mean `score`?";
        "fn «normalise»(score) { score }" => "a body has no `fn normalise`, it has `fn score`, `fn mask` and `fn normalize`\nhelp: did you mean `normalize`?";
        "fn «score_mod»(score) { score }" => "a body has no `fn score_mod`, it has `fn score`, `fn mask` and `fn normalize`\nhelp: did you mean `score`?";
        "fn «mask_mod»() { true }" => "a body has no `fn mask_mod`, it has `fn score`, `fn mask` and `fn normalize`\nhelp: did you mean `mask`?";
        "fn «window»() { true }" => "a body has no `fn window`, it has `fn score`, `fn mask` and `fn normalize`\nhelp: a body has `param ..";
        "fn «(»score) { score }" => "expected `score`, `mask` or `normalize`, found `(score)`\nhelp: a body has `param ..";
        "«struct»" => "expected `param`, `data`, `fn score`, `fn mask` or `fn normalize`, found `struct`\nhelp: a body has `param ..";
        "/// Of nothing.\n«}»" => "expected `param`, `data`, `fn score`, `fn mask` or `fn normalize`, found nothing\nhelp: a body has `param ..";
        "fn score(score) { score } fn «score»(score) { score }" => "`score` is declared twice\nhelp: rename or remove one of them";
        "«#[inline]» fn score(score) { score }" => "`inline` has no meaning here\nhelp: remove it; documentation may stay";
        "«#[cfg(test)]» fn mask() { true }" => "`cfg` has no meaning here\nhelp: a layer is there as a whole: put it before `struct`";
        "fn score(score) «-> f32» { score }" => "expected `{` and an expression, found `-> f32`\nhelp: the value of `fn score` is a float, its type is not written";
        "fn score(score) «= score»; fn mask() { true }" => "expected an expression in braces, found `= score`\nhelp: write `fn score(score, b, h, q_idx, kv_idx, q_len, kv_len) { .. }`; ..";
        "fn score«[»score] { score }" => "expected arguments in parentheses, found `[score]`\nhelp: write `fn score(score, b, h, q_idx, kv_idx, q_len, kv_len) { .. }`; ..";
        "fn score(score)«}»" => "expected an expression in braces, found nothing\nhelp: write `fn score(score, b, h, q_idx, kv_idx, q_len, kv_len) { .. }`; ..";
        "fn mask() { «data» } «const» A: f32 = 1.0;" => "unknown name `data`\nhelp: there are no names here; a `const` is written in capitals", "expected `param`, `data`, `fn score`, `fn mask` or `fn normalize`, found `const`\nhelp: a body has `param ..";
    }
    arguments by check: {
        "fn score(«score: f32», h) { score + h as f32 }" => "expected the name of an argument, found `score:f32`\nhelp: names alone: their types are known";
        "fn score(score, «2») { score }" => "expected the name of an argument, found `2`\nhelp: names alone: their types are known";
        "fn score(score, «hd») { score }" => "`fn score` has no argument `hd`\nhelp: did you mean `h`?";
        "fn score(score, «query») { score }" => "`query` is a vector, and a function of the score reads none..";
        "fn score(«q», «k») { q * k }" => "`q` is a vector, and a function of the score reads none\nhelp: `score` is what the header makes of a query and a key..", "`k` is a vector, ..";
        "fn mask(«q», «k») { k <= q }" => "`fn mask` has no argument `q`\nhelp: did you mean `q_idx`?", "`fn mask` has no argument `k`\nhelp: did you mean `kv_idx`?";
        "fn score(score, «head», «i», «batch») { score * head + i - batch as f32 }" => "`fn score` has no argument `head`\nhelp: did you mean `h`?", "`fn score` has no argument `i`\nhelp: did you mean `q_idx`?", "`fn score` has no argument `batch`\nhelp: did you mean `b`?";
        "fn score(score, h, «h») { score * (h as f32) }" => "the argument `h` stands twice\nhelp: remove one of them";
        "fn score(h, «score») { score * (h as f32) }" => "`score` is the first argument\nhelp: write `fn score(score, ..)`";
        "fn mask(«score», q_idx, kv_idx) { q_idx < kv_idx }" => "a mask does not read the score: which keys a query attends to is known before\nhelp: what depends on the score belongs in `fn score`";
        "fn mask(«mut h») { h < 2 }" => "expected the name of an argument, found `mut h`\nhelp: names alone: their types are known";
    }
    learned_tensors by check: {
        "param «=» [heads] = ones;" => "expected a name, found `=`\nhelp: write `param name: [heads] = zeros;`";
        "param «fn» score(score) { score }" => "expected a name, found `fn`\nhelp: write `param name: [heads] = zeros;`";
        "param slope «=» [heads] = ones;" => "expected `:`, found `=`\nhelp: write `param name: [heads] = zeros;`";
        "param slope: «heads» = ones;" => "expected sizes in brackets, found `heads`\nhelp: write `param name: [heads] = zeros;`";
        "param slope: [heads]«;»" => "expected `=` and an initializer, found `;`\nhelp: write `param name: [heads] = zeros;`";
        "param slope: [heads] =«;»" => "expected an initializer, found `;`\nhelp: write `param name: [heads] = zeros;`";
        "param slope: [heads] = ones «fn» mask() { true }" => "expected `;`, found `fn`\nhelp: write `param name: [heads] = zeros;`";
        "param slope: [heads] = ones«}»" => "expected `;`, found nothing\nhelp: write `param name: [heads] = zeros;`";
        "«#[cfg(test)]» param slope: [heads] = ones; fn score(score, h) { score * slope[h] }" => "`cfg` has no meaning here\nhelp: a layer is there as a whole: put it before `struct`";
        "param slope: [heads] = ones; param «slope»: [8] = zeros; fn score(score, h) { score * slope[h] }" => "`slope` is declared twice\nhelp: rename or remove one of them";
        "param «q_proj»: [heads] = ones; fn score(score, h) { score * q_proj[h] }" => "`q_proj` is a field that layers have already\nhelp: choose another name than `q_proj`, ..";
        "param «rel_pos_bias»: [heads] = ones; fn score(score, h) { score * rel_pos_bias[h] }" => "`rel_pos_bias` is a field that layers have already\nhelp: choose another name than `q_proj`, ..";
        "param «r#type»: [heads] = ones; fn score(score, h) { score * r#type[h] }" => "`r#type` cannot name a saved parameter\nhelp: choose a name without `r#`";
        "param «h»: [heads] = ones; fn score(score) { score }" => "`h` is an argument of the functions\nhelp: choose another name";
        "param «score»: [heads] = ones; fn mask() { true }" => "`score` is an argument of the functions\nhelp: choose another name";
        "param slope: «[]» = ones; fn score(score) { score + slope }" => "expected 1 to 6 sizes with commas between, found `[]`\nhelp: write ..";
        "param slope: «[]» = ones; fn score(score) { score + slope[0] }" => "expected 1 to 6 sizes with commas between, found `[]`\nhelp: write ..";
        "param slope: «[]» = ones;" => "expected 1 to 6 sizes with commas between, found `[]`\nhelp: write `[heads, 2 * WINDOW + 1]`, or `[1]` for a single number";
        "param slope: «[1, 2, 3, 4, 5, 6, 7]» = ones;" => "expected 1 to 6 sizes with commas between, found `[1, 2, 3, 4, 5, 6, 7]`\nhelp: write `[heads, 2 * WINDOW + 1]`, or `[1]` for a single number";
        "param slope: «[heads heads]» = ones;" => "expected 1 to 6 sizes with commas between, found `[heads heads]`\nhelp: write `[heads, 2 * WINDOW + 1]`, or `[1]` for a single number";
        "param slope: [«0»] = ones;" => "`axis` of `slope` must be at least 1 and at most 1048576, found 0";
        "param slope: [«head»] = ones;" => "unknown size `head`\nhelp: did you mean `heads`?";
        "param slope: [2 * «head» + 1, «-1», «2.0»] = ones; fn score(score) { score * slope[8, 9, 10] }" => "unknown size `head`\nhelp: did you mean `heads`?", "`axis` of `slope` expects a positive whole number, found `-1`\nhelp: a literal, a constant, or an expression in braces: `8`, `HEADS`, `{ 2 * N }`", "`axis` of `slope` expects a positive whole number, found `2.0`\nhelp: a literal, a constant, or an expression in braces: `8`, `HEADS`, `{ 2 * N }`";
        "param slope: [«d_context»] = ones;" => "unknown size `d_context`\nhelp: the sizes are `heads`, `kv_heads`, `d_model`, `head_dim` or `value_head_dim`; a `const` is written in capitals";
        "param slope: [«quux»] = ones;" => "unknown size `quux`\nhelp: the sizes are `heads`, `kv_heads`, `d_model`, `head_dim` or `value_head_dim`; a `const` is written in capitals";
        "param slope: [«heads * 1_000_000»] = ones;" => "`axis` of `slope` must be at least 1 and at most 1048576, found 8000000";
        "param slope: «[heads, 1_000_000, 1_000]» = ones;" => "`slope` has at most 2147483648 elements in all";
        "param slope: [«\"8\"»] = ones;" => "`axis` of `slope` expects a positive whole number, found `\"8\"`\nhelp: a literal, a constant, or an expression in braces: `8`, `HEADS`, `{ 2 * N }`";
        "param slope: [heads] = «zeroes»;" => "`initializer` has no value `zeroes`\nhelp: did you mean `zeros`?";
        "param slope: [heads] = «random»;" => "`initializer` has no value `random`\nhelp: `initializer` is one of `zeros`, `ones`, `normal`, `truncated_normal`, `uniform`, `xavier_uniform`, `xavier_normal`, `kaiming_uniform`, `kaiming_normal`, `orthogonal` or `alibi_slopes`";
        "param slope: [heads] = zeros«()»;" => "`zeros` takes no arguments";
        "param slope: [heads] = «normal»;" => "`normal` needs its argument `std`\nhelp: write `normal(std)`";
        "param slope: [heads] = normal(std = «0.0»);" => "`std` of `normal` must be positive and finite, found 0";
        "param slope: [heads] = uniform(«limit» = 0.1);" => "`uniform` has no argument `limit`\nhelp: write `uniform(bound)`";
        "param slope: [heads] = uniform(«-0.1»);" => "`bound` of `uniform` must be positive and finite, found -0.1";
        "param slope: [heads] = «\"0\"»;" => "expected an initializer, found `\"0\"`\nhelp: `zeros`, `ones`, `normal(std)`, `truncated_normal(std)`, `uniform(bound)`, `xavier_uniform`, `xavier_normal`, `kaiming_uniform`, `kaiming_normal`, `orthogonal` or `alibi_slopes`, or a number";
        "param slope: [heads] = «zeros zeros»;" => "expected an initializer, found `zeros zeros`\nhelp: `zeros`, `ones`, `normal(std)`, `truncated_normal(std)`, `uniform(bound)`, `xavier_uniform`, `xavier_normal`, `kaiming_uniform`, `kaiming_normal`, `orthogonal` or `alibi_slopes`, or a number";
        "param slope: [heads] = «1e39»;" => "`1e39` is not a number that `f32` can hold";
        "param slope: [heads] = «1e999»;" => "expected an initializer, found `1e999`\nhelp: `zeros`, `ones`, `normal(std)`, `truncated_normal(std)`, `uniform(bound)`, `xavier_uniform`, `xavier_normal`, `kaiming_uniform`, `kaiming_normal`, `orthogonal` or `alibi_slopes`, or a number";
        "param slope: [4] = «alibi_slopes»; fn score(score, h) { score * slope[h] }" => "`alibi_slopes` are one for each head\nhelp: write `[heads] = alibi_slopes`";
        "param slope: [heads, heads] = «alibi_slopes»; fn score(score, h) { score * slope[h, h] }" => "`alibi_slopes` are one for each head\nhelp: write `[heads] = alibi_slopes`";
        "param slope: [HEADS] = «alibi_slopes»; fn score(score, h) { score * slope[h] }" => "`alibi_slopes` are one for each head\nhelp: write `[heads] = alibi_slopes`";
    }
    what_is_learned_reaches_the_score by check: {
        "param «slope»: [heads] = ones;" => "`slope` never reaches the score, so it would not be learned\nhelp: read it in `fn score`, as `slope[..]`, or remove it";
        "param «slope»: [heads] = ones; fn score(score) { score }" => "`slope` never reaches the score, so it would not be learned\nhelp: read it in `fn score`, as `slope[..]`, or remove it";
        "param «slope»: [heads] = ones; fn score(score, h) { let unused = slope[h]; score }" => "`slope` never reaches the score, so it would not be learned\nhelp: read it in `fn score`, as `slope[..]`, or remove it";
        "param «slope»: [heads] = ones; fn mask(q_idx, kv_idx) { kv_idx <= q_idx }" => "`slope` never reaches the score, so it would not be learned\nhelp: read it in `fn score`, as `slope[..]`, or remove it";
        "param «slope»: [heads] = ones; fn score(score, h) { score + floor(slope[h]) }" => "`slope` never reaches the score, so it would not be learned\nhelp: the derivative is zero everywhere: it cancels, or is that of `floor` or of a comparison";
        "param «slope»: [heads] = ones; fn score(score, h) { if slope[h] > 0.0 { score } else { -score } }" => "`slope` never reaches the score, so it would not be learned\nhelp: the derivative is zero everywhere: it cancels, or is that of `floor` or of a comparison";
        "param «slope»: [heads] = ones; fn score(score, h) { score + slope[h] - slope[h] }" => "`slope` never reaches the score, so it would not be learned\nhelp: the derivative is zero everywhere: it cancels, or is that of `floor` or of a comparison";
        "param «slope»: [heads] = ones; fn score(score, h) { score + slope[h] / slope[h] }" => "`slope` never reaches the score..";
        "param «slope»: [heads] = ones; fn score(score, h) { let a = slope[h]; score + (a + 1.0) * (a - 1.0) - a * a }" => "`slope` never reaches the score..";
        "param «slope»: [heads] = ones; fn score(score, h, q_idx) { let a = slope[h]; score + a - if q_idx > 3 { a } else { a } }" => "`slope` never reaches the score..";
        "fn «score»(score, h) { score * (h as f32 / score) }" => "`fn score` does not change with `score`..";
        "param «bias»: [2, 3] = ones; fn score(score, h) { score + 0.0 * bias[1, 2] }" => "`bias` never reaches the score, so it would not be learned\nhelp: the derivative is zero everywhere: it cancels, or is that of `floor` or of a comparison";
        "fn «score»(score, h) { h as f32 }" => "`fn score` does not read `score`, so queries and keys would not be learned\nhelp: modify the score, as `score + ..`, or leave `score` out of the arguments: then there are no queries and keys";
        "fn «score»(score) { floor(score) }" => "`fn score` does not change with `score`: its derivative is zero everywhere, so queries and keys would not be learned\nhelp: modify the score, as `score + ..`, or leave `score` out of the arguments: then there are no queries and keys";
        "fn «score»(score) { if score > 0.0 { 1.0 } else { -1.0 } }" => "`fn score` does not change with `score`: its derivative is zero everywhere, so queries and keys would not be learned\nhelp: modify the score, as `score + ..`, or leave `score` out of the arguments: then there are no queries and keys";
        "fn «score»(score, h) { score - score + h as f32 }" => "`fn score` does not change with `score`: its derivative is zero everywhere, so queries and keys would not be learned\nhelp: modify the score, as `score + ..`, or leave `score` out of the arguments: then there are no queries and keys";
    }
    values_of_functions by check: {
        "fn score(score, h) { «h» }" => "`fn score` gives a float, found an integer\nhelp: write `h as f32`";
        "fn score(score) { «score > 0.0» }" => "`fn score` gives a float, found a condition\nhelp: write `if score > 0.0 { 1.0 } else { 0.0 }`";
        "fn score(score, h) { «if h < 2 { 1 } else { 2 }» }" => "`fn score` gives a float, found an integer\nhelp: write `(if h < 2 { 1 } else { 2 }) as f32`";
        "fn mask(q_idx, kv_idx) { «q_idx - kv_idx» }" => "`fn mask` gives a condition, found an integer\nhelp: compare it, as `(q_idx - kv_idx) > 0`";
        "fn mask(q_idx) { let d = q_idx as f32; «d» }" => "`fn mask` gives a condition, found a float\nhelp: compare it, as `d > 0.0`";
        "fn mask() { «W» }" => "`fn mask` gives a condition, found a constant\nhelp: compare it, as `W > 0`";
        "fn mask(h) { «slope»[h] < 1.0 } param slope: [heads] = ones; fn score(score, h) { score * slope[h] }" => "a mask reads nothing that is learned: a condition has no derivative\nhelp: add to the score instead, in `fn score`";
        "fn mask(q_idx) { «score» > 0.0 }" => "a mask does not read the score: which keys a query attends to is known before\nhelp: what depends on the score belongs in `fn score`";
        "fn score(score) {«}»" => "expected a value at the end of the block, found nothing\nhelp: the last expression is the value, without a `;`";
        "fn mask(q_idx, kv_idx) { «q_len» < «kv_len» }" => "`q_len` is no argument of this `fn mask`\nhelp: write `fn mask(q_idx, kv_idx, q_len)`", "`kv_len` is no argument of this `fn mask`\nhelp: write `fn mask(q_idx, kv_idx, kv_len)`";
    }
    data by check: {
        "data «;»" => "expected a name, found `;`\nhelp: write `data name: ..";
        "data doc «=» ids[batch];" => "expected `:`, found `=`\nhelp: write `data name: ..";
        "data doc: «id»[batch];" => "expected sizes in brackets, found `id`\nhelp: write `data name: [batch, kv_len];` for floats, `data name: ids[batch, kv_len];` for integers, `data name: bool[batch, kv_len];` for conditions";
        "data doc: ids«;»" => "expected sizes in brackets, found `;`\nhelp: write `data name: ..";
        "data doc: ids[batch]«}»" => "expected `;`, found nothing\nhelp: write `data name: ..";
        "data doc: ids[batch] «= zeros»; fn mask(b) { doc[b] == 0 }" => "`doc` has no initial value: the call passes it\nhelp: remove it, or declare `param doc` for what is learned";
        "param slope: «ids»[heads] = ones; fn score(score, h) { score * slope[h] }" => "`ids` are integers, and `slope` is learned\nhelp: write `param slope: [..]`, or `data slope: ids[..];` for what the call passes";
        "data doc: ids[«bach», q_len]; fn mask(b, q_idx) { doc[b, q_idx] == 0 }" => "unknown size `bach`\nhelp: did you mean `batch`?";
        "data doc: ids[2 * «quux» + 1, 1];" => "unknown size `quux`\nhelp: the sizes are `batch`, `q_len`, `kv_len`, `heads`, ..";
        "data doc: ids[2 * «q_len»];" => "`q_len` is known at the call only\nhelp: it is an axis by itself, as `[q_len]`";
        "param slope: [«batch»] = ones;" => "`batch` is known at the call only, and a `param` has sizes that the compiler knows\nhelp: ..";
        "data doc: ids«[]»;" => "expected 1 to 6 sizes with commas between, found `[]`\nhelp: write `[batch, q_len, kv_len]`, or some of these and of sizes";
        "data doc: ids«[1, 2, 3, 4, 5, 6, 7]»;" => "expected 1 to 6 sizes ..";
        "data doc: ids[«0»];" => "`axis` of `doc` must be at least 1 and at most 1048576, found 0";
        "data «h»: [heads];" => "`h` is an argument of the functions\nhelp: choose another name";
        "data «score»: [heads];" => "`score` is an argument of the functions\nhelp: choose another name";
        "data «padding»: [heads];" => "`padding` is an input that layers have already\nhelp: choose another name";
        "data «heads»: [8]; data «batch»: [8];" => "`heads` is a size\nhelp: choose another name", "`batch` is a size\nhelp: choose another name";
        "data doc: ids[batch]; data «doc»: [batch]; fn mask(b) { doc[b] == 0 }" => "`doc` is declared twice\nhelp: rename or remove one of them";
        "param doc: [heads] = ones; data «doc»: [batch]; fn score(score, h) { score * doc[h] }" => "`doc` is declared twice\nhelp: rename or remove one of them";
        "data a: [1]; data b1: [1]; data c: [1]; data d: [1]; data e: [1]; data f: [1]; data g: [1]; data i: [1]; data «j»: [1];" => "a layer takes at most 8 `data`";
        "data «doc»: ids[batch, q_len]; fn score(score) { 2.0 * score }" => "`doc` is never read\nhelp: read it in a function, as `doc[.., ..]`, or remove it";
        "data doc: ids[batch, q_len]; fn mask(b) { doc[«b»] == 0 }" => "`doc` takes 2 indices, found 1\nhelp: its sizes are `[batch, q_len]`";
        "data doc: ids[4]; fn mask(b) { doc[«4»] == 0 }" => "the index 4 is out of bounds\nhelp: it goes from 0 to 3";
        "data doc: ids[batch]; fn mask(b) { «doc» == 0 }" => "`doc` is a tensor, and an expression reads an element of it\nhelp: write `doc[..]`";
        "data doc: ids[batch]; fn mask(b) { «doc»(b) == 0 }" => "`doc` is no function\nhelp: write `doc[..]`";
        "data doc: ids[batch]; fn mask(b) { «dox»[b] == 0 }" => "only a `param` or a `data` is indexed, found `dox`\nhelp: did you mean `doc`?";
        "data doc: ids[batch]; fn mask(b) { doc[b] «==» 0.5 }" => "`==` of an integer and a float\nhelp: write `doc[b] as f32`";
        "data doc: ids[batch]; fn score(score, b) { score «+» doc[b] }" => "`+` of a float and an integer\nhelp: write `doc[b] as f32`";
        "data doc: ids[batch]; data far: [batch]; fn mask(b) { doc[«far[b]»] == 0 }" => "an index is an integer, found a float\nhelp: write `far[b] as i64`, which rounds towards zero";
        "data far: [batch]; fn mask(b) { «far[b]» }" => "`fn mask` gives a condition, found a float\nhelp: compare it, as `far[b] > 0.0`";
    }
    names by check_expr: {
        "«scor»" => "unknown name `scor`\nhelp: did you mean `score`?";
        "«foo»" => "unknown name `foo`\nhelp: the names here are `score`, `h`, ..";
        "«qidx» as f32" => "unknown name `qidx`\nhelp: did you mean `q_idx`?";
        "{ let d = 1.0; «dd» }" => "unknown name `dd`\nhelp: did you mean `d`?";
        "«kv_len» as f32" => "`kv_len` is no argument of this `fn score`\nhelp: write `fn score(score, h, q_idx, kv_idx, kv_len)`";
        "«slope»" => "`slope` is a tensor, and an expression reads an element of it\nhelp: write `slope[..]`";
        "«exp»" => "`exp` is a function\nhelp: write `exp(x)`";
        "«f32::INFINITY»" => "expected a finite number\nhelp: which keys a query does not attend to is said in `fn mask`";
        "-«f64::NAN»" => "expected a finite number\nhelp: which keys a query does not attend to is said in `fn mask`";
        "«self»" => "unknown name `self`\nhelp: the names here are `score`, `h`, ..";
        "«h»[0]" => "only a `param` or a `data` is indexed, found `h`\nhelp: there is `slope` or `bias`";
        "«SLOPE»[h]" => "only a `param` or a `data` is indexed, found `SLOPE`\nhelp: did you mean `slope`?";
        "«slop»[h]" => "only a `param` or a `data` is indexed, found `slop`\nhelp: did you mean `slope`?";
        "{ let slope = 1.0; «slope»[h] }" => "only a `param` or a `data` is indexed, found `slope`\nhelp: a `let` hides the tensor of this name";
        "«(score + 1.0)»[2]" => "only a `param` or a `data` is indexed, found `(score + 1.0)`\nhelp: there is `slope` or `bias`";
        "slope[«(h, h)»]" => "`slope` takes 1 index, found 2\nhelp: its sizes are `[8]`";
        "slope«[]»" => "`slope` takes 1 index, found 0\nhelp: its sizes are `[8]`";
        "slope[«()»]" => "`slope` takes 1 index, found 0\nhelp: its sizes are `[8]`";
        "bias[«h»]" => "`bias` takes 2 indices, found 1\nhelp: its sizes are `[8, 3]`";
        "slope[«8»]" => "the index 8 is out of bounds\nhelp: it goes from 0 to 7";
        "slope[«-1»]" => "the index -1 is out of bounds\nhelp: it goes from 0 to 7";
        "bias[h, «2 + 1»]" => "the index 3 is out of bounds\nhelp: it goes from 0 to 2";
        "slope[«score»]" => "an index is an integer, found a float\nhelp: integers are known before the score is: they read no `score`, and nothing that is learned";
        "slope[score «as» i64]" => "an integer of what is learned\nhelp: integers are known before the score is: they read no `score`, and nothing that is learned; `floor(x)` rounds a float";
        "slope[slope[h] «as» usize]" => "an integer of what is learned\nhelp: integers are known before the score is: they read no `score`, and nothing that is learned; `floor(x)` rounds a float";
        "slope[«2.0»]" => "an index is an integer, found a float\nhelp: write `2.0 as i64`, which rounds towards zero";
        "slope[«h < 2»]" => "an index is an integer, found a condition\nhelp: write `if h < 2 { 1 } else { 0 }`";
        "bias[«foo», «score»]" => "unknown name `foo`\nhelp: the names here are `score`, `h`, ..", "an index is an integer, found a float\nhelp: integers are known before the score is: they read no `score`, and nothing that is learned";
    }
    calls by check_expr: {
        "«exq»(score)" => "unknown function `exq`\nhelp: did you mean `exp`?";
        "«log»(score)" => "unknown function `log`\nhelp: did you mean `ln`?";
        "«tan»(score)" => "unknown function `tan`\nhelp: there is no such function; ..";
        "«f32::max»(score, 1.0)" => "unknown function `f32::max`\nhelp: did you mean `max`?";
        "«helper::of»(h)" => "unknown function `helper::of`\nhelp: the functions are `exp`, `ln`, ..";
        "«(exp)»(score)" => "unknown function `(exp)`\nhelp: did you mean `exp`?";
        "«slope»(h)" => "`slope` is no function\nhelp: write `slope[..]`";
        "«score»(score)" => "the functions of a body are not called\nhelp: `score` is computed for every query and key by itself";
        "«mask»(h)" => "the functions of a body are not called\nhelp: `mask` is computed for every query and key by itself";
        "«max»(score)" => "`max` takes 2 arguments, found 1\nhelp: write `max(a, b)`";
        "«exp»()" => "`exp` takes 1 argument, found 0\nhelp: write `exp(x)`";
        "«clamp»(score, 0.0)" => "`clamp` takes 3 arguments, found 2\nhelp: write `clamp(x, lo, hi)`";
        "exp(«h»)" => "`exp` takes a float, found an integer\nhelp: write `h as f32`";
        "exp(«2»)" => "`exp` takes a float, found an integer\nhelp: write `2.0`";
        "exp(«h < 2»)" => "`exp` takes a float, found a condition\nhelp: write `if h < 2 { 1.0 } else { 0.0 }`";
        "«max»(score, h)" => "`max` of a float and an integer\nhelp: write `h as f32`";
        "«max»(score, 2)" => "`max` of a float and an integer\nhelp: write `2.0`";
        "«min»(h, h < 2)" => "`min` of an integer and a condition\nhelp: write `if h < 2 { 1 } else { 0 }`";
        "«abs»(h < 2)" => "`abs` of a condition\nhelp: write `if h < 2 { 1 } else { 0 }`";
        "«clamp»(score, 0, 1)" => "`clamp` of a float, an integer and an integer\nhelp: write `0.0`";
        "«clamp»(score, 1.0, 0.0)" => "`clamp` to nothing: the lower bound 1 is above the upper bound 0";
        "«clamp»(h, 3, 1) as f32" => "`clamp` to nothing: the lower bound 3 is above the upper bound 1";
        "pow(«h», 2)" => "`pow` takes a float, found an integer\nhelp: write `h as f32`";
        "pow(score, «h»)" => "the exponent of `pow` is a number, found `h`\nhelp: the power of any other is `exp(n * ln(x))`";
        "pow(score, «score»)" => "the exponent of `pow` is a number, found `score`\nhelp: the power of any other is `exp(n * ln(x))`";
        "pow(score, «true»)" => "`pow` takes a float, found a condition\nhelp: write `if true { 1.0 } else { 0.0 }`";
        "exp(«foo») + exp(«h»)" => "unknown name `foo`\nhelp: the names here are `score`, `h`, ..", "`exp` takes a float, found an integer\nhelp: write `h as f32`";
    }
    operators by check_expr: {
        "(1.0 «+» h)" => "`+` of a float and an integer\nhelp: write `h as f32`";
        "score «*» (q_idx - kv_idx)" => "`*` of a float and an integer\nhelp: write `(q_idx - kv_idx) as f32`";
        "score «*» 2" => "`*` of a float and an integer\nhelp: write `2.0`";
        "(2 «-» score)" => "`-` of an integer and a float\nhelp: write `2.0`";
        "(score «%» h)" => "`%` of a float and an integer\nhelp: write `h as f32`";
        "(h «/» 2.0)" => "`/` of an integer and a float\nhelp: write `h as f32`";
        "(h «+» (h < 2)) as f32" => "`+` of an integer and a condition\nhelp: write `if h < 2 { 1 } else { 0 }`";
        "(1.0 «-» (h < 2))" => "`-` of a float and a condition\nhelp: write `if h < 2 { 1.0 } else { 0.0 }`";
        "((h < 2) «+» (h < 3))" => "`+` of two conditions\nhelp: conditions combine by `&&`, `||`, `!`, `==` and `!=`";
        "(C «+» (h < 2))" => "`+` of a constant and a condition\nhelp: write `if h < 2 { 1 } else { 0 }`";
        "if h «<» score { 1.0 } else { 2.0 }" => "`<` of an integer and a float\nhelp: write `h as f32`";
        "if h «==» 2.0 { 1.0 } else { 2.0 }" => "`==` of an integer and a float\nhelp: write `h as f32`";
        "if (h < 2) «<» (h < 3) { 1.0 } else { 2.0 }" => "`<` of two conditions\nhelp: conditions combine by `&&`, `||`, `!`, `==` and `!=`";
        "if (h < 2) «==» 1 { 1.0 } else { 2.0 }" => "`==` of a condition and an integer\nhelp: write `if h < 2 { 1 } else { 0 }`";
        "if h «&&» h < 2 { 1.0 } else { 2.0 }" => "`&&` of an integer and a condition\nhelp: compare it, as `h > 0`";
        "if score «||» 2.0 { 1.0 } else { 2.0 }" => "`||` of two floats\nhelp: compare it, as `score > 0.0`";
        "if C «&&» true { 1.0 } else { 2.0 }" => "`&&` of a constant and a condition\nhelp: compare it, as `C > 0`";
        "if «!»h { 1.0 } else { 2.0 }" => "`!` of an integer\nhelp: compare it, as `h > 0`";
        "if «!»score { 1.0 } else { 2.0 }" => "`!` of a float\nhelp: compare it, as `score > 0.0`";
        "{ let x = «-»(h < 2); 1.0 }" => "`-` of a condition\nhelp: write `!` for the opposite";
        "(h «&» 1) as f32" => "an expression of a body has no operator `&`\nhelp: conditions combine by `&&`";
        "if (h < 2) «|» (h > 3) { 1.0 } else { 2.0 }" => "an expression of a body has no operator `|`\nhelp: conditions combine by `||`";
        "(h «<<» 1) as f32" => "an expression of a body has no operator `<<`\nhelp: multiply or divide by the power of two";
        "(h «^» 1) as f32" => "an expression of a body has no operator `^`\nhelp: powers are `pow(x, n)`; two conditions differ by `!=`";
        "{ score «+=» 1.0; score }" => "an expression of a body has no operator `+=`\nhelp: name a value by `let name = ..;`";
        "if h < 2 «<» 3 { 1.0 } else { 2.0 }" => "comparisons do not chain\nhelp: write `a < b && b < c`";
        "(1 «+» score) * (h «-» 2.0)" => "`+` of an integer and a float\nhelp: write `1.0`", "`-` of an integer and a float\nhelp: write `h as f32`";
    }
    other_languages by check: {
        "fn mask(q_idx, kv_idx) { kv_idx <= q_idx «and» q_idx < 4 }" => "expected `&&`, found `and`\nhelp: conditions combine by `&&`, `||` and `!`";
        "fn mask(q_idx, kv_idx) { (kv_idx <= q_idx) «or» (q_idx < 4) }" => "expected `||`, found `or`\nhelp: conditions combine by `&&`, `||` and `!`";
        "fn mask(q_idx, kv_idx) { kv_idx <= q_idx && («not» q_idx < 4) }" => "expected `!`, found `not`\nhelp: conditions combine by `&&`, `||` and `!`";
        "fn mask(q_idx, kv_idx) { «not»(kv_idx <= q_idx) }" => "expected `!`, found `not`\nhelp: conditions combine by `&&`, `||` and `!`";
        "fn mask(q_idx, kv_idx) { kv_idx <= q_idx «and» not q_idx < 4 }" => "expected `&&`, found `and`\nhelp: conditions combine by `&&`, `||` and `!`";
        "fn score(score, h) { score «if» h < 2 else 2.0 * score }" => "expected an operator, found `if`\nhelp: write `if condition { a } else { b }`";
        "fn score(score, h) { let a = 1.0 «if» h < 2 else 0.0; a * score }" => "expected an operator, found `if`\nhelp: write `if condition { a } else { b }`";
        "fn score(score) { score «**» 2 }" => "expected an operator, found `**`\nhelp: write `pow(score, 2)`";
        "fn score(score, h) { score + (h as f32 - 1.0) «**» 2.0 * score }" => "expected an operator, found `**`\nhelp: write `pow(h as f32 - 1.0, 2.0)`";
        "fn score(score, h) { if h < 2 { score } else { -«inf» } }" => "expected a finite number\nhelp: which keys a query does not attend to is said in `fn mask`";
        "fn score(score, h) { if h < 2 { score } else { «inf» } }" => "expected a finite number\nhelp: which keys a query does not attend to is said in `fn mask`";
        "fn score(score, h) { if h < 2 { score } else { «nan» } }" => "expected a finite number\nhelp: which keys a query does not attend to is said in `fn mask`";
        "fn score(score, h) { if h < 2 { score } else { -«math.inf» } }" => "expected a finite number\nhelp: which keys a query does not attend to is said in `fn mask`";
        "fn score(score, h) { if h < 2 { score } else { «f32::INFINITY» } }" => "expected a finite number\nhelp: which keys a query does not attend to is said in `fn mask`";
        "fn mask(q_idx, kv_idx) { q_idx >= kv_idx «&» q_idx - kv_idx < 4 }" => "expected `&&`, found `&`\nhelp: conditions combine by `&&` and `||`; `&` binds tighter than a comparison";
        "fn mask(q_idx, kv_idx) { let near = q_idx == kv_idx «|» q_idx == kv_idx + 1; near }" => "expected `||`, found `|`\nhelp: conditions combine by `&&` and `||`; `|` binds tighter than a comparison";
        "fn mask(q_idx, kv_idx) { kv_idx < 9 && (q_idx >= kv_idx «&» q_idx - kv_idx < 4) }" => "expected `&&`, found `&`\nhelp: conditions combine by `&&` and `||`; `&` binds tighter than a comparison";
        "fn mask(q_idx, kv_idx) { kv_idx < 9 && 0 < kv_idx «<» q_idx }" => "comparisons do not chain\nhelp: write `a < b && b < c`";
    }
    choices by check_expr: {
        "if «h» { 1.0 } else { 2.0 }" => "`if` takes a condition, found an integer\nhelp: compare it, as `h > 0`";
        "if «score + 1.0» { 1.0 } else { 2.0 }" => "`if` takes a condition, found a float\nhelp: compare it, as `(score + 1.0) > 0.0`";
        "if «C» { 1.0 } else { 2.0 }" => "`if` takes a condition, found a constant\nhelp: compare it, as `C > 0`";
        "«if» h < 2 { 1.0 }" => "`if` without `else` has no value where the condition does not hold\nhelp: add `else { .. }`";
        "if h < 2 { 1.0 } «else» { 2 }" => "`if` gives a float and `else` an integer\nhelp: both give the same, so that the whole has one type";
        "if h < 2 { 1.0 } «else» if h < 3 { true } else { false }" => "`if` gives a float and `else` a condition\nhelp: both give the same, so that the whole has one type";
        "if «let» 2 = h { 1.0 } else { 2.0 }" => "an expression of a body has no `if let`\nhelp: write `if .. { .. } else { .. }`";
    }
    statements by check_expr: {
        "{ let x = 1.0; «}»" => "expected a value at the end of the block, found nothing\nhelp: the last expression is the value, without a `;`";
        "{ 1.0«;» }" => "a block ends with its value, and this `;` takes it away\nhelp: remove the `;`";
        "{ «1.0»; 2.0 }" => "this value is not used\nhelp: name it by `let name = ..;`, or remove it";
        "{ «if h < 2 { 1.0 } else { 2.0 }» -1.0 }" => "this value is not used\nhelp: name it by `let name = ..;`, or remove it";
        "{ let «mut x» = 1.0; x }" => "expected a name\nhelp: write `let name = ..;`; it does not change";
        "{ let «(x, y)» = 1.0; x }" => "expected a name\nhelp: write `let name = ..;`; it does not change";
        "{ let «_» = 1.0; 2.0 }" => "expected a name\nhelp: write `let name = ..;`; it does not change";
        "{ «let x;» x }" => "`let` needs a value\nhelp: write `let name = ..;`";
        "{ let x = 1.0 «else» { 2.0 }; x }" => "an expression of a body has no `let`-`else`\nhelp: name a value by `let name = ..;`";
        "{ let x: f32 = «h»; x }" => "`f32` is a float, found an integer\nhelp: write `h as f32`";
        "{ let x: «u8» = h; x as f32 }" => "unknown type `u8`\nhelp: floats are `f32` or `f64`, integers `i64` or `usize`";
        "{ let x: bool = «h»; 1.0 }" => "`bool` is a condition, found an integer\nhelp: compare it, as `h > 0`";
        "{ let x: i64 = «score»; 1.0 }" => "`i64` is an integer, found a float\nhelp: integers are known before the score is: they read no `score`, and nothing that is learned";
        "{ «const A: f32 = 1.0;» 1.0 }" => "an expression of a body has no items\nhelp: name a value by `let name = ..;`";
        "{ «fn f() {}» 1.0 }" => "an expression of a body has no items\nhelp: name a value by `let name = ..;`";
        "{ «vec»![1]; 1.0 }" => "an expression of a body has no macros\nhelp: there are arithmetic, ..";
        "{ «#»[allow(x)] let a = 1.0; a }" => "an expression has no attributes\nhelp: a comment starts with `//`";
        "{ 1.0 + «}»" => "unexpected end of input, expected an expression";
        "(1.0 «1.0»)" => "expected `,`";
    }
    casts_and_numbers by check_expr: {
        "h as «f16»" => "unknown type `f16`\nhelp: floats are `f32` or `f64`, integers `i64` or `usize`";
        "score as «Foo»" => "unknown type `Foo`\nhelp: floats are `f32` or `f64`, integers `i64` or `usize`";
        "(h < 2) «as» f32" => "`as` of a condition\nhelp: write `if h < 2 { 1.0 } else { 0.0 }`";
        "«1u8» as f32" => "unknown type `u8`\nhelp: floats are `f32` or `f64`, integers `i64` or `usize`";
        "«1.0f16»" => "unknown type `f16`\nhelp: floats are `f32` or `f64`, integers `i64` or `usize`";
        "1.0 / «0.0»" => "division by zero: `0.0`";
        "(h / «0») as f32" => "division by zero: `0`";
        "(h % «(1 - 1)») as f32" => "division by zero: `(1 - 1)`";
        "(q_idx % «kv_idx») as f32" => "division by zero: `kv_idx` is 0 for the first query and key\nhelp: write `max(kv_idx, 1)`; an integer is divided at every place, also where an `if` would not ask for it";
        "if q_idx != kv_idx { (8 / «(q_idx - kv_idx)») as f32 } else { 0.0 }" => "division by zero: `(q_idx - kv_idx)` is 0 ..";
        "(«(q_idx + 1) * 2147483648 * 2147483648») as f32" => "`(q_idx + 1) * 2147483648 * 2147483648` may be too large for 64 bits\nhelp: indices, lengths and ids go to 2147483648; ..";
        "(«q_idx * kv_idx * h» % 7) as f32" => "`q_idx * kv_idx * h` may be too large for 64 bits\nhelp: ..";
        "score % «0.0»" => "division by zero: `0.0`";
        "«1e400»" => "`1e400` is not a number that `f32` can hold";
        "«1e39»" => "`1e39` is not a number that `f32` can hold";
        "(h + «2147483649») as f32" => "`2147483649` is too large\nhelp: integers go to 2147483648";
        "(h + «99999999999999999999999») as f32" => "`99999999999999999999999` is too large\nhelp: integers go to 2147483648";
        "(h + «65536 * 65536») as f32" => "`65536 * 65536` is too large\nhelp: integers go to 2147483648";
        "(h + -«2147483649») as f32" => "`2147483649` is too large\nhelp: integers go to 2147483648";
        "«exp(1000.0)»" => "`exp(1000.0)` is not a number that `f32` can hold";
        "«ln(0.0)»" => "`ln(0.0)` is not a number that `f32` can hold";
        "ln(«1e30 * 1e30»)" => "`1e30 * 1e30` is not a number that `f32` can hold";
        "«\"text\"»" => "expected a number, found `\"text\"`\nhelp: as `2` or `0.5`";
        "«'c'»" => "expected a number, found `'c'`\nhelp: as `2` or `0.5`";
    }
    what_the_language_has_not by check_expr: {
        "{ «for» i in 0..3 { } 1.0 }" => "an expression of a body has no loops\nhelp: there are arithmetic, ..";
        "«loop» {}" => "an expression of a body has no loops\nhelp: there are arithmetic, ..";
        "«while» true {}" => "an expression of a body has no loops\nhelp: there are arithmetic, ..";
        "{ let f = «|x| x»; 1.0 }" => "an expression of a body has no closures\nhelp: there are arithmetic, ..";
        "score.«exp»()" => "an expression of a body has no methods\nhelp: write `exp(score)`";
        "score.«max»(2.0)" => "an expression of a body has no methods\nhelp: write `max(score, 2.0)`";
        "score.«powi»(2)" => "an expression of a body has no methods\nhelp: write `pow(score, 2)`";
        "q_idx.«abs_diff»(kv_idx + 1) as f32" => "an expression of a body has no methods\nhelp: write `abs(q_idx - (kv_idx + 1))`";
        "score.«clamp»(1.0)" => "an expression of a body has no methods\nhelp: write `clamp(x, lo, hi)`";
        "«where»(h < 2, score, 1.0)" => "an expression of a body has no `where`\nhelp: write `if condition { a } else { b }`";
        "(if 0 < h «<» 2 { 1.0 } else { 0.0 })" => "comparisons do not chain\nhelp: write `a < b && b < c`";
        "score.«requires_grad»()" => "an expression of a body has no methods\nhelp: there are arithmetic, ..";
        "«match» h { _ => 1.0 }" => "an expression of a body has no `match`\nhelp: write `if .. { .. } else { .. }`";
        "«return» score" => "an expression of a body has no `return`\nhelp: the last expression is the value";
        "{ score «=» 1.0; score }" => "an expression of a body has no assignments\nhelp: name a value by `let name = ..;`";
        "«vec»![1]" => "an expression of a body has no macros\nhelp: there are arithmetic, ..";
        "«&»score" => "an expression of a body has no references\nhelp: there are arithmetic, ..";
        "«*»score" => "an expression of a body has no references\nhelp: there are arithmetic, ..";
        "score«.»x" => "an expression of a body has no fields\nhelp: there are arithmetic, ..";
        "{ let r = 0«..»2; 1.0 }" => "an expression of a body has no ranges\nhelp: there are arithmetic, ..";
        "«(1.0, 2.0)»" => "an expression of a body has no tuples\nhelp: there are arithmetic, ..";
        "«[1.0, 2.0]»" => "an expression of a body has no arrays\nhelp: there are arithmetic, ..";
        "«unsafe { 1.0 }»" => "an expression of a body has no `unsafe { 1.0 }`\nhelp: there are arithmetic, ..";
        "«'a: { 1.0 }»" => "an expression of a body has no `'a:{ 1.0 }`\nhelp: there are arithmetic, ..";
    }
    what_a_function_does_not_see by check: {
        "fn mask(q_idx, kv_idx) { «dist»[q_idx, kv_idx] < 4 }" => "only a `param` or a `data` is indexed, found `dist`\nhelp: declare what is learned as `param dist: [64, 64] = zeros;`, and what the call passes as `data dist: [q_len, kv_len];`, `ids[..]` or `bool[..]`";
        "fn score(score, b, h) { score + «bias»[h, b] }" => "only a `param` or a `data` is indexed, found `bias`\nhelp: declare what is learned as `param bias: [heads, 64] = zeros;`, and what the call passes as `data bias: [heads, batch];`, `ids[..]` or `bool[..]`";
        "fn mask(b, q_idx, kv_idx) { «doc»[b, q_idx] == doc[b, kv_idx] && doc[b, 0] == 0 }" => "only a `param` or a `data` is indexed, found `doc`\nhelp: declare what is learned as `param doc: [64, 64] = zeros;`, and what the call passes as `data doc: [batch, q_len];`, ..";
        "fn score(score) { score + «alpha» * alpha }" => "unknown name `alpha`..";
        "fn score(score) { score - «softmax»(score) }" => "unknown function `softmax`\nhelp: a function of the score sees one score; weights are made of all by `fn normalize { softmax }`";
        "fn score(score) { «relu»(score) }" => "unknown function `relu`\nhelp: write `max(x, 0.0)`; ..";
        "fn mask(kv_idx) { kv_idx < «lens» }" => "unknown name `lens`\nhelp: padding is `mask = padding` in the header, or data of the call: `data lens: ids[batch];`";
        "fn mask(kv_idx) { «doc_ids» == kv_idx }" => "unknown name `doc_ids`\nhelp: documents are `mask = document` in the header, ..";
        "fn score(score) { score + «x» }" => "unknown name `x`\nhelp: a function reads places, the score and what the body declares; ..";
        "fn mask(q_idx, kv_idx) { «k» <= «q» }" => "unknown name `k`\nhelp: did you mean `kv_idx`?", "unknown name `q`\nhelp: did you mean `q_idx`?";
        "fn score(score) { score * «rand»() }" => "unknown function `rand`\nhelp: nothing is random here; ..";
    }
    what_rust_cannot_read by check: {
        "fn score(score, q_idx) { q_idx % 2 == 0 «?» score : 0.0 }" => "expected an operator, found `?`\nhelp: write `if condition { a } else { b }`";
        "fn score(score, h) { if h == 0 { score } «elif» h == 1 { 2.0 * score } else { 0.5 * score } }" => "expected `else if`, found `elif`\nhelp: ..";
        "fn score(score) { «fn» f(x) { x } f(score) }" => "an expression has no functions of its own\nhelp: name a value by `let name = ..;`";
        "param bias: [heads, 4] = zeros; fn score(score, h) { score * bias[h, «:»] }" => "expected an index, found `:`\nhelp: an expression reads one element, ..";
        "param bias: [heads, 4] = zeros; fn score(score, h) { score * bias[«:», h::X] }" => "expected an index, found `:`\nhelp: an expression reads one element, ..";
        "param bias: [heads, 4] = zeros; fn score(score, h, q_idx) { score + «bias[h][min(q_idx, 3)]» }" => "the indices of `bias` stand in one pair of brackets\nhelp: write `bias[h, min(q_idx, 3)]`";
    }
    indices_that_leave by check: {
        "param bias: [heads, 17] = zeros; fn score(score, h, q_idx, kv_idx) { score + bias[h, «clamp(q_idx - kv_idx, 0, 17)»] }" => "the index is 17 at q_idx = 17, kv_idx = 0, and this axis of `bias` goes from 0 to 16\nhelp: the sizes of `bias` are `[8, 17]`; keep the index inside at every place, as by `clamp(.., 0, 16)`";
        "param slope: [heads] = ones; fn score(score, h) { score * slope[«h + 1»] }" => "the index is 8 at h = 7, and this axis of `slope` goes from 0 to 7..";
        "param slope: [heads] = ones; fn score(score, h) { score * slope[«h - 1»] }" => "the index is -1 at h = 0, and this axis of `slope` goes from 0 to 7..";
        "param bias: [heads, 17] = zeros; fn score(score, h, q_idx, kv_idx) { score + bias[«clamp(q_idx - kv_idx, 0, 16)», h] }" => "the index is 8 at q_idx = 8, kv_idx = 0, and ..";
        "param bias: [heads, 4] = zeros; fn score(score, h, q_idx) { score + bias[«q_idx % 9», «h»] }" => "the index is 8 at q_idx = 8, ..", "the index is 4 at h = 4, ..";
        "param bias: [5] = zeros; fn score(score, q_idx, kv_idx) { score + bias[«clamp(q_idx - kv_idx, -2, 2) + 3»] }" => "the index is 5 at q_idx = 2, kv_idx = 0, ..";
        "param bias: [heads, 32] = zeros; data far: ids[batch, q_len, kv_len]; fn score(score, b, h, q_idx, kv_idx) { score + bias[h, «min(far[b, q_idx, kv_idx], 32)»] }" => "the index is 32 at ..";
    }
    axes_from_elsewhere by check: {
        "param bias: [«q_len», kv_len] = zeros; fn score(score, q_idx, kv_idx) { score + bias[q_idx, kv_idx] }" => "`q_len` is known at the call only, and a `param` has sizes that the compiler knows\nhelp: learn an element for each distance, `param bias: [heads, 2 * WINDOW + 1]`, ..";
        "data dist: ids[«B», «N», N]; fn mask(b, q_idx, kv_idx) { dist[b, q_idx, kv_idx] < 4 }" => "unknown axis `B`\nhelp: the axis of the sequences is `batch`; a constant of one letter stands in braces, `{ B }`", "unknown axis `N`\nhelp: the axis of the queries is `q_len`, that of the keys `kv_len`; a constant of one letter stands in braces, `{ N }`";
    }
    normalizers by check: {
        "fn normalize { «Softmax» }" => "unknown normalizer `Softmax`\nhelp: did you mean `softmax`?";
        "fn normalize { «ReLU»(2) }" => "unknown normalizer `ReLU`\nhelp: did you mean `relu`?";
        "fn normalize { «relu^2» }" => "the power of `relu` is its argument, found `relu ^ 2`\nhelp: write `relu(2)`";
        "fn normalize { «relu ** 2» }" => "the power of `relu` is its argument, found `relu * *2`\nhelp: write `relu(2)`";
        "fn normalize(score, kv_len) { «softmax» / kv_len }" => "`softmax` is a normalizer by its name, which stands alone\nhelp: write `fn normalize { softmax }`; an expression computes a weight from its own score, as `sigmoid(score)`";
        "fn normalize { «spasemax» }" => "unknown normalizer `spasemax`\nhelp: did you mean `sparsemax`?";
        "fn normalize() { «off_by_one» }" => "unknown normalizer `off_by_one`\nhelp: did you mean `softmax1`?";
        "fn normalize { «rleu»(2) }" => "unknown normalizer `rleu`\nhelp: did you mean `relu`?";
        "fn normalize { relu(«0») }" => "`power` of `relu` must be positive and finite, found 0";
        "fn normalize(score) { «relu(2.0 * score)» }" => "`relu` is a normalizer by its name, which does not take the score\nhelp: write `relu(power = 1)`";
        "fn normalize(score) { «softmax(score)» }" => "`softmax` is a normalizer by its name, which does not take the score\nhelp: write `softmax`";
        "fn normalize { softmax«(2)» }" => "`softmax` takes no arguments";
        "fn normalize { «tanh» }" => "`tanh` is a function\nhelp: write `tanh(x)`";
        "fn normalize { tanh(«score») }" => "`score` is no argument of this `fn normalize`\nhelp: write `fn normalize(score)`";
        "fn normalize(score, kv_idx) { «kv_idx» }" => "`fn normalize` gives a float, found an integer\nhelp: write `kv_idx as f32`";
        "fn normalize(h, «score») { score * h as f32 }" => "`score` is the first argument\nhelp: write `fn normalize(score, ..)`";
        "fn «normalize»(score, h) { h as f32 }" => "`fn normalize` does not read `score`, so queries and keys would not be learned\nhelp: compute the weight from the score, as `sigmoid(score)`, or leave `score` out of the arguments: then there are no queries and keys";
        "fn score(score) { -score } fn «normalize»(h) { h as f32 }" => "`fn normalize` does not read `score`, so `fn score` has no effect\nhelp: compute the weight from the score, as `sigmoid(score)`, or remove `fn score`";
        "fn score(h) { h as f32 } fn «normalize»(h) { h as f32 }" => "`fn normalize` does not read `score`, so `fn score` has no effect\nhelp: compute the weight from the score, as `sigmoid(score)`, or remove `fn score`";
        "fn score(h) { h as f32 } fn «normalize»(score) { floor(score) }" => "`fn normalize` does not change with `score`: its derivative is zero everywhere, so `fn score` has no effect..";
        "fn «normalize»(score) { floor(score) }" => "`fn normalize` does not change with `score`: its derivative is zero everywhere, so queries and keys would not be learned\nhelp: compute the weight from the score, as `sigmoid(score)`, or leave `score` out of the arguments: then there are no queries and keys";
        "param «slope»: [heads] = ones; fn normalize(score, h) { score * floor(slope[h]) }" => "`slope` never reaches the score, so it would not be learned\nhelp: the derivative is zero everywhere: it cancels, or is that of `floor` or of a comparison";
        "param «slope»: [heads] = ones; fn normalize { sink }" => "`slope` never reaches the score, so it would not be learned\nhelp: read it in `fn score`, as `slope[..]`, or remove it";
        "fn normalize { sink } fn «normalize» { sparsemax }" => "`normalize` is declared twice\nhelp: rename or remove one of them";
    }
}

/// A `let` is inlined where it is used, so forty of them could make 2^40 operations.
#[test]
fn operations_are_limited() {
    let doubled = "let x = x + x;".repeat(40);
    let (source, _) = unmarked(&layer(&format!(
        "fn score(score) {{ let x = score; {doubled} x }}"
    )));
    let reports = reports(&parse_file(expand(&source)));
    assert_eq!(reports.len(), 1, "{reports:?}");
    let message = "the function has more than 1000 operations";
    assert!(reports[0].message.starts_with(message), "{reports:?}");
    let sum = "+ score".repeat(490);
    check(&format!("fn score(score) {{ score {sum} }}"), &[]);
}

/// A layer with a mistake in its body is emitted with the tensors that it declares.
#[test]
fn tensors_exist_after_a_mistake() {
    let cx = crate::diag::Diagnostics::default();
    let source = "param slope: [heads] = ones; param q_proj: [1] = ones; fn score(score) { scor } fn mask() { true }";
    let (krate, mut drafts) =
        crate::spec::parse(crate::tests::support::tokens(&layer(source)), &cx);
    let spec = crate::spec::check(drafts.remove(0), &krate, &cx);
    assert!(spec.poisoned);
    let names: Vec<_> = spec
        .body
        .params
        .iter()
        .map(|param| param.name.to_string())
        .collect();
    assert_eq!(names, ["slope"]);
    assert!(spec.body.score.is_none() && spec.body.mask.is_none());
}

#[test]
fn a_normalizer_is_named_once() {
    let source =
        "struct L<heads = 8, d_model = 32, normalizer = sink> { fn «normalize» { sparsemax } }";
    let (source, places) = unmarked(source);
    let reports = reports(&parse_file(expand(&source)));
    let found: Vec<_> = reports.iter().map(|report| report.at.clone()).collect();
    assert_eq!(found, [Some(places[0].clone())]);
    assert_eq!(
        reports[0].message,
        "the header says how scores become weights already\nhelp: remove `normalizer = ..` or this function"
    );
}

/// Every operation has bounds, so a remainder bounds the operations after it.
#[test]
fn integers_that_fit_into_64_bits_are_taken() {
    for fits in [
        "q_idx * q_idx + kv_idx * kv_idx < 9",
        "(q_idx * 7919 + kv_idx * 104729) % 1000 * q_len * 1000 > 0",
        "clamp(q_idx - kv_idx, -1, 1) * q_len * kv_len / 16 < 0 || min(b, 1) * q_len * kv_len > 0",
        "abs(q_idx - kv_idx) / 2 * kv_len > 3",
        "floor(sqrt(q_idx as f32)) as i64 * kv_idx < 7",
    ] {
        let mask = format!("fn mask(b, q_idx, kv_idx, q_len, kv_len) {{ {fits} }}");
        let reports = reports(&parse_file(expand(&layer(&mask))));
        assert!(reports.is_empty(), "{fits}: {reports:?}");
    }
}

/// A constant of one letter is accepted in braces, and in arithmetic.
#[test]
fn constants_of_a_letter_are_taken() {
    for axis in ["{ N }", "2 * N", "WIDTH"] {
        let body = format!("data far: [{axis}]; fn score(score, q_idx) {{ score + far[q_idx] }}");
        check(&body, &[]);
    }
}

/// An index that is in bounds, or that depends on the lengths and data of a call, is accepted.
#[test]
fn indices_that_stay_or_that_the_call_checks_are_taken() {
    for index in [
        "clamp(q_idx - kv_idx, 0, 7)",
        "clamp(q_idx - kv_idx, -3, 4) + 3",
        "h",
        "7 - h",
        "h - h % 2",
        "h / 2 + 4",
        "q_idx % 8",
        "abs(h - 7)",
        "if h < 7 { h + 1 } else { 0 }",
        "min(q_idx, kv_idx)",
        "q_idx / 4096",
        "q_idx - kv_idx",
        "min(far[q_idx], 7)",
        "far[q_idx]",
        "clamp(q_idx, 0, WIDTH)",
        "(ln(1.0 + q_idx as f32) * 8.0) as i64",
    ] {
        let body = format!(
            "param bias: [8] = zeros; data far: ids[q_len];
             fn score(score, h, q_idx, kv_idx) {{ score + bias[{index}] + bias[far[q_idx]] }}"
        );
        check(&body, &[]);
    }
}
