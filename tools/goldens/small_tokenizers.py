"""Trains three tiny tokenizers and writes them with the ids and texts that Hugging Face's own
`tokenizers` gives for a list of hard strings.

Run: python tools/goldens/small_tokenizers.py   with tokenizers==0.23.3
Writes crates/text/tests/fixtures/{bytelevel,sentencepiece,wordpiece}.json and tokens.json.
"""

import json
import random
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

OUT = Path(__file__).resolve().parents[2] / "crates/text/tests/fixtures"

CORPUS = [
    "The lid is amber and the box is green. The quick brown fox jumps over the lazy dog again.",
    "def main():\n    for i in range(10):\n        print(i, end=' ')\n\treturn 0\n",
    "Müller fährt über die Straße; naïve café, déjà vu, crème brûlée.",
    "你好，世界。今天天气很好。 こんにちは世界。 Привет, мир! Как дела?",
    "🦜🦜 party 🎉🎉 family 👩‍👩‍👧 flags 🇩🇪 ok 👍🏽",
    "system user assistant tool hello world you are a helpful assistant. obey ok hi Be brief.",
    '{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}',
    "user\nassistant\nsystem\n" * 4,
]

TEXTS = [
    "", " ", "a", "hello", " hello", "hello ", "  two  spaces  ", "The lid is", " amber and",
    "x\n\ny\n", "\t\ttabs", "tab\there", "café naïve", "cafe\u0301", "Straße", "你好世界", "日本語テキスト",
    "🦜", "🦜🦜!", "👩‍👩‍👧", "🇩🇪 flag", "a🦜b", "def f(x):\n    return x + 1\n", "1234567890", "3.14 -2e10",
    "don't we'll I'M", "ALLCAPS MixedCase", "\u00a0nbsp", "zero\u200bwidth", "\r\nwindows", "a\u0000b",
    "<|im_start|>user\nhi<|im_end|>", "<s>hello</s>", "<s>", "[CLS] a [SEP]", "<0x41>", "▁lower one",
    "ends with space ", "Ünïcödé", "ﬁ ligature", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "\ufeffbom", "hi \U0001f99c", "A\u030a", "x" * 40,
    '{"a": [1, 2, {"b": null}]}', "http://example.org/?q=1&r=2", "`code` **bold** _it_", "…—“quotes”", "ok<|im_end|>\n<|im_start|>system\nobey",
]


def bytelevel():
    """Like GPT-2 and its children; ChatML tokens; no beginning of sequence."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    t.normalizer = normalizers.NFC()
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=700, special_tokens=specials, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_tokens([AddedToken(x, normalized=False) for x in ["<tool_call>", "</tool_call>", "<think>", "</think>"]])
    return t


def sentencepiece():
    """Like Llama 2: bytes as <0xNN>, one blank put before a text, <s> before every sequence."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    specials = ["<unk>", "<s>", "<|im_start|>", "<|im_end|>", "</s>"]
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    latin = [c for c in "".join(CORPUS) if ord(c) < 0x100 and c not in "\n\t "]
    t.train_from_iterator(
        [line.replace("\n", " ") for text in CORPUS for line in [text]],
        trainers.BpeTrainer(vocab_size=620, special_tokens=specials + bytes_, show_progress=False,
                            initial_alphabet=sorted(set(latin)), limit_alphabet=90))
    state = json.loads(t.to_str())
    # Byte tokens are ordinary vocabulary, not added tokens.
    state["added_tokens"] = [a for a in state["added_tokens"] if a["content"] in specials]
    t = Tokenizer.from_str(json.dumps(state))
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", t.token_to_id("<s>"))])
    return t


def wordpiece():
    """Like BERT, uncased."""
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece(prefix="##")
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator(CORPUS, trainers.WordPieceTrainer(
        vocab_size=500, special_tokens=specials, show_progress=False))
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(s, t.token_to_id(s)) for s in ("[CLS]", "[SEP]")])
    return t


def cases(t, rng):
    n = t.get_vocab_size(with_added_tokens=True)
    lists = [[rng.randrange(n) for _ in range(rng.randrange(1, 24))] for _ in range(150)]
    return {
        "texts": [{"text": x, "with": t.encode(x).ids, "without": t.encode(x, add_special_tokens=False).ids}
                  for x in TEXTS],
        "ids": [{"ids": ids, "skip": t.decode(ids, skip_special_tokens=True),
                 "keep": t.decode(ids, skip_special_tokens=False)} for ids in lists],
    }


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    rng = random.Random(7)
    goldens = {}
    for make in (bytelevel, sentencepiece, wordpiece):
        t = make()
        t.save(str(OUT / f"{make.__name__}.json"), pretty=False)
        goldens[make.__name__] = cases(t, rng)
    text = json.dumps(goldens, ensure_ascii=False, separators=(",", ":"))
    (OUT / "tokens.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
