//! Softmax attention: one projection to `[q | k | v]`, head norms, rotation, attention, one
//! projection back.

use backend::ops::{HeadNorm, Output};
use backend::{Attention, Backend};

use crate::Error;
use crate::decoder::{Pass, Scratch, ScratchSizes};
use crate::dense::{LinearWeights, NormWeights, NormsWeights};
use crate::loader::Loader;
use crate::modules::{Linear, Module};
use crate::recipe::{AttentionMixer, Norm, Qkv};

impl AttentionMixer {
    /// The projections to q, k and v, in this order.
    fn inputs(&self, parent: &str, hidden: usize) -> Vec<Linear> {
        let linear = |name: &str, rows| Linear {
            name: format!("{parent}.self_attn.{name}"),
            rows,
            cols: hidden,
            bias: self.qkv_bias,
        };
        let shape = &self.shape;
        match self.qkv {
            Qkv::Split => vec![
                linear("q_proj", shape.q_cols()),
                linear("k_proj", shape.kv_cols()),
                linear("v_proj", shape.kv_cols()),
            ],
            Qkv::Fused => vec![linear("qkv_proj", shape.qkv_cols())],
        }
    }

    fn output(&self, parent: &str, hidden: usize) -> Linear {
        let name = format!("{parent}.self_attn.o_proj");
        Linear { name, rows: hidden, cols: self.shape.q_cols(), bias: self.out_bias }
    }

    /// The norms of q and k with their full names, if there are any.
    fn head_norms(&self, parent: &str) -> Option<[(String, Norm); 2]> {
        let norm = self.head_norm.as_ref()?;
        let full = |name| {
            let norm = Norm { name, gain: norm.gain, eps: norm.eps };
            (format!("{parent}.self_attn.{name}"), norm)
        };
        Some([full("q_norm"), full("k_norm")])
    }

    pub(super) fn modules(&self, parent: &str, hidden: usize) -> Vec<Module> {
        let inputs = self.inputs(parent, hidden).into_iter();
        let linears = inputs.chain([self.output(parent, hidden)]).map(Module::Linear);
        let gains = self.head_norms(parent).into_iter().flatten();
        let gain = |(name, _)| Module::Gain { name, len: self.shape.head_dim };
        linears.chain(gains.map(gain)).collect()
    }

    pub(super) fn measure(&self, sizes: &mut ScratchSizes) {
        sizes.qkv = sizes.qkv.max(self.shape.qkv_cols());
        sizes.attended = sizes.attended.max(self.shape.q_cols());
    }
}

/// Attention on a device.
pub(crate) struct AttentionWeights<B: Backend> {
    shape: Attention,
    qkv: LinearWeights<B>,
    head_norms: Option<[NormWeights<B>; 2]>,
    rope: Option<usize>,
    out: LinearWeights<B>,
}

impl<B: Backend> AttentionWeights<B> {
    pub(super) fn load(
        loader: &Loader,
        b: &B,
        mixer: &AttentionMixer,
        parent: &str,
    ) -> Result<Self, Error> {
        let hidden = loader.spec().hidden;
        let load = |(name, norm): &(String, Norm)| {
            NormWeights::load(loader, b, norm, name, mixer.shape.head_dim)
        };
        let head_norms = match mixer.head_norms(parent) {
            Some([q, k]) => Some([load(&q)?, load(&k)?]),
            None => None,
        };
        Ok(AttentionWeights {
            shape: mixer.shape.clone(),
            qkv: LinearWeights::load(loader, b, &mixer.inputs(parent, hidden))?,
            head_norms,
            rope: mixer.rope,
            out: LinearWeights::load(loader, b, &[mixer.output(parent, hidden)])?,
        })
    }

    pub(super) fn forward(
        &self,
        b: &B,
        pass: Pass<'_, B>,
        norms: &NormsWeights<B>,
        pages: &mut B::Pages,
        s: &mut Scratch<B>,
    ) {
        self.qkv.apply(b, norms.before().input(&s.x), Output::Into(&mut s.qkv));
        let norm = self.head_norms.as_ref().map(|[q, k]| HeadNorm {
            q: &q.gain,
            k: &k.gain,
            kind: q.kind,
            eps: q.eps,
        });
        let rotation = self.rope.map(|i| (&pass.spec.ropes[i], &s.angles[i]));
        if norm.is_some() || rotation.is_some() {
            b.rope(&mut s.qkv, &self.shape, norm, rotation);
        }
        b.attend(&s.qkv, &self.shape, pages, pass.batch, &mut s.attended);
        norms.finish(b, (&self.out, &s.attended), (&mut s.y, &mut s.h), &mut s.x);
    }
}
