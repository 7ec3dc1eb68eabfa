//! A gated delta rule: projections to everything a row brings along, one op, one projection back.

use std::ops::Range;

use backend::ops::{ConvWeights, DeltaRows, DeltaWeights, Input, Output};
use backend::{Backend, DeltaLayout, DeltaRule, GatedDelta, NormGain, ReadOrder};
use weights::Matrix;

use super::conv::{self, Conv};
use crate::Error;
use crate::decoder::{Pass, Scratch, ScratchSizes};
use crate::dense::LinearWeights;
use crate::loader::Loader;
use crate::modules::{Linear, Module};
use crate::recipe::Bias;
use crate::share::{Cuts, Run, Share, Shares, Unshared, evenly, evenly_or_one, joined};
use crate::step::Wiring;

/// The name of a part of layer `parent`.
fn name(shape: &GatedDelta, parent: &str, part: &str) -> String {
    let mixer = match shape.layout {
        DeltaLayout::ByKind | DeltaLayout::ByHead => "linear_attn",
        DeltaLayout::Apart => "self_attn",
    };
    format!("{parent}.{mixer}.{part}")
}

/// The projections whose outputs are a row of the layout.
fn inputs(shape: &GatedDelta, parent: &str, hidden: usize) -> Vec<Linear> {
    let linear = |part, rows| Linear::new(name(shape, parent, part), rows, hidden);
    match shape.layout {
        DeltaLayout::ByKind => vec![
            linear("in_proj_qkv", shape.conv_cols()),
            linear("in_proj_z", shape.v_cols()),
            linear("in_proj_b", shape.v_heads),
            linear("in_proj_a", shape.v_heads),
        ],
        DeltaLayout::ByHead => vec![
            linear("in_proj_qkvz", shape.conv_cols() + shape.v_cols()),
            linear("in_proj_ba", 2 * shape.v_heads),
        ],
        DeltaLayout::Apart => vec![
            linear("q_proj", shape.k_cols()),
            linear("k_proj", shape.k_cols()),
            linear("v_proj", shape.v_cols()),
            linear("b_proj", shape.v_heads),
        ],
    }
}

/// The two projections each, one behind the other, to gates and to decays, where these are rows of
/// their own.
fn gates(shape: &GatedDelta, parent: &str, hidden: usize) -> Option<[[Linear; 2]; 2]> {
    let pair = |[first, second]: [&str; 2], rows| {
        [
            Linear::new(name(shape, parent, first), shape.k_dim, hidden),
            Linear::new(name(shape, parent, second), rows, shape.k_dim),
        ]
    };
    match shape.layout {
        DeltaLayout::ByKind | DeltaLayout::ByHead => None,
        DeltaLayout::Apart => Some([
            pair(["g_a_proj", "g_b_proj"], shape.v_cols()),
            pair(["f_a_proj", "f_b_proj"], shape.decay_cols()),
        ]),
    }
}

fn output(shape: &GatedDelta, parent: &str, hidden: usize) -> Linear {
    let part = match shape.layout {
        DeltaLayout::ByKind | DeltaLayout::ByHead => "out_proj",
        DeltaLayout::Apart => "o_proj",
    };
    Linear::new(name(shape, parent, part), hidden, shape.v_cols())
}

/// The convolutions of layer `parent`, whose columns follow one another.
pub(crate) fn convs(shape: &GatedDelta, parent: &str) -> Vec<Conv> {
    let conv = |part, cols| {
        let name = name(shape, parent, part);
        Conv { name, cols, taps: shape.taps, bias: Bias::Absent }
    };
    match shape.layout {
        DeltaLayout::ByKind | DeltaLayout::ByHead => vec![conv("conv1d", shape.conv_cols())],
        DeltaLayout::Apart => vec![
            conv("q_conv1d", shape.k_cols()),
            conv("k_conv1d", shape.k_cols()),
            conv("v_conv1d", shape.v_cols()),
        ],
    }
}

fn norm_name(shape: &GatedDelta, parent: &str) -> String {
    let part = match shape.layout {
        DeltaLayout::ByKind | DeltaLayout::ByHead => "norm",
        DeltaLayout::Apart => "o_norm",
    };
    name(shape, parent, part)
}

pub(super) fn modules(shape: &GatedDelta, parent: &str, hidden: usize) -> Vec<Module> {
    let linears = inputs(shape, parent, hidden).into_iter().chain([output(shape, parent, hidden)]);
    let gates = gates(shape, parent, hidden).into_iter().flatten().flatten();
    let vector = |part, len| Module::Vector { name: name(shape, parent, part), shape: vec![len] };
    let small = [
        vector("A_log", shape.v_heads),
        vector("dt_bias", shape.decay_cols()),
        Module::Gain { name: norm_name(shape, parent), len: shape.v_dim, kind: NormGain::Stored },
    ];
    let convs = convs(shape, parent).into_iter().flat_map(|conv| conv.modules());
    linears.chain(gates).map(Module::Linear).chain(convs).chain(small).collect()
}

pub(super) fn measure(shape: &GatedDelta, sizes: &mut ScratchSizes) {
    sizes.qkv = sizes.qkv.max(shape.row_cols());
    sizes.attended = sizes.attended.max(shape.v_cols());
    if shape.layout == DeltaLayout::Apart {
        sizes.gate = sizes.gate.max(shape.v_cols());
        sizes.decays = sizes.decays.max(shape.decay_cols());
        sizes.low = sizes.low.max(shape.k_dim);
    }
}

/// A gated delta rule on a device.
pub(crate) struct GatedDeltaWeights<B: Backend> {
    shape: GatedDelta,
    inputs: LinearWeights<B>,
    gates: Option<[[LinearWeights<B>; 2]; 2]>,
    taps: B::Vector,
    a_log: B::Vector,
    dt_bias: B::Vector,
    gain: B::Vector,
    out: LinearWeights<B>,
}

impl<B: Backend> GatedDeltaWeights<B> {
    pub(super) fn load(
        loader: &Loader,
        b: &B,
        shape: &GatedDelta,
        parent: &str,
    ) -> Result<Self, Error> {
        let hidden = loader.spec().hidden;
        let numbers = |part, len| loader.numbers(&name(shape, parent, part), len);
        let linear = |linear| LinearWeights::load(loader, b, &[linear]);
        let gates = match gates(shape, parent, hidden) {
            Some([[g_a, g_b], [f_a, f_b]]) => {
                Some([[linear(g_a)?, linear(g_b)?], [linear(f_a)?, linear(f_b)?]])
            }
            None => None,
        };
        Ok(GatedDeltaWeights {
            inputs: LinearWeights::of(b, &input_matrices(loader, shape, parent)?, None),
            gates,
            taps: b.vector(&taps(loader, &convs(shape, parent), shape.taps)?),
            a_log: b.vector(&numbers("A_log", shape.v_heads)?),
            dt_bias: b.vector(&numbers("dt_bias", shape.decay_cols())?),
            gain: b.vector(&loader.gain(&norm_name(shape, parent), shape.v_dim)?),
            out: linear(output(shape, parent, hidden))?,
            shape: shape.clone(),
        })
    }

    pub(super) fn forward(
        &self,
        b: &B,
        pass: Pass<'_, B>,
        wiring: &Wiring<'_, B>,
        states: &mut B::States,
        s: &mut Scratch<B>,
    ) {
        self.inputs.apply(b, wiring.input(&s.x), Output::Into(&mut s.qkv));
        let rows = match &self.gates {
            None => DeltaRows::whole(&s.qkv),
            Some(gates) => {
                for ([first, second], out) in gates.iter().zip([&mut s.gate, &mut s.decays]) {
                    first.apply(b, wiring.input(&s.x), Output::Into(&mut s.low));
                    second.apply(b, Input::Rows(&s.low), Output::Into(out));
                }
                DeltaRows { qkv: &s.qkv, z: &s.gate, a: &s.decays }
            }
        };
        let GatedDeltaWeights { taps, a_log, dt_bias, gain, .. } = self;
        let conv = ConvWeights { taps, bias: None };
        let weights = DeltaWeights { conv, a_log, dt_bias, gain };
        b.gated_delta(rows, weights, &self.shape, states, pass.batch, &mut s.attended);
        wiring.finish(b, (&self.out, &s.attended), &mut s.x, &mut s.y);
    }
}

/// The rows of the layout, where they are stored: this machine's, if it is one of several.
fn input_matrices(loader: &Loader, shape: &GatedDelta, parent: &str) -> Result<Vec<Matrix>, Error> {
    let linears = inputs(shape, parent, loader.spec().hidden);
    let mut parts = Vec::new();
    for (linear, ranges) in linears.iter().zip(Heads::of(shape, Share::WHOLE).input_rows(shape)) {
        match loader.cut(&linear.name) {
            Some(_) => parts.extend(loader.matrices(linear)?),
            None => {
                let stored = loader.matrix(linear)?;
                parts.extend(joined(ranges).into_iter().map(|rows| stored.rows_range(rows)));
            }
        }
    }
    Ok(parts)
}

/// The heads that a machine has.
struct Heads {
    keys: Range<usize>,
    /// As they are counted, by key head.
    values: Range<usize>,
}

impl Heads {
    fn of(shape: &GatedDelta, share: Share) -> Heads {
        Heads { keys: share.of(shape.k_heads), values: share.of(shape.v_heads) }
    }

    /// Where values of these heads, or what there is one of for each of them, are stored.
    fn stored_values(&self, shape: &GatedDelta) -> Vec<Range<usize>> {
        let place = |head: usize| match shape.read_order {
            ReadOrder::ByKeyHead => head,
            ReadOrder::InTurn => head % shape.group() * shape.k_heads + head / shape.group(),
        };
        let columns = |head| place(head) * shape.v_dim..(place(head) + 1) * shape.v_dim;
        self.values.clone().map(columns).collect()
    }

    /// Which rows of each of [`inputs`] belong to these heads, in the order of the layout of a machine
    /// that has no others.
    fn input_rows(&self, shape: &GatedDelta) -> Vec<Vec<Range<usize>>> {
        let keys = |first: usize| {
            first + self.keys.start * shape.k_dim..first + self.keys.end * shape.k_dim
        };
        let values = |first: usize| {
            let stored = self.stored_values(shape).into_iter();
            stored.map(move |range| first + range.start..first + range.end)
        };
        match shape.layout {
            DeltaLayout::ByKind => vec![
                [keys(0), keys(shape.k_cols())]
                    .into_iter()
                    .chain(values(2 * shape.k_cols()))
                    .collect(),
                values(0).collect(),
                vec![self.values.clone()],
                vec![self.values.clone()],
            ],
            DeltaLayout::Apart => {
                vec![vec![keys(0)], vec![keys(0)], values(0).collect(), vec![self.values.clone()]]
            }
            DeltaLayout::ByHead => self.rows_by_head(shape).into(),
        }
    }

    /// [`Heads::input_rows`] where everything of a key head lies together.
    fn rows_by_head(&self, shape: &GatedDelta) -> [Vec<Range<usize>>; 2] {
        let (group, first_of_second) = (shape.group(), shape.conv_cols() + shape.v_cols());
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for key in self.keys.clone() {
            let place = shape.place(key);
            let own = self.values.start.max(key * group)..self.values.end.min((key + 1) * group);
            // Of what has `each` columns for every value head.
            let some = |of: &Range<usize>, each: usize| {
                let at = |value: usize| of.start + (value - key * group) * each;
                at(own.start)..at(own.end)
            };
            let (values, gates) = (some(&place.v, shape.v_dim), some(&place.z, shape.v_dim));
            first.extend([place.q.clone(), place.k.clone(), values, gates]);
            let behind =
                |range: Range<usize>| range.start - first_of_second..range.end - first_of_second;
            second.extend([behind(some(&place.b, 1)), behind(some(&place.a, 1))]);
        }
        [first, second]
    }
}

/// Each machine has a share of the value heads, and the key heads that these go with.
impl Shares for GatedDelta {
    fn share(&mut self, ranks: usize) -> Result<(), Unshared> {
        self.v_heads = evenly(self.v_heads, ranks, "heads of values with a state")?;
        self.k_heads = evenly_or_one(self.k_heads, ranks, "heads of keys with a state")?;
        Ok(())
    }

    fn cut(&self, layer: &str, cuts: &mut Cuts) {
        let heads = Heads::of(self, cuts.share());
        for (linear, ranges) in inputs(self, layer, 0).into_iter().zip(heads.input_rows(self)) {
            cuts.rows_at(linear.name, linear.rows, ranges);
        }
        let keys = |each| Run { n: self.k_heads, each };
        let values = |each| Run { n: self.v_heads, each };
        let decays = match self.rule {
            DeltaRule::PerHead => values(1),
            DeltaRule::PerChannel => keys(self.k_dim),
        };
        if let Some([[_, gates], [_, slopes]]) = gates(self, layer, 0) {
            cuts.rows(gates.name, &[values(self.v_dim)]);
            cuts.rows(slopes.name, &[decays]);
        }
        let convolved = [keys(self.k_dim), keys(self.k_dim), values(self.v_dim)];
        match &convs(self, layer)[..] {
            [one] => one.cut(&convolved, cuts),
            several => {
                several.iter().zip(convolved).for_each(|(conv, part)| conv.cut(&[part], cuts));
            }
        }
        cuts.rows(name(self, layer, "A_log"), &[values(1)]);
        cuts.rows(name(self, layer, "dt_bias"), &[decays]);
        let mut read = heads.stored_values(self);
        read.sort_by_key(|range| range.start);
        cuts.columns_at(output(self, layer, 0).name, self.v_cols(), read);
    }
}

/// Taps of all columns row by row, the oldest row first.
fn taps(loader: &Loader, convs: &[Conv], n_taps: usize) -> Result<Vec<f32>, Error> {
    let parts = convs.iter().map(|conv| Ok(conv::load(loader, conv)?.0));
    let parts = parts.collect::<Result<Vec<_>, Error>>()?;
    let row = |t: usize| {
        let part =
            move |(taps, conv): (&Vec<f32>, &Conv)| taps[t * conv.cols..][..conv.cols].to_vec();
        parts.iter().zip(convs).flat_map(part)
    };
    Ok((0..n_taps).flat_map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::Cut;

    fn shape(
        layout: DeltaLayout,
        read_order: ReadOrder,
        [k_heads, v_heads]: [usize; 2],
    ) -> GatedDelta {
        let rule = match layout {
            DeltaLayout::Apart => DeltaRule::PerChannel,
            DeltaLayout::ByKind | DeltaLayout::ByHead => DeltaRule::PerHead,
        };
        let (k_dim, v_dim, taps, eps) = (3, 5, 4, 1e-6);
        GatedDelta { k_heads, v_heads, k_dim, v_dim, taps, eps, rule, layout, read_order }
    }

    /// Which rows of all matrices one after the other a machine has, in its order.
    fn rows(shape: &GatedDelta, share: Share) -> Vec<usize> {
        let matrices = inputs(shape, "", 0);
        let mut first = 0;
        let mut all = Vec::new();
        for (matrix, ranges) in matrices.iter().zip(Heads::of(shape, share).input_rows(shape)) {
            all.extend(ranges.into_iter().flatten().map(|row| first + row));
            first += matrix.rows;
        }
        all
    }

    /// Where the layout of a share looks for the parts of a head, are those of one of the whole's heads.
    #[test]
    fn every_machine_finds_its_heads_where_the_layout_has_them() {
        let in_turn = (DeltaLayout::ByKind, ReadOrder::InTurn);
        let layouts = [DeltaLayout::ByKind, DeltaLayout::ByHead, DeltaLayout::Apart];
        let layouts = layouts.map(|layout| (layout, ReadOrder::ByKeyHead));
        for (layout, order) in layouts.into_iter().chain([in_turn]) {
            for (heads, ranks) in [([4, 8], 2), ([4, 12], 4), ([2, 8], 4), ([1, 4], 2)] {
                let whole = shape(layout, order, heads);
                let mut own = whole.clone();
                own.share(ranks).unwrap();
                let all = rows(&whole, Share::WHOLE);
                for rank in 0..ranks {
                    let share = Share { rank, ranks };
                    let Heads { keys, values } = Heads::of(&whole, share);
                    let found = rows(&whole, share);
                    let what = format!("{layout:?} {order:?} {heads:?} {share:?}");
                    assert_eq!(found.len(), own.row_cols(), "{what}");
                    for (i, key) in keys.enumerate() {
                        let (here, there) = (own.place(i), whole.place(key));
                        // What the key head has that goes with value heads of others is skipped.
                        let before = values.start.saturating_sub(key * whole.group());
                        let same = |here: Range<usize>, there: Range<usize>, each: usize| {
                            let first = there.start + before * each;
                            let expected = &all[first..first + here.len()];
                            assert_eq!(&found[here], expected, "{what}, head {i}");
                        };
                        same(here.q, there.q, 0);
                        same(here.k, there.k, 0);
                        same(here.v, there.v, whole.v_dim);
                        same(here.b, there.b, 1);
                        if layout != DeltaLayout::Apart {
                            same(here.z, there.z, whole.v_dim);
                            same(here.a, there.a, 1);
                        }
                    }
                }
            }
        }
    }

    /// What is read lies as the whole's does, so that its columns meet those of the output matrix.
    #[test]
    fn columns_are_those_of_the_heads_that_are_read() {
        let columns = |order, heads, rank| {
            let shape = shape(DeltaLayout::ByKind, order, heads);
            let mut cuts = Cuts::new(Share { rank, ranks: 2 });
            shape.cut("x", &mut cuts);
            cuts.of("x.linear_attn.out_proj").cloned()
        };
        let cut = |whole, ranges: &[[usize; 2]]| {
            let ranges = ranges.iter().map(|[start, end]| *start..*end).collect();
            Some(Cut::Columns { whole, ranges })
        };
        assert_eq!(columns(ReadOrder::ByKeyHead, [2, 4], 1), cut(20, &[[10, 20]]));
        // The value heads of the second key head are the second and the fourth that are stored.
        assert_eq!(columns(ReadOrder::InTurn, [2, 4], 1), cut(20, &[[5, 10], [15, 20]]));
        assert_eq!(columns(ReadOrder::InTurn, [4, 8], 0), cut(40, &[[0, 10], [20, 30]]));
        assert_eq!(columns(ReadOrder::InTurn, [1, 4], 1), cut(20, &[[10, 20]]));
    }
}
