"""Small random checkpoints of PyTorch and Hugging Face, and what these libraries compute with them.

    python -m venv venv
    venv/bin/pip install torch==2.15.0 transformers==5.23.0 numpy safetensors
    venv/bin/python tests/weights/generate.py

Each `NAME.safetensors` is a checkpoint as the library itself saves it, and `NAME.run.safetensors` has inputs and outputs of one
forward pass in f32, on the CPU, on one thread. Seeds are fixed; another version of a library may give other numbers.

`meta_llama` is the exception: Meta's code is not on PyPI. Its forward pass is written out below, with pairs of neighbours turned
as complex numbers, as the paper of rotary embeddings has it.
"""

import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

HERE = Path(__file__).parent
D_MODEL, HEADS, KV_HEADS, HIDDEN, LAYERS, VOCAB, MAX_LEN = 16, 4, 2, 24, 2, 29, 12
BATCH, SEQ = 2, 7
LENS = torch.tensor([7, 4])


def scattered(module, seed):
    """Random numbers in every parameter: biases that are not 0 and gains that are not 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_gain = "norm" in name.lower() or ".ln_" in name
            if parameter.dim() > 1:
                parameter.copy_(0.4 * noise)
            elif is_gain and name.endswith("weight"):
                parameter.copy_(1 + 0.3 * noise)
            else:
                parameter.copy_(0.3 * noise)
    return module.eval()


def save(name, tensors, metadata=None):
    tensors = {key: tensor.detach().contiguous().clone() for key, tensor in tensors.items()}
    save_file(tensors, HERE / f"{name}.safetensors", metadata)


def record(name, state, run):
    save(name, state, {"format": "pt"})
    save(f"{name}.run", run)


def saved_by_hugging_face(name, model, run):
    """Writes what `save_pretrained` writes, which leaves out tied tensors."""
    folder = HERE / f"{name}.tmp"
    model.save_pretrained(folder, safe_serialization=True)
    (folder / "model.safetensors").rename(HERE / f"{name}.safetensors")
    for left in folder.iterdir():
        left.unlink()
    folder.rmdir()
    save(f"{name}.run", run)


def inputs(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def ids(seed, below=VOCAB):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(below, (BATCH, SEQ), generator=generator)


def padding(length=SEQ):
    """True where a key is left out, as PyTorch has it."""
    return torch.arange(length) >= LENS[:, None]


def multihead_attention():
    x, context = inputs(1, BATCH, SEQ, D_MODEL), inputs(2, BATCH, 5, D_MODEL)
    other = inputs(3, BATCH, 5, 10)
    values = inputs(5, BATCH, 5, 6)

    layer = torch.nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True)
    scattered(layer, 10)
    y, weights = layer(x, x, x, average_attn_weights=False)
    cross, _ = layer(x, context, context)
    padded, _ = layer(x, x, x, key_padding_mask=padding())
    backwards = context.flip(1)
    apart, _ = layer(x, context, backwards)
    run = {"x": x, "context": context, "y": y, "weights": weights, "cross": cross, "padded": padded}
    run |= {"backwards": backwards, "apart": apart}
    # True is masked, and every query attends to itself.
    attn_mask = inputs(7, SEQ, SEQ).gt(0) & ~torch.eye(SEQ, dtype=torch.bool)
    bias = inputs(8, SEQ, SEQ)
    run |= {"attn_mask": attn_mask.float(), "masked": layer(x, x, x, attn_mask=attn_mask)[0]}
    run |= {"bias": bias, "biased": layer(x, x, x, attn_mask=bias)[0]}
    run |= {"average": layer(x, x, x)[1]}
    with_zero = torch.nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True, add_zero_attn=True).eval()
    with_zero.load_state_dict(layer.state_dict())
    run |= {"with_zero": with_zero(x, x, x)[0]}
    record("mha", layer.state_dict(), run)

    layer = torch.nn.MultiheadAttention(D_MODEL, HEADS, bias=False, batch_first=True)
    scattered(layer, 11)
    causal = torch.nn.Transformer.generate_square_subsequent_mask(SEQ)
    y, _ = layer(x, x, x, attn_mask=causal)
    record("mha_no_bias", layer.state_dict(), {"x": x, "y": y})

    layer = torch.nn.MultiheadAttention(D_MODEL, HEADS, kdim=10, vdim=10, batch_first=True)
    scattered(layer, 12)
    y, _ = layer(x, other, other)
    record("mha_apart", layer.state_dict(), {"x": x, "context": other, "y": y})

    layer = torch.nn.MultiheadAttention(D_MODEL, HEADS, kdim=10, vdim=6, batch_first=True)
    scattered(layer, 13)
    y, weights = layer(x, other, values, average_attn_weights=False)
    record("mha_values", layer.state_dict(), {"x": x, "context": other, "values": values, "y": y, "weights": weights})


class Head(torch.nn.Module):
    """A causal head with matrices of its own, as "Let's build GPT" has it."""

    def __init__(self, bias):
        super().__init__()
        width = D_MODEL // HEADS
        self.key, self.query, self.value = (torch.nn.Linear(D_MODEL, width, bias=bias) for _ in range(3))
        self.register_buffer("tril", torch.tril(torch.ones(MAX_LEN, MAX_LEN)))

    def forward(self, x):
        length, key, query = x.shape[1], self.key(x), self.query(x)
        scores = query @ key.transpose(-2, -1) * key.shape[-1] ** -0.5
        scores = scores.masked_fill(self.tril[:length, :length] == 0, float("-inf"))
        return scores.softmax(-1) @ self.value(x)


class Heads(torch.nn.Module):
    def __init__(self, bias=False):
        super().__init__()
        self.heads = torch.nn.ModuleList([Head(bias) for _ in range(HEADS)])
        self.proj = torch.nn.Linear(D_MODEL, D_MODEL)

    def forward(self, x):
        return self.proj(torch.cat([head(x) for head in self.heads], -1))


class LectureBlock(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sa, self.ffwd = Heads(), torch.nn.Module()
        self.ffwd.net = torch.nn.Sequential(
            torch.nn.Linear(D_MODEL, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, D_MODEL), torch.nn.Dropout(0.2)
        )
        self.ln1, self.ln2 = torch.nn.LayerNorm(D_MODEL), torch.nn.LayerNorm(D_MODEL)

    def forward(self, x):
        x = x + self.sa(self.ln1(x))
        return x + self.ffwd.net(self.ln2(x))


class LectureGpt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.token_embedding_table = torch.nn.Embedding(VOCAB, D_MODEL)
        self.position_embedding_table = torch.nn.Embedding(MAX_LEN, D_MODEL)
        self.blocks = torch.nn.Sequential(*[LectureBlock() for _ in range(LAYERS)])
        self.ln_f = torch.nn.LayerNorm(D_MODEL)
        self.lm_head = torch.nn.Linear(D_MODEL, VOCAB)

    def forward(self, tokens):
        positions = self.position_embedding_table(torch.arange(tokens.shape[1]))
        return self.lm_head(self.ln_f(self.blocks(self.token_embedding_table(tokens) + positions)))


def heads_as_modules():
    x, layer = inputs(6, BATCH, SEQ, D_MODEL), Heads(bias=True)
    scattered(layer, 60)
    record("heads_as_modules", layer.state_dict(), {"x": x, "y": layer(x)})

    tokens, model = ids(61), LectureGpt()
    scattered(model, 61)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".ln1.weight" in name or ".ln2.weight" in name or name == "ln_f.weight":
                parameter.add_(1)
    record("lecture_gpt", model.state_dict(), {"tokens": tokens.float(), "logits": model(tokens)})


def encoder_layers():
    x = inputs(4, BATCH, SEQ, D_MODEL)
    for name, norm_first, activation in [("post_relu", False, "relu"), ("pre_gelu", True, "gelu")]:
        layer = torch.nn.TransformerEncoderLayer(
            D_MODEL, HEADS, HIDDEN, activation=activation, norm_first=norm_first, batch_first=True
        )
        scattered(layer, 20)
        # With gradients, so that it is not the fast path, which fills padded rows with zeros.
        y = layer(x, src_key_padding_mask=padding())
        record(f"encoder_layer_{name}", layer.state_dict(), {"x": x, "y": y})

    layer = torch.nn.TransformerEncoderLayer(D_MODEL, HEADS, HIDDEN, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, LAYERS, norm=torch.nn.LayerNorm(D_MODEL))
    scattered(encoder, 21)
    record("encoder", encoder.state_dict(), {"x": x, "y": encoder(x)})


def bert():
    config = transformers.BertConfig(
        vocab_size=VOCAB, hidden_size=D_MODEL, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=HIDDEN, max_position_embeddings=MAX_LEN, layer_norm_eps=1e-5,
    )
    model = scattered(transformers.BertModel(config), 30)
    tokens, types = ids(5), ids(6, below=2)
    out = model(tokens, attention_mask=(~padding()).long(), token_type_ids=types)
    # Torch has ids as integers; a number below 2 ** 24 is an f32, too.
    run = {"tokens": tokens.float(), "types": types.float(), "hidden": out.last_hidden_state, "pooled": out.pooler_output}
    saved_by_hugging_face("bert", model, run)

    model = scattered(transformers.BertForSequenceClassification(config), 31)
    out = model.bert(tokens, attention_mask=(~padding()).long(), token_type_ids=types)
    run = {"tokens": tokens.float(), "types": types.float(), "hidden": out.last_hidden_state, "pooled": out.pooler_output}
    saved_by_hugging_face("bert_classifier", model, run)


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_embd=D_MODEL, n_layer=LAYERS, n_head=HEADS, n_inner=4 * D_MODEL, n_positions=MAX_LEN,
    )
    model = scattered(transformers.GPT2LMHeadModel(config), 40)
    tokens = ids(7)
    run = {"tokens": tokens.float(), "logits": model(tokens).logits}
    saved_by_hugging_face("gpt2", model, run)
    # As old files have it: no prefix, and the mask of each layer.
    state = model.transformer.state_dict()
    for layer in range(LAYERS):
        state[f"h.{layer}.attn.bias"] = torch.ones(MAX_LEN, MAX_LEN).tril().bool()[None, None]
    save("gpt2_bare", state)


def llama():
    sizes = dict(
        vocab_size=VOCAB, hidden_size=D_MODEL, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, intermediate_size=HIDDEN, max_position_embeddings=MAX_LEN, rms_norm_eps=1e-6,
    )
    tokens = ids(8)
    model = scattered(transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)), 50)
    run = {"tokens": tokens.float(), "logits": model(tokens).logits}
    saved_by_hugging_face("llama", model, run)
    # So large that no tolerance hides it.
    sizes["rms_norm_eps"] = 1e-2
    config = transformers.LlamaConfig(**sizes, tie_word_embeddings=True)
    model = scattered(transformers.LlamaForCausalLM(config), 51)
    run = {"tokens": tokens.float(), "logits": model(tokens).logits}
    saved_by_hugging_face("llama_tied", model, run)


def rms_norm(x, gain):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * gain


def turned(x):
    """`[batch, seq, heads, width]`, whose neighbours `2i` and `2i + 1` are a complex number that is turned."""
    width = x.shape[-1]
    angles = torch.outer(torch.arange(SEQ), 10000.0 ** (-torch.arange(0, width, 2) / width))
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)[:, None]).flatten(-2)


def meta_llama():
    generator = torch.Generator().manual_seed(60)
    state = {}

    def weight(name, *shape):
        noise = torch.randn(shape, generator=generator)
        state[f"{name}.weight"] = 1 + 0.3 * noise if len(shape) == 1 else 0.4 * noise
        return state[f"{name}.weight"]

    width = D_MODEL // HEADS
    tokens = ids(9)
    x = weight("tok_embeddings", VOCAB, D_MODEL)[tokens]
    for layer in range(LAYERS):
        def linear(name, x, out):
            return x @ weight(f"layers.{layer}.{name}", out, x.shape[-1]).T

        h = rms_norm(x, weight(f"layers.{layer}.attention_norm", D_MODEL))
        q = turned(linear("attention.wq", h, D_MODEL).view(BATCH, SEQ, HEADS, width))
        k = turned(linear("attention.wk", h, KV_HEADS * width).view(BATCH, SEQ, KV_HEADS, width))
        v = linear("attention.wv", h, KV_HEADS * width).view(BATCH, SEQ, KV_HEADS, width)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, dim=2) for t in (k, v))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / width**0.5
        scores = scores.masked_fill(torch.ones(SEQ, SEQ).triu(1).bool(), float("-inf"))
        y = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).flatten(-2)
        x = x + linear("attention.wo", y, D_MODEL)
        h = rms_norm(x, weight(f"layers.{layer}.ffn_norm", D_MODEL))
        gate, up = linear("feed_forward.w1", h, HIDDEN), linear("feed_forward.w3", h, HIDDEN)
        x = x + linear("feed_forward.w2", torch.nn.functional.silu(gate) * up, D_MODEL)
    logits = rms_norm(x, weight("norm", D_MODEL)) @ weight("output", VOCAB, D_MODEL).T
    state["rope.freqs"] = 10000.0 ** (-torch.arange(0, width, 2) / width)
    record("meta_llama", state, {"tokens": tokens.float(), "logits": logits})


if __name__ == "__main__":
    print(f"torch {torch.__version__}, transformers {transformers.__version__}", file=sys.stderr)
    torch.set_num_threads(1)
    for generate in [multihead_attention, heads_as_modules, encoder_layers, bert, gpt2, llama, meta_llama]:
        generate()
