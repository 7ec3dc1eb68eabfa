//! Rotation and attention: ragged sequences that catch up in passes of any cut.

mod blocks;

use super::data::{Rng, Rows, download, upload};
use super::passes::{self, Case as _, Pass};
use super::rounding::{Rounding, sizes};
use super::rows::NORM;
use super::{Tolerance, assert_close, assert_same_bits};
use crate::ops::{AttentionLayer, HeadNorm, RowNorm};
use crate::reference::Reference;
use crate::{
    Attention, BLOCK, Backend, Batch, BlockId, KvFormat, KvGroup, NormCenter, NormGain, NormOrder,
    NormSpan, QueryGrowth, Rope, RopeLayout, Span, Values,
};

/// A layer, how it stores keys and values, and the `[q | k | v]` rows of some sequences.
#[derive(Clone)]
struct Case {
    spec: Attention,
    format: KvFormat,
    rope: Rope,
    norm: Option<Norm>,
    sinks: Option<Vec<f32>>,
    sequences: Vec<Sequence>,
    n_blocks: usize,
}

/// How q and k are normed.
#[derive(Clone)]
struct Norm {
    kind: NormKind,
    /// Gains of q, k and v.
    gains: [Vec<f32>; 3],
}

#[derive(Clone, Copy, Debug)]
struct NormKind {
    center: NormCenter,
    gain: NormGain,
    span: NormSpan,
    order: NormOrder,
}

/// The usual one.
const HEADS: NormKind = NormKind {
    center: NormCenter::Zero,
    gain: NormGain::Stored,
    span: NormSpan::Head,
    order: NormOrder::BeforeRotation,
};

#[derive(Clone)]
struct Sequence {
    qkv: Rows,
    blocks: Vec<BlockId>,
}

/// What one call of `rope` is asked for.
#[derive(Clone, Copy, Debug)]
enum Part {
    Norm,
    Rotation,
    Neither,
}

/// What a layer makes of one sequence.
struct Outcome {
    angles: Rows,
    rotated: Rows,
    attended: Rows,
}

fn attention(heads: usize, kv_heads: usize, head_dim: usize) -> Attention {
    let scale = (head_dim as f32).powf(-0.5);
    let values = Values::Own(head_dim);
    Attention {
        heads,
        kv_heads,
        head_dim,
        values,
        scale,
        window: None,
        growth: None,
        soft_cap: None,
    }
}

fn rope(rng: &mut Rng, pairs: usize, layout: RopeLayout) -> Rope {
    let inv_freq = (0..pairs).map(|i| 10_000f32.powf(-(i as f32) / pairs as f32)).collect();
    Rope { inv_freq, attention_factor: 1.0 + rng.uniform().abs(), layout }
}

fn cases(rng: &mut Rng) -> Vec<Case> {
    KvFormat::ALL.into_iter().flat_map(|format| cases_of(format, rng)).collect()
}

fn cases_of(format: KvFormat, rng: &mut Rng) -> Vec<Case> {
    use RopeLayout::{Halves, Interleaved};
    let windowed = |spec: Attention, window| Attention { window: Some(window), ..spec };
    let capped = |spec: Attention, cap| Attention { soft_cap: Some(cap), ..spec };
    let growing = |spec: Attention| Attention {
        growth: Some(QueryGrowth { beta: 0.3, original: 12 }),
        ..spec
    };
    let one_plus = NormKind { gain: NormGain::OnePlus, ..HEADS };
    let rotated = NormKind { order: NormOrder::AfterRotation, ..HEADS };
    let own = NormKind { center: NormCenter::Mean, span: NormSpan::OwnHead, ..HEADS };
    let all = NormKind { span: NormSpan::AllHeads, ..HEADS };
    let valued = |spec: Attention, values| Attention { values, ..spec };
    let layers = [
        (attention(2, 2, 32), 16, Halves, None),
        (attention(4, 2, 64), 32, Interleaved, Some(HEADS)),
        (windowed(attention(6, 2, 80), 40), 16, Halves, None),
        (attention(3, 1, 96), 24, Interleaved, None),
        (capped(attention(8, 1, 128), 5.0), 64, Halves, Some(HEADS)),
        (windowed(capped(attention(4, 1, 256), 2.0), 64), 128, Halves, Some(one_plus)),
        (windowed(attention(5, 5, 64), 1), 32, Halves, None),
        (attention(9, 3, 64), 32, Halves, None),
        (growing(attention(6, 3, 32)), 8, Halves, Some(rotated)),
        (growing(capped(attention(4, 2, 64), 3.0)), 16, Interleaved, Some(own)),
        (attention(8, 2, 48), 24, Halves, Some(all)),
        // Values that are wider or narrower than keys, and such as are a part of them.
        (valued(attention(4, 2, 48), Values::Own(80)), 24, Halves, Some(HEADS)),
        (valued(attention(3, 3, 64), Values::Own(20)), 32, Interleaved, None),
        (valued(attention(3, 1, 320), Values::OfKeys(256)), 32, Interleaved, None),
        (valued(attention(5, 1, 37), Values::OfKeys(29)), 4, Halves, None),
        (valued(windowed(attention(4, 2, 33), 50), Values::OfKeys(33)), 4, Halves, None),
        (valued(capped(attention(70, 1, 24), 3.0), Values::OfKeys(7)), 4, Interleaved, None),
        // Nothing a vector register would like.
        (attention(7, 1, 20), 3, Halves, Some(HEADS)),
    ];
    // So long that a device that cuts keys into pieces has several, with windows that start anywhere.
    let long_layers = [
        (attention(2, 1, 8), 4, Halves, None),
        (windowed(attention(2, 1, 16), 300), 4, Halves, None),
        (valued(attention(6, 1, 24), Values::OfKeys(16)), 4, Halves, None),
        (windowed(capped(attention(2, 2, 8), 3.0), 513), 2, Interleaved, None),
    ];
    let lengths = [[75, 1, 33], [130, 64, 31], [5, 97, 32]].into_iter().cycle();
    let long_lengths = [[1026, 1, 33], [830, 65, 1], [700, 1, 33], [540, 513, 33]];
    let layers = layers.into_iter().zip(lengths).chain(long_layers.into_iter().zip(long_lengths));
    let mut cases = Vec::new();
    for (i, ((spec, pairs, layout, norm), lengths)) in layers.enumerate() {
        let norm = norm.map(|kind| Norm::new(kind, &spec, rng));
        let rope = rope(rng, pairs, layout);
        let (sequences, n_blocks) = sequences(rng, &spec, lengths);
        let sink = |x: f32| 4.0 * x;
        let sinks = (i % 3 == 1).then(|| rng.vector(spec.heads).into_iter().map(sink).collect());
        cases.push(Case { spec, format, rope, norm, sinks, sequences, n_blocks });
    }
    cases
}

/// Sequences whose blocks lie scattered over the pages.
fn sequences(rng: &mut Rng, spec: &Attention, lengths: [usize; 3]) -> (Vec<Sequence>, usize) {
    let n_blocks = lengths.iter().map(|len| len.div_ceil(BLOCK)).sum::<usize>() + 2;
    let mut free: Vec<BlockId> = (0..n_blocks as BlockId).collect();
    let sequences = lengths.map(|len| {
        let blocks = (0..len.div_ceil(BLOCK)).map(|_| free.swap_remove(rng.below(free.len())));
        let blocks = blocks.collect();
        Sequence { qkv: rng.rows(len, spec.qkv_cols()), blocks }
    });
    (sequences.into(), n_blocks)
}

impl Norm {
    fn new(kind: NormKind, spec: &Attention, rng: &mut Rng) -> Norm {
        let lens = match kind.span {
            NormSpan::Head => [spec.head_dim, spec.head_dim, spec.v_dim()],
            NormSpan::OwnHead | NormSpan::AllHeads => [spec.q_cols(), spec.k_cols(), spec.v_dim()],
        };
        Norm { kind, gains: lens.map(|len| rng.vector(len)) }
    }
}

impl NormKind {
    fn of<V>(self, [q, k, v]: &[V; 3]) -> HeadNorm<'_, V> {
        let NormKind { center, gain, span, order } = self;
        let norm = |v| RowNorm { center, ..RowNorm::rms(v, gain, 1e-6) };
        HeadNorm { q: norm(q), k: norm(k), v: Some(norm(v)), span, order }
    }
}

impl passes::Case for Case {
    type Outcome = Outcome;

    fn name(&self) -> String {
        let norm = self.norm.as_ref().map(|norm| norm.kind);
        let (pairs, layout) = (self.rope.inv_freq.len(), self.rope.layout);
        let (format, sinks) = (self.format, self.sinks.is_some());
        let rest = format!("norm {norm:?}, sinks {sinks}");
        format!("{:?}, {format:?}, {pairs} pairs, {layout:?}, {rest}", self.spec)
    }

    fn lengths(&self) -> Vec<usize> {
        self.sequences.iter().map(|sequence| sequence.qkv.rows).collect()
    }

    fn run<B: Backend>(&self, device: &B, passes: &[Pass]) -> Vec<Outcome> {
        let mut outcomes = self.no_outcomes();
        let mut pages = device.pages(&self.spec, self.format, self.n_blocks);
        for pass in passes {
            self.pass(device, &mut pages, pass, &mut outcomes);
        }
        outcomes
    }

    fn assert_same(what: &str, got: &Outcome, want: &Outcome) {
        assert_same_bits(&format!("angles {what}"), &got.angles, &want.angles);
        assert_same_bits(&format!("rope {what}"), &got.rotated, &want.rotated);
        assert_same_bits(&format!("attend {what}"), &got.attended, &want.attended);
    }
}

impl Case {
    /// One for each sequence, with no rows yet.
    fn no_outcomes(&self) -> Vec<Outcome> {
        let empty = |cols| Rows { rows: 0, cols, data: Vec::new() };
        let outcome = |_| Outcome {
            angles: empty(2 * self.rope.inv_freq.len()),
            rotated: empty(self.spec.qkv_cols()),
            attended: empty(self.spec.out_cols()),
        };
        (0..self.sequences.len()).map(outcome).collect()
    }

    fn pass<B: Backend>(
        &self,
        device: &B,
        pages: &mut B::Pages,
        pass: &Pass,
        outcomes: &mut [Outcome],
    ) {
        let (batch, qkv) = self.batch(pass, outcomes);
        let n = qkv.rows;
        let mut staged = device.staged(n);
        device.stage(&batch, &mut staged);

        let angle_cols = 2 * self.rope.inv_freq.len();
        let mut angles = device.buf(n * angle_cols);
        device.angles(&self.rope, &staged, &mut angles);
        let norm = self.norm.as_ref();
        let gains = norm.map(|norm| norm.gains.each_ref().map(|gain| device.vector(gain)));
        let norm = self.norm.as_ref().zip(gains.as_ref());
        let norm = norm.map(|(norm, gains)| norm.kind.of(gains));
        let rotation = Some((&self.rope, &angles));
        let mut rotated = upload(device, &qkv);
        device.rope(&mut rotated, &self.spec, norm, rotation);

        // Attention reads the rows as they were, so that no difference in the last bit of a rotated
        // key becomes one of what is stored.
        let mut attended = device.buf(n * self.spec.out_cols());
        let sinks = self.sinks.as_ref().map(|sinks| device.vector(sinks));
        let layer = AttentionLayer { spec: &self.spec, sinks: sinks.as_ref() };
        device.attend(&upload(device, &qkv), layer, pages, &staged, &mut attended);

        // Rows of q alone: a layer that reads what another one has stored.
        let q = qkv.columns(0..self.spec.q_cols());
        let (mut q_rotated, mut again) = (upload(device, &q), device.buf(n * self.spec.out_cols()));
        device.rope(&mut q_rotated, &self.spec, norm, rotation);
        device.attend_stored(&upload(device, &q), layer, pages, &staged, &mut again);
        let q_rotated = download(device, &q_rotated, n, q.cols);
        let again = download(device, &again, n, self.spec.out_cols());

        let angles = download(device, &angles, n, angle_cols);
        let rotated = download(device, &rotated, n, self.spec.qkv_cols());
        let attended = download(device, &attended, n, self.spec.out_cols());
        let what = self.name();
        let alone = rotated.columns(0..q.cols);
        assert_same_bits(&format!("rope of q alone {what}"), &q_rotated, &alone);
        assert_same_bits(&format!("attend_stored {what}"), &again, &attended);
        for (span, (i, _)) in batch.spans.iter().zip(pass) {
            let outcome = &mut outcomes[*i];
            for (to, from) in [
                (&mut outcome.angles, &angles),
                (&mut outcome.rotated, &rotated),
                (&mut outcome.attended, &attended),
            ] {
                to.data.extend(from.range(span.rows.clone()).data);
                to.rows += span.rows.len();
            }
        }
    }

    /// Makes blocks that are not to be looked at such as do not exist: those of the other group, and
    /// those before the window.
    fn hide(&self, span: &mut Span) {
        let seen = self.spec.window.map_or(0, |window| (span.start + 1).saturating_sub(window));
        let (own, other) = match self.spec.group() {
            KvGroup::Full => (&mut span.blocks, &mut span.windowed),
            KvGroup::Windowed => (&mut span.windowed, &mut span.blocks),
        };
        own[..seen / BLOCK].fill(BlockId::MAX);
        other.fill(BlockId::MAX);
    }

    /// The batch of a pass, and its `[q | k | v]` rows.
    fn batch(&self, pass: &Pass, so_far: &[Outcome]) -> (Batch, Rows) {
        let mut batch = Batch::default();
        let mut qkv = Rows { rows: 0, cols: self.spec.qkv_cols(), data: Vec::new() };
        for (i, n) in pass {
            let (sequence, start) = (&self.sequences[*i], so_far[*i].attended.rows);
            let blocks = sequence.blocks[..(start + n).div_ceil(BLOCK)].to_vec();
            let mut span = Span::new(qkv.rows..qkv.rows + n, start, blocks);
            self.hide(&mut span);
            batch.spans.push(span);
            qkv.data.extend(sequence.qkv.range(start..start + n).data);
            qkv.rows += n;
        }
        batch.tokens = vec![0; qkv.rows];
        (batch, qkv)
    }
}

pub(super) fn check<B: Backend>(device: &B, tolerance: Tolerance) {
    let rng = &mut Rng::new(4);
    for case in cases(rng) {
        let passes = case.ragged(rng);
        let (got, want) = (case.run(device, &passes), case.run(&Reference, &passes));
        let what = case.name();
        for (got, want) in got.iter().zip(&want) {
            let close = |op: &str, got, want, tolerance| {
                assert_close(&format!("{op} {what}"), got, want, tolerance);
            };
            close("angles", &got.angles, &want.angles, tolerance.other);
            close("rope", &got.rotated, &want.rotated, tolerance.other);
            // Scores are large here, and powers make more of what rounding took from them. Where values are
            // whole numbers weights may be rounded too, which of means of random numbers, of which
            // little is left, takes a few ten-thousandths.
            let factor = if case.format == KvFormat::Int16 { 60.0 } else { 3.0 };
            close("attend", &got.attended, &want.attended, factor * tolerance.other);
        }
        check_one_alone(device, &case, tolerance);
        blocks::check(device, &case);
    }
}

/// Every layer in one format of three: what formats do to keys and values is the same in any precision.
pub(super) fn check_rounded<B: Backend>(device: &B, rounding: &Rounding) {
    let rng = &mut rounding.rng(4);
    for (f, format) in KvFormat::ALL.into_iter().enumerate() {
        for (i, case) in cases_of(format, rng).into_iter().enumerate() {
            if (i + i / 3) % 3 == f {
                check_case_rounded(device, &case, (rounding, case.ragged(rng)));
            }
        }
    }
}

fn check_case_rounded<B: Backend>(
    device: &B,
    case: &Case,
    (rounding, passes): (&Rounding, Vec<Pass>),
) {
    let (got, want) = (case.run(device, &passes), case.run(&Reference, &passes));
    let what = case.name();
    // What is normed goes into both numbers of a pair, and these may be smaller by the root of two.
    let rotation = 1.0 + if case.norm.is_some() { 2.0 * NORM } else { 0.0 };
    for ((got, want), sequence) in got.iter().zip(&want).zip(&case.sequences) {
        rounding.assert_near(&format!("angles {what}"), &got.angles, &want.angles, 1.0);
        rounding.assert_near(&format!("rope {what}"), &got.rotated, &want.rotated, rotation);
        let scores = largest_scores(&case.spec, &sequence.qkv);
        let limits = scores.iter().zip(sizes(&want.attended));
        // Each score is rounded with its scale, with the scaled query, the key, and at last: its power is
        // off by as much as the score itself, and so is the sum that it is divided by. Weights, values as
        // they are read, and means are rounded too.
        let limits: Vec<f32> = limits.map(|(score, size)| (8.0 * score + 4.0) * size).collect();
        let what = format!("attend {what}");
        rounding.assert_within(&what, &got.attended, &want.attended, &limits);
    }
}

/// The largest score of each row with any key up to its own.
fn largest_scores(spec: &Attention, qkv: &Rows) -> Vec<f32> {
    let (dim, group) = (spec.head_dim, spec.heads / spec.kv_heads);
    let cap = spec.soft_cap.unwrap_or(f32::INFINITY);
    let score = |r: usize, key: usize, head: usize| {
        let q = &qkv.row(r)[head * dim..][..dim];
        let k = &qkv.row(key)[spec.q_cols() + head / group * dim..][..dim];
        q.iter().zip(k).map(|(q, k)| q * k).sum::<f32>() * spec.scale_at(r)
    };
    let largest = |r: usize| {
        let all = (0..=r).flat_map(|key| (0..spec.heads).map(move |head| (key, head)));
        all.map(|(key, head)| score(r, key, head).abs()).fold(0.0, f32::max).min(cap)
    };
    (0..qkv.rows).map(largest).collect()
}

/// The norm without the rotation, and the rotation without the norm.
fn check_one_alone<B: Backend>(device: &B, case: &Case, tolerance: Tolerance) {
    fn run<B: Backend>(device: &B, case: &Case, part: Part) -> Rows {
        let qkv = &case.sequences[0].qkv;
        let mut staged = device.staged(qkv.rows);
        device.stage(&super::data::batch(vec![0; qkv.rows]), &mut staged);
        let mut angles = device.buf(qkv.rows * 2 * case.rope.inv_freq.len());
        device.angles(&case.rope, &staged, &mut angles);
        let (head_dim, v_dim) = (case.spec.head_dim, case.spec.v_dim());
        let gains = [(0.5, head_dim), (0.7, head_dim), (0.9, v_dim)];
        let gains = gains.map(|(gain, len)| device.vector(&vec![gain; len]));
        let norm = HEADS.of(&gains);
        let mut buf = upload(device, qkv);
        match part {
            Part::Norm => device.rope(&mut buf, &case.spec, Some(norm), None),
            Part::Rotation => device.rope(&mut buf, &case.spec, None, Some((&case.rope, &angles))),
            Part::Neither => device.rope(&mut buf, &case.spec, None, None),
        }
        download(device, &buf, qkv.rows, qkv.cols)
    }
    for part in [Part::Norm, Part::Rotation, Part::Neither] {
        let (got, want) = (run(device, case, part), run(&Reference, case, part));
        assert_close(&format!("rope {part:?} {}", case.name()), &got, &want, tolerance.other);
    }
}

pub(super) fn check_invariance<B: Backend>(device: &B) {
    let rng = &mut Rng::new(5);
    passes::check_invariance(device, &cases(rng), rng);
}

pub(super) fn check_equal<A: Backend, B: Backend>(a: &A, b: &B) {
    let rng = &mut Rng::new(7);
    passes::check_equal(a, b, &cases(rng), rng);
}
