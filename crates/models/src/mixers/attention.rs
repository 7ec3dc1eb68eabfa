//! Softmax attention: one projection to `[q | k | v]`, head norms, rotation, attention, a gate in some
//! families, one projection back.

use backend::ops::{self, AttentionLayer, Output};
use backend::{Attention, Backend, NormCenter, NormOrder, NormSpan};
use weights::Matrix;

use crate::Error;
use crate::decoder::{Pass, Scratch, ScratchSizes};
use crate::dense::{LinearWeights, NormWeights};
use crate::loader::Loader;
use crate::modules::{Linear, Module};
use crate::recipe::{AttentionMixer, Bias, HeadNorm, KeysValues, Norm, OutGate, Qkv, ValueNorm};
use crate::share::{Cuts, Run, Shares, Unshared, evenly, evenly_or_one};
use crate::step::Wiring;

impl AttentionMixer {
    /// The full name of a part of it in the layer called `parent`.
    fn name_of(&self, parent: &str, part: &str) -> String {
        format!("{parent}.{}.{part}", self.name)
    }

    /// The projections to q, k and v, in this order, as far as there are any.
    fn inputs(&self, parent: &str, hidden: usize) -> Vec<Linear> {
        let linear = |name: &str, rows| Linear {
            name: self.name_of(parent, name),
            rows,
            cols: hidden,
            bias: self.qkv_bias,
        };
        let shape = &self.shape;
        let q_rows = match self.gate {
            OutGate::Absent => shape.q_cols(),
            OutGate::WithQuery => 2 * shape.q_cols(),
        };
        let (q, k) = (linear("q_proj", q_rows), linear("k_proj", shape.k_cols()));
        match (self.qkv, self.keys_values) {
            (Qkv::Fused(name), _) => vec![linear(name, shape.qkv_cols())],
            (Qkv::Split, KeysValues::Own) => {
                vec![q, k, linear("v_proj", shape.v_cols())]
            }
            (Qkv::Split, KeysValues::OneProjection) => vec![q, k],
            (Qkv::Split, KeysValues::OfMixer(_)) => vec![q],
        }
    }

    /// What the rows of the loaded matrix come from: a projection may be there twice.
    fn parts(&self, parent: &str, hidden: usize) -> Vec<Linear> {
        let mut parts = self.inputs(parent, hidden);
        if self.keys_values == KeysValues::OneProjection {
            parts.extend(parts.last().cloned());
        }
        parts
    }

    /// Columns of what a row is projected to.
    fn row_cols(&self) -> usize {
        match self.keys_values {
            KeysValues::OfMixer(_) => self.shape.q_cols(),
            KeysValues::Own | KeysValues::OneProjection => self.shape.qkv_cols(),
        }
    }

    fn output(&self, parent: &str, hidden: usize) -> Linear {
        let name = self.name_of(parent, self.out);
        Linear { name, rows: hidden, cols: self.shape.out_cols(), bias: self.out_bias }
    }

    /// The norms of q and, where there are keys, of k, with their full names and lengths.
    fn head_norms(&self, parent: &str) -> Vec<(Norm, String, usize)> {
        let Some(head_norm) = &self.head_norm else { return Vec::new() };
        let HeadNorm { names: [q, k], center, gain, span, eps, .. } = *head_norm;
        let full = |name, cols| {
            let (bias, scale) = (Bias::Absent, 1.0);
            let norm = Norm { name, center, gain, bias, eps, scale };
            let len = if span == NormSpan::Head { self.shape.head_dim } else { cols };
            (norm, self.name_of(parent, name), len)
        };
        let q = full(q, self.shape.q_cols());
        match self.keys_values {
            KeysValues::OfMixer(_) => vec![q],
            KeysValues::Own | KeysValues::OneProjection => vec![q, full(k, self.shape.k_cols())],
        }
    }

    /// The name of the sinks, if there are any.
    fn sinks_name(&self, parent: &str) -> Option<String> {
        (self.sinks == Bias::Stored).then(|| self.name_of(parent, "sinks"))
    }

    pub(super) fn modules(&self, parent: &str, hidden: usize) -> Vec<Module> {
        let inputs = self.inputs(parent, hidden).into_iter();
        let linears = inputs.chain([self.output(parent, hidden)]).map(Module::Linear);
        let norms = self.head_norms(parent).into_iter();
        let norms = norms.flat_map(|(norm, name, len)| norm.modules(name, len));
        let sinks = self
            .sinks_name(parent)
            .map(|name| Module::Vector { name, shape: vec![self.shape.heads] });
        linears.chain(norms).chain(sinks).collect()
    }

    pub(super) fn measure(&self, sizes: &mut ScratchSizes) {
        sizes.qkv = sizes.qkv.max(self.row_cols());
        sizes.attended = sizes.attended.max(self.shape.out_cols());
        if self.gate == OutGate::WithQuery {
            sizes.gate = sizes.gate.max(self.shape.q_cols());
        }
    }
}

/// Each machine has a share of the heads, and the keys and values that these read.
impl Shares for AttentionMixer {
    fn share(&mut self, ranks: usize) -> Result<(), Unshared> {
        if let Some(norm) = &self.head_norm
            && norm.span == NormSpan::AllHeads
            && norm.center == NormCenter::Mean
        {
            return Err(format!("a layer norm over all of its {} heads", self.shape.heads));
        }
        self.shape.heads = evenly(self.shape.heads, ranks, "heads")?;
        self.shape.kv_heads =
            evenly_or_one(self.shape.kv_heads, ranks, "heads of keys and values")?;
        Ok(())
    }

    fn cut(&self, layer: &str, cuts: &mut Cuts) {
        let Attention { heads, kv_heads, head_dim, .. } = self.shape;
        let queries = |each| Run { n: heads, each };
        let keys = Run { n: kv_heads, each: head_dim };
        let values = Run { n: kv_heads, each: self.shape.v_cols() / kv_heads };
        let gated = match self.gate {
            OutGate::Absent => queries(head_dim),
            OutGate::WithQuery => queries(2 * head_dim),
        };
        for (linear, part) in self.inputs(layer, 0).into_iter().zip([gated, keys, values]) {
            match self.qkv {
                Qkv::Split => cuts.rows(linear.name, &[part]),
                Qkv::Fused(_) => cuts.rows(linear.name, &[queries(head_dim), keys, values]),
            }
        }
        cuts.columns(self.output(layer, 0).name, queries(self.shape.v_dim()));
        let norms = self.head_norms(layer).into_iter().zip([queries(head_dim), keys]);
        for ((_, name, _), part) in norms {
            match self.head_norm.as_ref().map(|norm| norm.span) {
                Some(NormSpan::AllHeads) => cuts.norm(name, part, cuts.share().ranks),
                Some(NormSpan::OwnHead) => cuts.rows(name, &[part]),
                Some(NormSpan::Head) | None => {}
            }
        }
        if let Some(name) = self.sinks_name(layer) {
            cuts.rows(name, &[queries(1)]);
        }
    }
}

/// The pages that attention reads.
pub(super) enum Kept<'a, B: Backend> {
    /// Its own, to which it appends first.
    Own(&'a mut B::Pages),
    /// Those of another layer, which has done so.
    Others(&'a B::Pages),
}

/// Attention on a device.
pub(crate) struct AttentionWeights<B: Backend> {
    shape: Attention,
    qkv: LinearWeights<B>,
    gate: Option<LinearWeights<B>>,
    head_norm: Option<HeadNormWeights<B>>,
    rope: Option<usize>,
    sinks: Option<B::Vector>,
    out: LinearWeights<B>,
}

struct HeadNormWeights<B: Backend> {
    q: NormWeights<B>,
    /// Where there are keys.
    k: Option<NormWeights<B>>,
    /// A gain that does nothing, where values are normed.
    v: Option<B::Vector>,
    span: NormSpan,
    order: NormOrder,
}

impl<B: Backend> AttentionWeights<B> {
    pub(super) fn load(
        loader: &Loader,
        b: &B,
        mixer: &AttentionMixer,
        parent: &str,
    ) -> Result<Self, Error> {
        let hidden = loader.spec().hidden;
        let inputs = mixer.parts(parent, hidden);
        let (qkv, gate) = match mixer.gate {
            OutGate::Absent => (LinearWeights::load(loader, b, &inputs)?, None),
            OutGate::WithQuery => {
                let (qkv, gate) = load_gated(loader, b, &mixer.shape, &inputs)?;
                (qkv, Some(gate))
            }
        };
        let sinks = match mixer.sinks_name(parent) {
            Some(name) => Some(b.vector(&loader.numbers(&name, mixer.shape.heads)?)),
            None => None,
        };
        Ok(AttentionWeights {
            shape: mixer.shape.clone(),
            qkv,
            gate,
            head_norm: HeadNormWeights::load(loader, b, mixer, parent)?,
            rope: mixer.rope,
            sinks,
            out: LinearWeights::load(loader, b, &[mixer.output(parent, hidden)])?,
        })
    }

    pub(super) fn forward(
        &self,
        b: &B,
        pass: Pass<'_, B>,
        wiring: &Wiring<'_, B>,
        pages: Kept<'_, B>,
        s: &mut Scratch<B>,
    ) {
        self.qkv.apply(b, wiring.input(&s.x), Output::Into(&mut s.qkv));
        let norm = self.head_norm.as_ref().map(HeadNormWeights::op);
        let rotation = self.rope.map(|i| (&pass.spec.ropes[i], &s.angles[i]));
        if norm.is_some() || rotation.is_some() {
            b.rope(&mut s.qkv, &self.shape, norm, rotation);
        }
        let layer = AttentionLayer { spec: &self.shape, sinks: self.sinks.as_ref() };
        match pages {
            Kept::Own(pages) => b.attend(&s.qkv, layer, pages, pass.batch, &mut s.attended),
            Kept::Others(pages) => {
                b.attend_stored(&s.qkv, layer, pages, pass.batch, &mut s.attended);
            }
        }
        if let Some(gate) = &self.gate {
            gate.apply(b, wiring.input(&s.x), Output::Into(&mut s.gate));
            b.gate(&mut s.attended, &s.gate);
        }
        wiring.finish(b, (&self.out, &s.attended), &mut s.x, &mut s.y);
    }
}

impl<B: Backend> HeadNormWeights<B> {
    fn load(
        loader: &Loader,
        b: &B,
        mixer: &AttentionMixer,
        parent: &str,
    ) -> Result<Option<Self>, Error> {
        let Some(HeadNorm { span, order, .. }) = mixer.head_norm else { return Ok(None) };
        let mut norms = mixer.head_norms(parent).into_iter();
        let mut next = || {
            let load = |(norm, name, len): (Norm, String, usize)| {
                NormWeights::load(loader, b, &norm, &name, len)
            };
            norms.next().map(load).transpose()
        };
        let (Some(q), k) = (next()?, next()?) else { return Ok(None) };
        let v = match mixer.value_norm {
            ValueNorm::Plain if k.is_some() => {
                Some(b.vector(&vec![q.kind.neutral(); mixer.shape.head_dim]))
            }
            ValueNorm::Plain | ValueNorm::Absent => None,
        };
        Ok(Some(HeadNormWeights { q, k, v, span, order }))
    }

    fn op(&self) -> ops::HeadNorm<'_, B::Vector> {
        let HeadNormWeights { q, k, v, span, order } = self;
        ops::HeadNorm {
            q: q.row_norm(),
            k: k.as_ref().unwrap_or(q).row_norm(),
            v: v.as_ref().map(|gain| ops::RowNorm::rms(gain, q.kind, q.eps)),
            span: *span,
            order: *order,
        }
    }
}

/// The projections to `[q | k | v]` and to the gates of the heads, which lie between the queries.
fn load_gated<B: Backend>(
    loader: &Loader,
    b: &B,
    shape: &Attention,
    inputs: &[Linear],
) -> Result<(LinearWeights<B>, LinearWeights<B>), Error> {
    let (q, others) = inputs.split_at(1);
    let head_dim = shape.head_dim;
    let [stored] = &loader.matrices(&q[0])?[..] else { unreachable!("heads follow one another") };
    let parts = |first: usize| {
        let start = move |head: usize| (2 * head + first) * head_dim;
        (0..shape.heads).map(move |head| start(head)..start(head) + head_dim)
    };
    let biases = loader.biases(q)?;
    let bias = |first: usize| -> Option<Vec<f32>> {
        biases.as_ref().map(|all| parts(first).flat_map(|part| all[part].to_vec()).collect())
    };
    let mut queries: Vec<Matrix> = parts(0).map(|rows| stored.rows_range(rows)).collect();
    for other in others {
        queries.extend(loader.matrices(other)?);
    }
    let mut query_bias = bias(0);
    if let (Some(bias), Some(more)) = (&mut query_bias, loader.biases(others)?) {
        bias.extend(more);
    }
    let gates: Vec<Matrix> = parts(1).map(|rows| stored.rows_range(rows)).collect();
    Ok((LinearWeights::of(b, &queries, query_bias), LinearWeights::of(b, &gates, bias(1))))
}
