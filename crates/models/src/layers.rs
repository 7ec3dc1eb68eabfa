//! Layers on a device, one after the other: all of a model's, or those that one of several machines has.

use std::ops::Range;

use backend::Backend;
use backend::ops::RowsOf;

use crate::decoder::{Pass, Scratch, Store};
use crate::loader::Loader;
use crate::mixers::Stores;
use crate::modules::scalar_name;
use crate::recipe::{LayerScalars, Streams};
use crate::step::StepWeights;
use crate::streams::AltUpWeights;
use crate::{Error, ModelSpec};

/// Neighbouring layers.
pub(crate) struct Layers<B: Backend> {
    /// Their steps, one after the other.
    steps: Vec<StepWeights<B>>,
    /// How many of them there are up to the last one that looks at other positions.
    n_mixing: usize,
}

impl<B: Backend> Layers<B> {
    /// Those of the model that `range` counts. Calls `progress(done, total)` after each.
    pub(crate) fn load(
        loader: &Loader,
        b: &B,
        range: Range<usize>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, Error> {
        let (mut steps, mut n_mixing) = (Vec::new(), 0);
        let spec = loader.spec();
        for (done, i) in (1..).zip(range.clone()) {
            let name = spec.layer_name(i);
            let altup = AltUpWeights::load(loader, b, &name)?;
            for (n_before, step) in spec.layers[i].steps.iter().enumerate() {
                let mut loaded = StepWeights::load(loader, b, step, (&name, altup.as_ref()))?;
                if n_before == 0 {
                    loaded.after_prediction(altup.clone());
                }
                steps.push(loaded);
                if step.mixes() {
                    n_mixing = steps.len();
                }
            }
            if spec.layer_scalars == LayerScalars::Stored {
                let [scalar] = loader.numbers(&scalar_name(&name), 1)?[..] else {
                    unreachable!("one number was asked for");
                };
                steps.last_mut().expect("a layer has steps").then_scale(scalar);
            }
            progress(done, range.len());
        }
        Ok(Layers { steps, n_mixing })
    }

    /// Takes all rows of the residual stream through all of these layers.
    pub(crate) fn every_row(
        &self,
        b: &B,
        (spec, batch): (&ModelSpec, &B::Staged),
        store: &mut Store<B>,
        s: &mut Scratch<B>,
    ) {
        rotations(b, spec, batch, s);
        let pass = Pass { spec, batch, rows: RowsOf::Pass };
        let mut stores = Stores::new(&mut store.mixers);
        for step in &self.steps {
            step.forward(b, pass, &mut stores, s);
        }
    }

    /// The same where no layer comes after these: the wanted rows are what is left.
    pub(crate) fn all(
        &self,
        b: &B,
        (spec, batch): (&ModelSpec, &B::Staged),
        store: &mut Store<B>,
        s: &mut Scratch<B>,
    ) {
        rotations(b, spec, batch, s);
        let pass = Pass { spec, batch, rows: RowsOf::Pass };
        let (mixing, others) = self.steps.split_at(self.n_mixing);
        let mut stores = Stores::new(&mut store.mixers);
        for step in mixing {
            step.forward(b, pass, &mut stores, s);
        }
        // Nobody looks back at what comes now, so only rows that say something go on.
        b.gather(&s.x, batch, &mut s.h);
        std::mem::swap(&mut s.x, &mut s.h);
        if spec.streams != Streams::One {
            b.gather(&s.streams, batch, &mut s.other_streams);
            std::mem::swap(&mut s.streams, &mut s.other_streams);
        }
        let pass = Pass { rows: RowsOf::Wanted(batch), ..pass };
        for step in others {
            step.forward(b, pass, &mut stores, s);
        }
    }
}

fn rotations<B: Backend>(b: &B, spec: &ModelSpec, batch: &B::Staged, s: &mut Scratch<B>) {
    for (rope, angles) in spec.ropes.iter().zip(&mut s.angles) {
        b.angles(rope, batch, angles);
    }
}
