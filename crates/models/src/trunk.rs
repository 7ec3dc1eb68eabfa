//! What every family reads from its config in the same way: the sizes of the residual stream, of
//! the heads, and which layers see only a window.
//!
//! Not a base class: a family takes the values and builds its own layers from them.

use backend::{
    Activation, Attention, Experts, KvFormat, NormCenter, NormGain, NormOrder, NormSpan, Rope,
    Values,
};

use crate::config::{Config, wrong};
use crate::recipe::{
    AttentionMixer, Bias, Correction, Ffn, GateKept, GateUp, GatedFfn, Head, HeadNorm, JoinedRows,
    KeysValues, Layer, LayerScalars, Mixer, MoeFfn, Norm, Norms, Orientation, OutGate, Place,
    Positions, Qkv, Router, Shared, Step, Streams, ValueNorm,
};
use crate::rope::RopeShape;
use crate::{Error, ModelSpec};

/// The common sizes of a decoder.
#[derive(Clone, Debug)]
pub(crate) struct Trunk {
    pub(crate) hidden: usize,
    pub(crate) vocab: usize,
    pub(crate) n_layers: usize,
    pub(crate) max_positions: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) eps: f32,
    pub(crate) activation: Activation,
    head: Head,
}

/// Whether a layer sees everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Full,
    Sliding,
}

impl Trunk {
    /// Reads the sizes and checks that they go together.
    pub(crate) fn read(c: &Config) -> Result<Trunk, Error> {
        let hidden = c.need_size("hidden_size")?;
        let heads = c.need_size("num_attention_heads")?;
        let kv_heads = c.size("num_key_value_heads")?.unwrap_or(heads);
        if heads % kv_heads != 0 {
            let problem =
                format!("is {kv_heads}, which does not divide num_attention_heads {heads}");
            return Err(Error::config("num_key_value_heads", problem));
        }
        let head_dim = match c.size("head_dim")? {
            Some(head_dim) => head_dim,
            None if hidden % heads == 0 => hidden / heads,
            None => {
                let problem =
                    format!("is missing and {hidden} columns do not divide by {heads} heads");
                return Err(Error::config("head_dim", problem));
            }
        };
        Ok(Trunk {
            hidden,
            vocab: c.need_size("vocab_size")?,
            n_layers: c.need_count("num_hidden_layers")?,
            max_positions: c
                .positions("max_position_embeddings")?
                .ok_or_else(|| crate::config::missing("max_position_embeddings"))?,
            heads,
            kv_heads,
            head_dim,
            eps: eps(c)?,
            activation: activation(c)?,
            head: head(c)?,
        })
    }

    /// Attention with the usual scale and no soft cap.
    pub(crate) fn shape(&self, window: Option<usize>) -> Attention {
        Attention {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            values: Values::Own(self.head_dim),
            scale: (self.head_dim as f32).powf(-0.5),
            window,
            growth: None,
            soft_cap: None,
        }
    }

    /// Attention with split, bias-free projections, the first rotation, no head norm and no gate.
    pub(crate) fn attention(&self, window: Option<usize>) -> AttentionMixer {
        AttentionMixer {
            name: "self_attn",
            shape: self.shape(window),
            qkv: Qkv::Split,
            qkv_bias: Bias::Absent,
            out: "o_proj",
            out_bias: Bias::Absent,
            keys_values: KeysValues::Own,
            sinks: Bias::Absent,
            head_norm: None,
            value_norm: ValueNorm::Absent,
            rope: Some(0),
            gate: OutGate::Absent,
        }
    }

    /// A feed-forward layer with split, bias-free projections.
    pub(crate) fn gated(&self, inner: usize) -> GatedFfn {
        GatedFfn {
            name: "mlp",
            inner,
            activation: self.activation,
            kept: GateKept::All,
            gate_up: GateUp::Split,
            bias: Bias::Absent,
        }
    }

    /// A mixture of bias-free experts and nothing else.
    pub(crate) fn mixture(&self, experts: Experts) -> MoeFfn {
        let (bias, correction) = (Bias::Absent, Correction::Absent);
        MoeFfn {
            name: "mlp",
            router: Router { name: "gate", bias, correction },
            experts,
            latent: None,
            expert_bias: Bias::Absent,
            joined_rows: JoinedRows::GateThenUp,
            scales: None,
            shared: Shared::None,
        }
    }

    /// An RMS norm whose stored gain is the gain.
    pub(crate) fn norm(&self, name: &'static str) -> Norm {
        let (center, gain, bias) = (NormCenter::Zero, NormGain::Stored, Bias::Absent);
        Norm { name, center, gain, bias, eps: self.eps, scale: 1.0 }
    }

    /// A layer norm whose stored gain is the gain.
    pub(crate) fn layer_norm(&self, name: &'static str, bias: Bias) -> Norm {
        Norm { center: NormCenter::Mean, bias, ..self.norm(name) }
    }

    /// An RMS norm on every head of q and k before they are rotated.
    pub(crate) fn head_norm(&self) -> HeadNorm {
        HeadNorm {
            names: ["q_norm", "k_norm"],
            center: NormCenter::Zero,
            gain: NormGain::Stored,
            span: NormSpan::Head,
            order: NormOrder::BeforeRotation,
            eps: self.eps,
        }
    }

    /// The layer of llama and everything that looks like it: one norm before each branch.
    pub(crate) fn pre_norm_layer(&self, attention: AttentionMixer, ffn: Ffn) -> Layer {
        self.pre_norm(Mixer::Attention(attention), ffn)
    }

    /// The same with any mixer.
    pub(crate) fn pre_norm(&self, mixer: Mixer, ffn: Ffn) -> Layer {
        let norms = |name| Norms::Pre(self.norm(name));
        Layer {
            steps: vec![
                Step::new(norms("input_layernorm"), mixer),
                Step::new(norms("post_attention_layernorm"), ffn),
            ],
        }
    }

    /// What a rotation depends on, serving `context` positions or all the model can tell apart.
    pub(crate) fn rope_shape(&self, context: Option<usize>) -> RopeShape {
        let max_positions = self.max_positions;
        let context = context.unwrap_or(max_positions);
        RopeShape { head_dim: self.head_dim, max_positions, context }
    }

    /// The whole model around `layers`, with what most families have.
    pub(crate) fn spec(
        self,
        family: &'static str,
        ropes: Vec<Rope>,
        layers: Vec<Layer>,
    ) -> ModelSpec {
        ModelSpec {
            family,
            vocab: self.vocab,
            hidden: self.hidden,
            max_positions: self.max_positions,
            embed: "embed_tokens",
            embed_scale: 1.0,
            positions: Positions::Absent,
            layer_inputs: None,
            streams: Streams::One,
            ropes,
            layers,
            orientation: Orientation::ByOutput,
            layer_scalars: LayerScalars::Absent,
            final_norm: self.norm("norm"),
            head: self.head,
            head_bias: Bias::Absent,
            logit_scale: 1.0,
            final_soft_cap: None,
            place: Place::Trunk { layers: "layers" },
            drafts: Vec::new(),
            kv_format: KvFormat::default(),
        }
    }

    /// Which layers slide: `layer_types` where the config has it, else `rule`.
    pub(crate) fn views(
        &self,
        c: &Config,
        rule: impl Fn(usize) -> View,
    ) -> Result<Vec<View>, Error> {
        let Some(names) = c.per_layer("layer_types", self.n_layers)? else {
            return Ok((0..self.n_layers).map(rule).collect());
        };
        let view = |name: &String| match name.as_str() {
            "full_attention" => Ok(View::Full),
            "sliding_attention" => Ok(View::Sliding),
            other => Err(Error::config(
                "layer_types",
                format!("names \"{other}\"; supported: full_attention, sliding_attention"),
            )),
        };
        names.iter().take(self.n_layers).map(view).collect()
    }

    /// The window of each layer, given which of them slide.
    pub(crate) fn windows(&self, c: &Config, views: &[View]) -> Result<Vec<Option<usize>>, Error> {
        let window = c.positions("sliding_window")?;
        if window.is_none() && views.contains(&View::Sliding) {
            return Err(crate::config::missing("sliding_window"));
        }
        Ok(views.iter().map(|view| window.filter(|_| *view == View::Sliding)).collect())
    }
}

/// What is added to a mean square, by the names that it has.
fn eps(c: &Config) -> Result<f32, Error> {
    for key in ["rms_norm_eps", "layer_norm_eps", "norm_epsilon", "layer_norm_epsilon", "norm_eps"]
    {
        if let Some(eps) = c.positive(key)? {
            return Ok(eps);
        }
    }
    Ok(1e-6)
}

fn activation(c: &Config) -> Result<Activation, Error> {
    let key = if c.get("hidden_activation").is_some() { "hidden_activation" } else { "hidden_act" };
    match c.text(key)?.unwrap_or("silu") {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu_pytorch_tanh" | "gelu_new" => Ok(Activation::GeluTanh),
        "gelu" => Ok(Activation::GeluErf),
        "relu" => Ok(Activation::Relu),
        "relu2" => Ok(Activation::ReluSquared),
        other => Err(wrong(key, "silu, gelu, gelu_pytorch_tanh, relu or relu2", &other.into())),
    }
}

fn head(c: &Config) -> Result<Head, Error> {
    match c.get("tie_word_embeddings") {
        None => Ok(Head::IfStored),
        Some(_) if c.is_on("tie_word_embeddings")? => Ok(Head::Tied),
        Some(_) => Ok(Head::Separate),
    }
}
