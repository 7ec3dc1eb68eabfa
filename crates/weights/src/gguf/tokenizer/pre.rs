//! How byte-level BPE tokenizers cut a text before they merge, by the name that `tokenizer.ggml.pre`
//! holds.
//!
//! The expressions are applied one after the other to the pieces the one before has left. Where a
//! family's own tokenizer.json and llama.cpp's imitation of it are known to differ, the family's own
//! is here: case classes (`\p{Lu}`…) of `tekken` and `gpt-4o`, and the composing of characters (NFC),
//! which llama.cpp leaves out.
//!
//! A name that is missing here is refused, not guessed: models whose rules take code rather than
//! expressions (`kimi-k2`, `afmoe`, `superbpe`) are among those.

/// How a text is prepared for merging.
#[derive(Debug)]
pub(super) struct Pre {
    /// Values of `tokenizer.ggml.pre` that mean this.
    pub(super) names: &'static [&'static str],
    /// Expressions whose matches become pieces of their own, as does what lies between them.
    pub(super) splits: &'static [&'static str],
    /// Whether the text is brought to Unicode's composed form first.
    pub(super) nfc: bool,
    /// Whether a piece that is a token stays whole even if no merges lead to it.
    pub(super) ignore_merges: bool,
    /// Whether BOS stands before a text where the file does not say.
    pub(super) begins_with_bos: bool,
}

/// The rule of this name.
pub(super) fn find(name: &str) -> Option<&'static Pre> {
    TABLE.iter().find(|pre| pre.names.contains(&name))
}

/// All names, for messages.
pub(super) fn names() -> String {
    let names: Vec<&str> = TABLE.iter().flat_map(|pre| pre.names).copied().collect();
    names.join(", ")
}

/// The usual case: no composing, merges only, no BOS.
const fn rule(names: &'static [&'static str], splits: &'static [&'static str]) -> Pre {
    Pre { names, splits, nfc: false, ignore_merges: false, begins_with_bos: false }
}

const fn nfc(pre: Pre) -> Pre {
    Pre { nfc: true, ..pre }
}

const fn whole_pieces(pre: Pre) -> Pre {
    Pre { ignore_merges: true, ..pre }
}

const fn with_bos(pre: Pre) -> Pre {
    Pre { begins_with_bos: true, ..pre }
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The pattern of Qwen and Llama 3 with digits as `$digits` takes them.
macro_rules! words {
    ($digits:literal) => {
        concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}

/// The pattern of GPT-4o: words end where the case falls, `$contraction` belongs to the word.
macro_rules! cased {
    ($contraction:literal, $digits:literal) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $contraction,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $contraction,
            "|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}

const DEEPSEEK3: [&str; 3] = [
    r"\p{N}{1,3}",
    "[一-龥\u{3040}-ゟ゠-ヿ]+",
    concat!(
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
];

/// Letters of scripts with case, as DeepSeek's first tokenizer lists them.
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅ",
    r"Ὀ-Ὅὐ-ὗὙὛὝὟ-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌῐ-\x{1FD3}ῖ-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻ",
    r"Ȿ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
);
const DEEPSEEK_CJK: &str = "[一-龥ࠀ-一가-\u{d7ff}]+";

const TABLE: [Pre; 31] = [
    rule(&["default"], &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]),
    rule(
        &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "exaone4",
            "jais",
            "trillion",
            "granite-docling",
            "roberta-bpe",
            "jina-v1-en",
            "jina-v2-code",
        ],
        &[GPT2],
    ),
    nfc(rule(&["olmo", "mpt"], &[GPT2])),
    rule(
        &["starcoder", "refact", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[r"\p{N}", GPT2],
    ),
    nfc(rule(&["command-r"], &[r"\p{N}", GPT2])),
    rule(&["falcon"], &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"]),
    with_bos(whole_pieces(rule(
        &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        &[words!(r"\p{N}{1,3}")],
    ))),
    rule(&["dbrx", "smaug-bpe", "chatglm-bpe"], &[words!(r"\p{N}{1,3}")]),
    whole_pieces(rule(&["glm4", "glm5"], &[words!(r"\p{N}{1,3}")])),
    whole_pieces(rule(&["minicpm5"], &[r"\p{N}{1,3}", words!(r"\p{N}+")])),
    nfc(rule(&["qwen2", "deepseek-r1-qwen", "megrez"], &[words!(r"\p{N}")])),
    rule(
        &["stablelm2", "hunyuan", "solar-open", "grok-2", "kormo", "f2llmv2"],
        &[words!(r"\p{N}")],
    ),
    nfc(rule(
        &["qwen35"],
        &[concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}",
            r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )],
    )),
    rule(
        &["ufakzeka"],
        &[concat!(
            r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )],
    ),
    rule(&["laguna"], &[r"[^\n]+|[\n]+", words!(r"\p{N}")]),
    rule(
        &["seed-coder"],
        &[concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}",
            r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
        )],
    ),
    rule(
        &["bailingmoe", "bailingmoe2", "llada-moe"],
        &[concat!(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
        )],
    ),
    rule(
        &["exaone-moe"],
        &[concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+",
            r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
        )],
    ),
    rule(
        &["jais-2"],
        &[concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)",
            r"|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}"
        )],
    ),
    with_bos(whole_pieces(rule(&["tekken"], &[cased!("", r"\p{N}")]))),
    rule(
        &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        &[cased!("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}")],
    ),
    whole_pieces(rule(
        &["granite-embed-multi-97m"],
        &[cased!("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}")],
    )),
    rule(
        &["tiny_aya", "cohere2moe"],
        &[r"\d{1,3}(?=(?:\d{3})*\b)", cased!("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}")],
    ),
    whole_pieces(rule(
        &["youtu"],
        &[
            "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u{3040}-ゟ゠-ヿ]+",
            cased!("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}"),
        ],
    )),
    rule(
        &["deepseek-llm"],
        &[
            "[\r\n]",
            DEEPSEEK_LETTERS,
            "\\s?[!-/:-~！-／：-～‘-‟\u{3000}-。]+",
            r"\s+$",
            DEEPSEEK_CJK,
            r"\p{N}+",
        ],
    ),
    rule(&["deepseek-coder"], &["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK, r"\p{N}"]),
    rule(&["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], &DEEPSEEK3),
    rule(
        &["spark2_5"],
        &[
            DEEPSEEK3[0],
            DEEPSEEK3[1],
            concat!(
                r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
                r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"
            ),
            r"\p{N}",
        ],
    ),
    rule(&["poro-chat", "bloom", "gpt3-finnish"], &[WESTERN_ENDS]),
    rule(&["viking"], &[WESTERN_ENDS, r"\p{N}"]),
    with_bos(rule(
        &["chameleon"],
        &[
            "<sentinel:[0-9]+>",
            "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
            r"([\t\n]|    |  )",
            r"\p{N}",
            r"[\p{P}!-/:-@\[-`{-~]",
            GPT2,
        ],
    )),
];

/// Words up to the marks that end a clause.
const WESTERN_ENDS: &str = " ?[^(\\s|.,!?…。，、।۔،)]+";
