"""Tiny tokenizers of the structure that families of models have, and what `tokenizers` makes of texts with them.

    python -m venv venv
    venv/bin/pip install tokenizers==0.23.3 sentencepiece==0.2.3 protobuf
    venv/bin/python attn-core/src/text/tests/families.py

`families.json` has the `tokenizer.json` of each family, cases of texts and of pairs of texts, and token sequences as they come out of a model,
with the pieces of text that a stream returns for them.
"""

import io
import json
import random
import tempfile
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers import models as kinds
from tokenizers.decoders import DecodeStream

CORPUS = ["the cat and the hat and the bat said hello to the world", "words and worlds, numbers 12 and 345!", "Grüße aus München"] * 4
TEXTS = [
    "",
    " ",
    "Hello world",
    "hello  world \n\n\tthe hat!",
    " the cat",
    "Grüße, naïve café",
    "e\u0301 is é, and ﬁ is fi",
    "日本語",
    "🦀 and 👩‍👩‍👧",
    "12345 + 6",
    "it's the world's hat, don't",
    "\u2603\u0000\u200b!",
    "\u2581the\u2581cat",
]
PAIRS = [("the cat", "hello world"), ("", "the hat"), ("🦀", "")]
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def special(*names, **more):
    return [AddedToken(name, special=True, normalized=False, **more) for name in names]


def template(single, pair, tokenizer):
    names = {piece.split(":")[0] for piece in (single + " " + pair).split() if piece[0] != "$"}
    return processors.TemplateProcessing(single, pair, [(name, tokenizer.token_to_id(name)) for name in names])


def byte_level(pre_tokenizer, size=290, normalizer=None, **more):
    tokenizer = Tokenizer(kinds.BPE(**more))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def split(pattern):
    bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), bytes])


def gpt2():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens(special("<|endoftext|>"))
    return tokenizer


def opt():
    tokenizer = gpt2()
    tokenizer.add_special_tokens(special("</s>"))
    tokenizer.post_processor = template("</s> $A", "</s> $A </s>:1 $B:1", tokenizer)
    return tokenizer


def roberta():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.add_special_tokens(special("<s>", "<pad>", "</s>", "<unk>") + special("<mask>", lstrip=True))
    ends = [(name, tokenizer.token_to_id(name)) for name in ("</s>", "<s>")]
    tokenizer.post_processor = processors.RobertaProcessing(*ends, trim_offsets=True, add_prefix_space=False)
    return tokenizer


def gpt_neox():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizer=normalizers.NFC())
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|padding|>"))
    # Blanks of code, which are no special tokens.
    tokenizer.add_tokens([AddedToken(" " * count, normalized=True) for count in (4, 3, 2)])
    return tokenizer


def llama3():
    tokenizer = byte_level(split(LLAMA3), ignore_merges=True)
    tokenizer.add_special_tokens(special("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"))
    begin = template("<|begin_of_text|> $A", "<|begin_of_text|> $A <|begin_of_text|>:1 $B:1", tokenizer)
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), begin])
    return tokenizer


def qwen2():
    tokenizer = byte_level(split(LLAMA3.replace("{1,3}", "")), normalizer=normalizers.NFC())
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in ("<think>", "</think>")])
    return tokenizer


def phi4():
    """Numbers between the pieces and the special tokens that nothing has."""
    tokenizer = byte_level(split(LLAMA3))
    tokenizer.add_special_tokens(special("<|user|>", "<|end|>", rstrip=True))
    file = json.loads(tokenizer.to_str())
    for added in file["added_tokens"]:
        added["id"] += 7
        file["model"]["vocab"][added["content"]] = added["id"]
    return Tokenizer.from_str(json.dumps(file))


def metaspace(names, tokens, prefix=True, byte_fallback=True):
    """Byte-pair encoding of characters, where bytes stand for those that are not in the vocabulary, as in SentencePiece."""
    pieces = Tokenizer(kinds.BPE())
    pieces.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    pieces.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=70, show_progress=False))
    model = json.loads(pieces.to_str())["model"]
    bytes = [f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else []
    vocabulary = [*names, *bytes, *sorted(model["vocab"], key=model["vocab"].get)]
    merges = [tuple(merge) for merge in model["merges"]]
    ids = {piece: id for id, piece in enumerate(vocabulary)}
    tokenizer = Tokenizer(kinds.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=byte_fallback))
    tokenizer.add_special_tokens(special(*names) + tokens)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + [decoders.Strip(" ", 1, 0)] * prefix)
    return tokenizer


def llama2():
    tokenizer = metaspace(["<unk>", "<s>", "</s>"], [])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.post_processor = template("<s> $A", "<s> $A <s>:1 $B:1", tokenizer)
    # It is for batches, and is not applied.
    tokenizer.enable_padding(direction="left", pad_id=0, pad_token="<unk>", length=9)
    tokenizer.enable_truncation(3)
    return tokenizer


def mistral():
    tokenizer = metaspace(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], [])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", split=False)
    tokenizer.post_processor = template("<s> $A", "<s> $A <s>:1 $B:1", tokenizer)
    return tokenizer


def phi3():
    tokenizer = metaspace(["<unk>", "<s>", "</s>"], special("<|endoftext|>", "<|user|>", "<|end|>", "<|assistant|>", rstrip=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return tokenizer


def gemma():
    tokenizer = metaspace(["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"], [], prefix=False)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.post_processor = template("<bos> $A", "<bos> $A <bos>:1 $B:1", tokenizer)
    return tokenizer


def bert(lowercase=True):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "the", "cat", "hat", "caf", "##e", "##s", "12", "##345", "and", "don"]
    words += ["!", ",", "'", "s", "t", "naive", "日", "gr", "##u", "##ße", "it", "+", "is", "e", "é", "##é"]
    tokenizer = Tokenizer(kinds.WordPiece({word: id for id, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(special(*words[:5]))
    tokenizer.post_processor = template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", tokenizer)
    tokenizer.decoder = decoders.WordPiece("##")
    return tokenizer


def bert_cased():
    return bert(False)


def charsmap():
    """The normalizer of a SentencePiece model, with few rules in place of the 10,000 of NFKC."""
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        rules.write("FB01\t66 69\n9\t20\nA\t20\nA0\t20\n65 301\tE9\n")
        rules.flush()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS), model_writer=model, vocab_size=36, normalization_rule_tsv=rules.name, minloglevel=2
        )
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    return proto.normalizer_spec.precompiled_charsmap


def unigram(names, unknown):
    pieces = Tokenizer(kinds.Unigram())
    pieces.pre_tokenizer = pre_tokenizers.Metaspace()
    pieces.train_from_iterator(CORPUS, trainers.UnigramTrainer(vocab_size=60, show_progress=False))
    scored = [(piece, round(score, 4)) for piece, score in json.loads(pieces.to_str())["model"]["vocab"] if piece not in names]
    tokenizer = Tokenizer(kinds.Unigram([(name, 0.0) for name in names] + scored, names.index(unknown)))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap()), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(special(*names))
    return tokenizer


def t5():
    tokenizer = unigram(["<pad>", "</s>", "<unk>"], "<unk>")
    tokenizer.add_special_tokens(special("<extra_id_1>", "<extra_id_0>"))
    tokenizer.post_processor = template("$A </s>", "$A </s> $B:1 </s>:1", tokenizer)
    return tokenizer


def xlm_roberta():
    tokenizer = unigram(["<s>", "<pad>", "</s>", "<unk>"], "<unk>")
    tokenizer.add_special_tokens(special("<mask>", lstrip=True))
    tokenizer.post_processor = template("<s> $A </s>", "<s> $A </s> </s> $B </s>", tokenizer)
    return tokenizer


def words():
    """No decoder: tokens with blanks between them."""
    tokenizer = Tokenizer(kinds.WordLevel({"<unk>": 0, "hello": 1, "world": 2, "the": 3, "hat": 4}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def bpe_of_words():
    """The first byte-pair encoding, whose last piece of a word says so."""
    tokenizer = Tokenizer(kinds.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(vocab_size=80, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.decoder = decoders.BPEDecoder("</w>")
    return tokenizer


FAMILIES = [gpt2, opt, roberta, gpt_neox, llama3, qwen2, phi4, llama2, mistral, phi3, gemma, bert, bert_cased, t5, xlm_roberta, words, bpe_of_words]


def streamed(tokenizer, ids):
    stream = DecodeStream(skip_special_tokens=False)
    return [stream.step(tokenizer, id) or "" for id in ids]


def case(tokenizer, text):
    ids = tokenizer.encode(text).ids
    return {
        "text": text,
        "ids": ids,
        "alone": tokenizer.encode(text, add_special_tokens=False).ids,
        "decoded": tokenizer.decode(ids, skip_special_tokens=False),
        "without_special": tokenizer.decode(ids, skip_special_tokens=True),
        "streamed": streamed(tokenizer, ids),
    }


def pair(tokenizer, first, second):
    encoding = tokenizer.encode(first, second)
    return {"first": first, "second": second, "ids": encoding.ids, "segments": encoding.type_ids}


def random_ids(tokenizer, seed):
    """Tokens as an untrained model chooses them: parts of characters in any order, half of them special."""
    generator = random.Random(seed)
    known = sorted(tokenizer.get_vocab(with_added_tokens=True).values())
    ids = [generator.choice(known) for _ in range(24)]
    return {"ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)}


def family(make):
    tokenizer = make()
    file = json.loads(tokenizer.to_str())
    tokenizer.no_padding()
    tokenizer.no_truncation()
    names = [added["content"] for added in file["added_tokens"]]
    texts = TEXTS + [f"the{name} hat {name}" for name in names[:5]] + ["".join(names)]
    return {
        "name": make.__name__,
        "tokenizer": file,
        "special": sorted(added["id"] for added in file["added_tokens"] if added["special"]),
        "texts": [case(tokenizer, text) for text in texts],
        "pairs": [pair(tokenizer, *texts) for texts in PAIRS],
        "random": [random_ids(tokenizer, seed) for seed in range(5)],
    }


families = [family(make) for make in FAMILIES]
Path(__file__).with_name("families.json").write_text(json.dumps(families, ensure_ascii=True, separators=(",", ":")).replace('{"name"', '\n{"name"') + "\n")
