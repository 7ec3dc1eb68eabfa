"""Small GGUF vocabularies, and the token ids llama.cpp gives for texts of many kinds.

Writes crates/weights/tests/fixtures/gguf/tokenizers/:
  bpe.gguf, spm.gguf, ranked.gguf, wordpiece.gguf   vocabularies of a few hundred tokens, made here
  bpe.json                                          {pre-tokenizer: {text: ids}} over bpe.gguf
  spm.json, ranked.json, wordpiece.json             {text: ids}
and, with --models DIR, over the real files found there, FILE.json: {text: ids}.

The small BPE vocabulary is trained without cutting texts into words, so that its merges cross every
border a pre-tokenizer might draw: two rules that differ on a text give other ids. It joins digits,
spaces, line ends, marks and letters of several scripts.

llama.cpp imitates some expressions only roughly; texts where it is known to differ from the family's
own tokenizer are left out of the lists for these rules, see SKIP.

    pip install gguf==0.19.0 tokenizers==0.23.3
    python tools/goldens/gguf_tokenizer.py --llama-tokenize PATH [--models DIR]
"""

import argparse
import json
import re
import subprocess
import tempfile
from pathlib import Path

from gguf import GGUFWriter, TokenType
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

OUT = Path(__file__).resolve().parents[2] / "crates/weights/tests/fixtures/gguf/tokenizers"

TEXTS = [
    "", " ", "  ", "   ", "a", " a", "  a", "a ", "a  ", "\n", "\n\n", "\n\n\n\n", "\t", "\t\t\tx", " \n ", "\r\n", "\r\n\r\nx",
    "Hello, world!", "Hello world", " Hello World", "hello   world    again", "don't I'LL we've SHE'S they're 'tis o'clock",
    "1", "12", "123", "1234", "12345678901", "3.14159 and 2,718,281", "x1y22z333", " 42 007 ", "½ ¾ ² Ⅷ ٣٤٥",
    "def f(x):\n    return x ** 2\n\n\nclass A:\n\tpass\n", "for (int i = 0; i < n; ++i) { a[i] += b[i]; }",
    "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}", "<div class=\"x\">&nbsp;</div>", "#include <stdio.h>",
    "SELECT * FROM t WHERE a != 'b' -- c", "https://example.org/a/b?c=d&e=f#g", "a_b-c.d/e\\f|g~h`i@j^k", "$100 €50 £20 ¥5 +1 -1 =2 <3>",
    "foo...bar?!?! (baz) [qux] --- ===", "camelCaseWord PascalCase SCREAMING_SNAKE", "ÀÉÎÕÜ àéîõü ß œ Ł ż", "Straße naïve café façade",
    "Привет, мир! Как дела?", "Γειά σου Κόσμε", "你好，世界！今天天气很好。", "日本語のテキストです。カタカナ", "안녕하세요 세계", "مرحبا بالعالم", "שלום עולם",
    "नमस्ते दुनिया", "สวัสดีชาวโลก", "😀 😃😄 👩‍👩‍👧‍👦 🇩🇪 👍🏽", "a😀b", "\u200b\ufeffx\u00a0y\u2003z\u3000w", "e\u0301 o\u0308 n\u0303", "▁under▁score ▁",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "<|endoftext|>x<|endoftext|>", "<s>[INST] Hi [/INST]</s>",
    "<bos><start_of_turn>user\nHi<end_of_turn>\n", "<tool_call>\n{}\n</tool_call>", "<unk> <pad> [CLS] [SEP]", "<|not a token|> <im_start>",
    "The quick brown fox jumps over the lazy dog. " * 2, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", " " * 33 + "x", "-" * 40, "\n" * 20, "\t" * 9,
    "word " * 3 + "\n  indented\n    more\n\n  end  \n", "Mr. O'Neill's 2nd-best idea cost $3.50 (≈ 3,20 €) in '99.",
]

# Texts where llama.cpp is known not to do what the family's own tokenizer does, by rule.
DECOMPOSED = ["e\u0301 o\u0308 n\u0303"]  # it never composes characters
CASED = ["ÀÉÎÕÜ àéîõü ß œ Ł ż", "Straße naïve café façade", "Привет, мир! Как дела?", "Γειά σου Κόσμε", "नमस्ते दुनिया", "สวัสดีชาวโลก"] + DECOMPOSED
CAMEL = ["camelCaseWord PascalCase SCREAMING_SNAKE"]  # it knows no case where classes stand beside literals
SPACES = ["\u200b\ufeffx\u00a0y\u2003z\u3000w"]  # it takes these spaces for vertical tabs
MARKS = ["नमस्ते दुनिया", "▁under▁score ▁"]  # it strips spacing marks too, and takes a ▁ of the text for the start of a word
STOP = ["<s>[INST] Hi [/INST]</s>"]  # it makes a control token of any token `</s>`, of Qwen's piece of text, too
SKIP = {name: DECOMPOSED for name in ("olmo", "command-r", "qwen2", "qwen35")}
SKIP |= {name: CASED for name in ("tekken", "gpt-4o", "granite-embed-multi-97m")}
SKIP |= {name: CASED + CAMEL for name in ("tiny_aya", "youtu")}
SKIP |= {name: SPACES for name in ("deepseek-coder", "deepseek-llm")}

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def ids(tool, model, text):
    args = [tool, "-m", str(model), "--ids", "--stdin", "--no-bos"]
    out = subprocess.run(args, input=text.encode(), capture_output=True, check=True).stdout
    return json.loads(out)


def goldens(tool, model, skip=()):
    return {text: ids(tool, model, text) for text in dict.fromkeys(TEXTS) if text and text not in skip}


def vocabulary(path, kind, pre, tokens, types, **more):
    w = GGUFWriter(path, "llama")
    for add, n in [(w.add_context_length, 64), (w.add_embedding_length, 32), (w.add_block_count, 1),
                   (w.add_feed_forward_length, 32), (w.add_head_count, 1), (w.add_layer_norm_rms_eps, 1e-5)]:
        add(n)
    w.add_tokenizer_model(kind)
    if pre:
        w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types(types)
    for name, value in more.items():
        getattr(w, f"add_{name}")(value)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def bpe():
    """Byte-level BPE whose merges know no words."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), max_token_length=12)
    t.train_from_iterator(TEXTS * 2, trainer)
    model = json.loads(t.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get) + SPECIALS + ["<tool_call>"]
    types = [TokenType.NORMAL] * (len(tokens) - 4) + [TokenType.CONTROL] * 3 + [TokenType.USER_DEFINED]
    return tokens, types, [" ".join(merge) for merge in model["merges"]]


def spm():
    """SentencePiece BPE, trained on the same texts; scores fall with the id."""
    t = Tokenizer(models.BPE())
    t.train_from_iterator([text.replace(" ", "▁") for text in TEXTS * 2], trainers.BpeTrainer(vocab_size=700, max_token_length=12, limit_alphabet=260))
    model = json.loads(t.to_str())["model"]
    joint = {"".join(merge) for merge in model["merges"]}
    chars = [token for token in model["vocab"] if token not in joint and token != "▁" and token != "\n"]
    learned = ["".join(merge) for merge in model["merges"]]
    head = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + ["\n\n", "  ", "<tool_call>"]
    learned = [token for token in dict.fromkeys(learned) if "\n" not in token and token not in head]
    tokens = head + learned + ["▁"] + chars
    types = [TokenType.UNKNOWN] + [TokenType.CONTROL] * 2 + [TokenType.BYTE] * 256 + [TokenType.USER_DEFINED] * 3
    types += [TokenType.NORMAL] * (len(tokens) - len(types))
    scores = [0.0] * len(head) + [-float(i) for i in range(len(tokens) - len(head))]
    return tokens, types, scores


def ranked():
    """The same pieces joined by rank, as Gemma 4 has them; breaks of lines join each other, and nothing else."""
    t = Tokenizer(models.BPE())
    lines = [line.replace(" ", "▁") for text in TEXTS * 2 for line in re.split(r"\n+", text)]
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=700, max_token_length=12, limit_alphabet=260))
    model = json.loads(t.to_str())["model"]
    merges = model["merges"] + [["\n", "\n"], ["\n\n", "\n\n"]]
    head = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{b:02X}>" for b in range(256)] + ["<|tool_call>", "<turn|>"]
    tokens = head + sorted(model["vocab"], key=model["vocab"].get) + ["\n", "\n\n", "\n\n\n\n"]
    types = [TokenType.CONTROL] * 3 + [TokenType.UNKNOWN] + [TokenType.BYTE] * 256 + [TokenType.USER_DEFINED, TokenType.CONTROL]
    types += [TokenType.NORMAL] * (len(tokens) - len(types))
    return tokens, types, [" ".join(merge) for merge in merges]


def wordpiece():
    words = sorted({w for text in TEXTS for w in re.findall(r"[a-z]+|[0-9]|[^\sa-z0-9]", text.lower())})
    pieces = sorted({c for w in words for c in w} | {"ing", "ed", "er", "ld", "rn"})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + ["▁" + w for w in words[::2]] + ["▁" + p for p in pieces if len(p) == 1 and p not in words[::2]]
    tokens += [p for p in pieces if p not in "[]"]
    tokens = list(dict.fromkeys(tokens))
    return tokens, [TokenType.CONTROL] * 5 + [TokenType.NORMAL] * (len(tokens) - 5)


def names_of_pre():
    source = (Path(__file__).resolve().parents[2] / "crates/weights/src/gguf/tokenizer/pre.rs").read_text()
    table = source[source.index("const TABLE"):]
    groups = re.findall(r"rule\(\s*&\[([^\]]*)\]", table)
    return [re.findall(r'"([^"]+)"', group) for group in groups]


def dump(name, value):
    (OUT / name).write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--llama-tokenize", required=True)
    parser.add_argument("--models", type=Path)
    args = parser.parse_args()
    tool = args.llama_tokenize
    OUT.mkdir(parents=True, exist_ok=True)

    tokens, types, merges = bpe()
    n = len(tokens)
    special = dict(eos_token_id=n - 2, bos_token_id=n - 4, add_bos_token=False, token_merges=merges)
    vocabulary(OUT / "bpe.gguf", "gpt2", "gpt-2", tokens, types, **special)
    out = {}
    with tempfile.TemporaryDirectory() as tmp:
        for group in names_of_pre():
            # Of names that mean the same rule, one is enough to know its ids.
            vocabulary(f"{tmp}/v.gguf", "gpt2", group[0], tokens, types, **special)
            out[group[0]] = goldens(tool, f"{tmp}/v.gguf", SKIP.get(group[0], ()))
    dump("bpe.json", out)

    tokens, types, scores = spm()
    vocabulary(OUT / "spm.gguf", "llama", "default", tokens, types, token_scores=scores, bos_token_id=1, eos_token_id=2, unk_token_id=0)
    dump("spm.json", goldens(tool, OUT / "spm.gguf"))

    tokens, types, merges = ranked()
    vocabulary(OUT / "ranked.gguf", "gemma4", None, tokens, types, token_merges=merges, pad_token_id=0, eos_token_id=1, bos_token_id=2,
               unk_token_id=3, add_bos_token=False)
    dump("ranked.json", goldens(tool, OUT / "ranked.gguf"))

    tokens, types = wordpiece()
    vocabulary(OUT / "wordpiece.gguf", "bert", None, tokens, types, bos_token_id=2, sep_token_id=3, unk_token_id=1, pad_token_id=0, mask_token_id=4)
    dump("wordpiece.json", goldens(tool, OUT / "wordpiece.gguf", MARKS))

    for model in sorted(args.models.glob("*.gguf")) if args.models else []:
        dump(model.stem + ".json", goldens(tool, model, STOP + DECOMPOSED if "qwen" in model.stem else ()))


if __name__ == "__main__":
    main()
