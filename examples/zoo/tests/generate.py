"""Tiny random checkpoints of `transformers`, and what it computes with them.

    python -m venv venv
    venv/bin/pip install torch==2.15.0 transformers==5.24.0 numpy safetensors
    venv/bin/python examples/zoo/tests/generate.py [FAMILY ..]

For each family `NAME.safetensors` is the checkpoint and `NAME.json` its config, both as `save_pretrained` writes them. `NAME.run.safetensors`
has inputs, results, a loss, the gradients of all parameters, and the likeliest tokens behind a prompt: f32, on the CPU, on one thread. Seeds
are fixed. Another version of a library may give other numbers.

All features of a family are on: a window is shorter than the sequence, there are fewer heads of keys than of queries, and positions go beyond
those before a scaling.
"""

import copy
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForPreTraining,
    CLIPConfig,
    CLIPModel,
    DeepseekV2Config,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersModel,
    DistilBertConfig,
    DistilBertForMaskedLM,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    ModernBertConfig,
    ModernBertForMaskedLM,
    OPTConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
    RobertaConfig,
    RobertaForMaskedLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

HERE = Path(__file__).parent
BATCH, SEQ, PROMPT, NEW = 2, 11, 7, 8
VOCAB = 61
# Three of four heads share their keys, and `heads * head_dim` is not `d_model`.
LLAMA = {
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def llama3(theta):
    return {
        "rope_type": "llama3",
        "rope_theta": theta,
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8,
    }


def yarn(theta):
    return {
        "rope_type": "yarn",
        "rope_theta": theta,
        "factor": 4.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "original_max_position_embeddings": 8,
    }


def default(theta, **more):
    return {"rope_type": "default", "rope_theta": theta, **more}


DECODERS = {
    "gpt2": GPT2Config(
        vocab_size=VOCAB, n_embd=24, n_head=4, n_layer=2, n_positions=32, layer_norm_epsilon=1e-3, bos_token_id=1, eos_token_id=2
    ),
    "llama": LlamaConfig(**LLAMA, head_dim=8, rope_parameters=llama3(100.0), rms_norm_eps=1e-3, tie_word_embeddings=True),
    "smollm": LlamaConfig(**LLAMA, rope_parameters=default(1000.0), rms_norm_eps=1e-3, tie_word_embeddings=True),
    "mistral": MistralConfig(**LLAMA, head_dim=8, rope_parameters=default(1000.0), rms_norm_eps=1e-3, sliding_window=5),
    "qwen2": Qwen2Config(**LLAMA, rope_parameters=default(1000.0), rms_norm_eps=1e-3, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**LLAMA, head_dim=8, rope_parameters=default(1000.0), rms_norm_eps=1e-3, tie_word_embeddings=False),
    # Four layers, of which two have a window, and a scale that is not that of the heads.
    "gemma2": Gemma2Config(
        **LLAMA | {"num_hidden_layers": 4},
        head_dim=8,
        rope_parameters=default(1000.0),
        rms_norm_eps=1e-3,
        sliding_window=5,
        query_pre_attn_scalar=16,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0,
    ),
    # A round of six layers, and two more.
    "gemma3": Gemma3TextConfig(
        rms_norm_eps=1e-3,
        **LLAMA | {"num_hidden_layers": 8, "hidden_size": 16, "intermediate_size": 24},
        head_dim=8,
        rope_parameters={"sliding_attention": default(100.0), "full_attention": default(10000.0)},
        sliding_window=5,
        query_pre_attn_scalar=16,
    ),
    "phi3": Phi3Config(
        **LLAMA, rope_parameters=default(1000.0), rms_norm_eps=1e-3, sliding_window=5, pad_token_id=0, tie_word_embeddings=False
    ),
    # All texts but one are longer than those before the scaling.
    "phi3_long": Phi3Config(
        **LLAMA,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 1000.0,
            "short_factor": [1.0, 1.25, 2.0],
            "long_factor": [1.5, 3.0, 7.5],
        },
        original_max_position_embeddings=6,
        rms_norm_eps=1e-3,
        sliding_window=5,
        pad_token_id=0,
        tie_word_embeddings=False,
    ),
    "mixtral": MixtralConfig(
        **LLAMA | {"intermediate_size": 16},
        num_local_experts=4,
        num_experts_per_tok=2,
        rope_parameters=default(1000.0),
        rms_norm_eps=1e-3,
        sliding_window=None,
        tie_word_embeddings=False,
    ),
    "qwen3_moe": Qwen3MoeConfig(
        rms_norm_eps=1e-3,
        **LLAMA,
        head_dim=8,
        num_experts=5,
        num_experts_per_tok=2,
        moe_intermediate_size=12,
        norm_topk_prob=True,
        decoder_sparse_step=1,
        mlp_only_layers=[],
        rope_parameters=default(1000.0),
        tie_word_embeddings=False,
    ),
    "gpt_neox": GPTNeoXConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_attention_heads=4,
        intermediate_size=40,
        num_hidden_layers=2,
        layer_norm_eps=1e-3,
        rope_parameters=default(1000.0, partial_rotary_factor=0.5),
        bos_token_id=1,
        eos_token_id=2,
    ),
    "opt": OPTConfig(
        vocab_size=VOCAB,
        hidden_size=24,
        word_embed_proj_dim=24,
        num_attention_heads=4,
        ffn_dim=40,
        num_hidden_layers=2,
        max_position_embeddings=32,
    ),
    # Two layers with a window and two without. The limit cuts some of the numbers off.
    "gpt_oss": GptOssConfig(
        **LLAMA | {"num_hidden_layers": 4, "hidden_size": 16, "intermediate_size": 12, "max_position_embeddings": 32},
        head_dim=8,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=5,
        swiglu_limit=1.5,
        rms_norm_eps=1e-3,
        rope_parameters={**yarn(1000.0), "truncate": False},
        pad_token_id=0,
    ),
    # A layer without experts, and two with two of three groups of experts.
    "deepseek_v2": DeepseekV2Config(
        **LLAMA | {"num_hidden_layers": 3, "hidden_size": 20, "num_key_value_heads": 4, "max_position_embeddings": 32},
        q_lora_rank=12,
        kv_lora_rank=10,
        qk_nope_head_dim=6,
        qk_rope_head_dim=4,
        v_head_dim=5,
        first_k_dense_replace=1,
        n_routed_experts=6,
        n_group=3,
        topk_group=2,
        topk_method="group_limited_greedy",
        num_experts_per_tok=2,
        n_shared_experts=2,
        moe_intermediate_size=8,
        routed_scaling_factor=1.5,
        rms_norm_eps=1e-6,
        rope_parameters={**yarn(1000.0), "mscale": 0.7, "mscale_all_dim": 0.7},
        tie_word_embeddings=False,
    ),
    "llama_untied": LlamaConfig(**LLAMA, head_dim=8, rope_parameters=llama3(100.0), rms_norm_eps=1e-3, tie_word_embeddings=False),
}

BERT = {
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "max_position_embeddings": 16,
    "layer_norm_eps": 1e-3,
    "pad_token_id": 1,
}
DISTILBERT = {"vocab_size": VOCAB, "dim": 24, "n_heads": 4, "hidden_dim": 40, "n_layers": 2, "max_position_embeddings": 16}
# A layer without a window, and a round of two layers with a window and one without.
MODERNBERT = ModernBertConfig(
    vocab_size=VOCAB,
    hidden_size=24,
    num_attention_heads=4,
    intermediate_size=20,
    num_hidden_layers=4,
    max_position_embeddings=32,
    norm_eps=1e-3,
    local_attention=6,
    rope_parameters={"sliding_attention": default(100.0), "full_attention": default(1000.0)},
    pad_token_id=1,
    bos_token_id=2,
    eos_token_id=2,
    cls_token_id=2,
    sep_token_id=2,
)
ENCODERS = {
    "bert": (BertForPreTraining, BertConfig(**BERT)),
    "roberta": (RobertaForMaskedLM, RobertaConfig(**BERT, type_vocab_size=1)),
    "distilbert": (DistilBertForMaskedLM, DistilBertConfig(**DISTILBERT, pad_token_id=1)),
    "modernbert": (ModernBertForMaskedLM, MODERNBERT),
}

# Distances go beyond the largest one.
T5 = T5Config(
    vocab_size=VOCAB,
    d_model=24,
    d_kv=8,
    d_ff=40,
    num_layers=2,
    num_decoder_layers=2,
    num_heads=4,
    relative_attention_num_buckets=8,
    relative_attention_max_distance=6,
    layer_norm_epsilon=1e-3,
    feed_forward_proj="gated-gelu",
    tie_word_embeddings=False,
    pad_token_id=0,
    decoder_start_token_id=0,
)
BART = BartConfig(
    vocab_size=VOCAB,
    d_model=24,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=40,
    decoder_ffn_dim=40,
    encoder_layers=2,
    decoder_layers=2,
    max_position_embeddings=32,
    pad_token_id=0,
)
WHISPER = WhisperConfig(
    vocab_size=VOCAB,
    num_mel_bins=6,
    d_model=24,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=40,
    decoder_ffn_dim=40,
    encoder_layers=2,
    decoder_layers=2,
    max_source_positions=9,
    max_target_positions=32,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=1,
    begin_suppress_tokens=None,
)
# The two networks have other sizes. The last token of the vocabulary ends a text.
CLIP = CLIPConfig(
    text_config={
        "vocab_size": VOCAB,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "max_position_embeddings": 16,
        "layer_norm_eps": 1e-3,
        "bos_token_id": 1,
        "eos_token_id": VOCAB - 1,
        "pad_token_id": VOCAB - 1,
    },
    vision_config={
        "num_channels": 3,
        "image_size": 8,
        "patch_size": 4,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "layer_norm_eps": 1e-3,
    },
    projection_dim=10,
)
DINOV2 = Dinov2WithRegistersConfig(
    num_channels=3,
    image_size=8,
    patch_size=4,
    hidden_size=24,
    num_attention_heads=4,
    mlp_ratio=2,
    num_hidden_layers=2,
    layer_norm_eps=1e-3,
    num_register_tokens=3,
)
VIT = ViTConfig(
    num_channels=3,
    image_size=8,
    patch_size=4,
    hidden_size=24,
    num_attention_heads=4,
    intermediate_size=40,
    num_hidden_layers=2,
    layer_norm_eps=1e-3,
    num_labels=5,
)


def scattered(model, seed):
    """Random numbers in every parameter: biases that are not 0 and gains that are not 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_gain = "norm" in name.lower() or ".ln_" in name
            if parameter.dim() > 1:
                parameter.copy_(0.3 * noise)
            elif is_gain and name.endswith("weight"):
                parameter.copy_(parameter.mean() + 0.3 * noise)
            else:
                parameter.copy_(0.3 * noise)
    return model.eval()


def ids(seed, *shape):
    return torch.randint(3, VOCAB, shape, generator=torch.Generator().manual_seed(seed))


def saved(model):
    """The tensors and the config that `save_pretrained` writes: some files have other names than the modules, and other tensors."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(f"{folder}/model.safetensors"), Path(folder, "config.json").read_text()


def save(name, model, run):
    tensors, config = saved(model)
    save_file(tensors, HERE / f"{name}.safetensors", {"format": "pt"})
    (HERE / f"{name}.json").write_text(config)
    # The gradients have the layout of the file, too.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
    gradients, _ = saved(model)
    run |= {f"gradient.{key}": gradient for key, gradient in gradients.items()}
    exact = lambda tensor: tensor if tensor.dtype == torch.float64 else tensor.float()
    run = {key: exact(tensor.detach()).contiguous().clone() for key, tensor in run.items()}
    save_file(run, HERE / f"{name}.run.safetensors")


def likeliest(model, prompt):
    """The likeliest tokens behind a prompt, without a cache. No other token is nearly as likely."""
    tokens = prompt
    for _ in range(NEW):
        logits = model(tokens).logits[0, -1]
        first, second = logits.topk(2).values
        assert first - second > 1e-3 * first.abs()
        tokens = torch.cat((tokens, logits.argmax()[None, None]), 1)
    return tokens[0, prompt.shape[1] :]


def decoder(name, config):
    config._attn_implementation = "eager"
    model = scattered(AutoModelForCausalLM.from_config(config), 1)
    tokens, targets, prompt = ids(2, BATCH, SEQ), ids(3, BATCH, SEQ), ids(4, 1, PROMPT)
    logits = model(tokens).logits
    exact = copy.deepcopy(model).double()(tokens).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    with torch.no_grad():
        new = likeliest(model, prompt)
    run = {"tokens": tokens, "targets": targets, "logits": logits, "loss": loss, "prompt": prompt, "new": new}
    if name == "gpt2":
        # Without rotations, whose angles are f32 in any case.
        run |= {"exact_logits": exact}
    if name == "phi3_long":
        short = tokens[:, : config.original_max_position_embeddings]
        run |= {"short": short, "short_logits": model(short).logits}
    save(name, model, run)


def encoder(name, make, config):
    """A network that predicts masked tokens. The second text is shorter."""
    config._attn_implementation = "eager"
    model = scattered(make(config), 1)
    keep = torch.arange(SEQ) < torch.tensor([SEQ, 6])[:, None]
    # The token of padding is 1.
    tokens = ids(2, BATCH, SEQ).where(keep, 1)
    is_masked = keep & (ids(5, BATCH, SEQ) % 3 == 0)
    labels = ids(3, BATCH, SEQ).where(is_masked, VOCAB)
    inputs = {"input_ids": tokens, "attention_mask": keep.long()}
    run = {"tokens": tokens, "keep": keep, "labels": labels}
    if name == "bert":
        segments = (torch.arange(SEQ) > 3).long().expand(BATCH, SEQ)
        inputs |= {"token_type_ids": segments}
        run |= {"segments": segments, "next": torch.tensor([1, 0])}
    results = model(**inputs)
    logits = results[0]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=VOCAB)
    if name == "bert":
        run |= {"follows": results[1]}
        loss = loss + torch.nn.functional.cross_entropy(results[1], run["next"])
    loss.backward()
    # What stands behind a text is not read.
    save(name, model, run | {"logits": logits * keep[..., None], "loss": loss})


def t5():
    T5._attn_implementation = "eager"
    model = T5ForConditionalGeneration(T5)
    # T5 1.1 has a head of its own, which `transformers` 5 reads from a file, but does not make.
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
    return model


def bart():
    BART._attn_implementation = "eager"
    return BartForConditionalGeneration(BART)


def translator(name, model):
    """An encoder of texts, of which the second one is shorter, and a decoder."""
    scattered(model, 1)
    keep = torch.arange(SEQ) < torch.tensor([SEQ, 6])[:, None]
    source, tokens, targets = ids(2, BATCH, SEQ).where(keep, 0), ids(3, BATCH, 9), ids(4, BATCH, 9)
    inputs = {"input_ids": source, "attention_mask": keep.long(), "decoder_input_ids": tokens}
    logits = model(**inputs).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    prompt = ids(5, 1, 3)
    one = {"input_ids": source[1:], "attention_mask": keep[1:].long()}
    with torch.no_grad():
        new = likeliest(lambda tokens: model(**one, decoder_input_ids=tokens), prompt)
    run = {"source": source, "keep": keep, "tokens": tokens, "targets": targets, "logits": logits, "loss": loss}
    save(name, model, run | {"prompt": prompt, "new": new})


def whisper():
    WHISPER._attn_implementation = "eager"
    model = scattered(WhisperForConditionalGeneration(WHISPER), 1)
    mel = torch.randn(BATCH, 6, 18, generator=torch.Generator().manual_seed(2))
    tokens, targets = ids(3, BATCH, 9), ids(4, BATCH, 9)
    logits = model(mel, decoder_input_ids=tokens).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    prompt = ids(5, 1, 3)
    with torch.no_grad():
        new = likeliest(lambda tokens: model(mel[1:], decoder_input_ids=tokens), prompt)
    run = {"mel": mel, "tokens": tokens, "targets": targets, "logits": logits, "loss": loss}
    save("whisper", model, run | {"prompt": prompt, "new": new})


def clip():
    CLIP.text_config._attn_implementation = CLIP.vision_config._attn_implementation = "eager"
    model = scattered(CLIPModel(CLIP), 1)
    tokens = ids(2, 3, SEQ).clamp(max=VOCAB - 2)
    # Padding is the token of the end.
    for row, end in enumerate((SEQ - 1, 6, 3)):
        tokens[row, end:] = VOCAB - 1
    image = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(3))
    results = model(input_ids=tokens, pixel_values=image, return_loss=True)
    results.loss.backward()
    save("clip", model, {"tokens": tokens, "image": image, "logits": results.logits_per_text, "loss": results.loss})


def dinov2():
    DINOV2._attn_implementation = "eager"
    model = scattered(Dinov2WithRegistersModel(DINOV2), 1)
    image = torch.randn(BATCH, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    masked = torch.tensor([[False, True, False, False], [True, False, True, False]])
    logits = model(image, bool_masked_pos=masked).last_hidden_state
    target = torch.randn(logits.shape, generator=torch.Generator().manual_seed(3))
    loss = torch.nn.functional.mse_loss(logits, target)
    loss.backward()
    save("dinov2", model, {"image": image, "masked": masked, "target": target, "logits": logits, "loss": loss})


def classifier(name, config):
    config._attn_implementation = "eager"
    model = scattered(ViTForImageClassification(config), 1)
    image = torch.randn(BATCH, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    targets = torch.tensor([4, 1])
    logits = model(image).logits
    loss = torch.nn.functional.cross_entropy(logits, targets)
    loss.backward()
    save(name, model, {"image": image, "targets": targets, "logits": logits, "loss": loss})


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    chosen = sys.argv[1:]
    for name, config in DECODERS.items():
        if not chosen or name in chosen:
            decoder(name, config)
    for name, (make, config) in ENCODERS.items():
        if not chosen or name in chosen:
            encoder(name, make, config)
    for make in (t5, bart):
        if not chosen or make.__name__ in chosen:
            translator(make.__name__, make())
    for run in (whisper, clip, dinov2):
        if not chosen or run.__name__ in chosen:
            run()
    if not chosen or "vit" in chosen:
        classifier("vit", VIT)


main()
