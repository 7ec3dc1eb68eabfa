//! One of several machines: rows to a neighbour and from one, and what all of them have put together.

use backend::ops::PeerOps;

use crate::ffi::{Array, Dtype, Fault, Group, begin};
use crate::{Buf, Mlx};

/// Which one of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// From 0.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
}

impl Mlx {
    /// Makes this process one of a group, as MLX's launcher has described it in the environment, and waits
    /// until all of them are there.
    ///
    /// # Errors
    /// Nothing was described, or the others cannot be reached.
    pub fn join(&mut self) -> Result<Rank, Fault> {
        let group = Group::join()?;
        let rank = Rank { rank: group.rank(), ranks: group.size() };
        self.group = Some(group);
        Ok(rank)
    }

    fn group(&self) -> Result<&Group, Fault> {
        self.group.as_ref().ok_or_else(|| Fault("this process is in no group".to_owned()))
    }

    /// What all ranks have here in the same place, added up in f32 and in the order of ranks: everywhere
    /// the same bits, also where ways between machines would add up piece by piece in another order. For
    /// more than two ranks that is more than has to be sent.
    pub(crate) fn sum_of_all(&self, x: &Array) -> Result<Array, Fault> {
        let (group, rows) = (self.group()?, x.dim(0));
        if rows == 0 {
            return Ok(x.clone());
        }
        let all = group.gather(x)?;
        let of = |rank: usize| all.slice(0, rank * rows..(rank + 1) * rows)?.astype(Dtype::F32);
        let mut sum = of(0)?;
        for rank in 1..group.size() {
            sum = sum.add(&of(rank)?)?;
        }
        sum.astype(x.dtype())
    }

    /// What all ranks have of the same rows, side by side in the order of ranks.
    pub(crate) fn join_of_all(&self, x: &Array) -> Result<Array, Fault> {
        let (group, rows, cols) = (self.group()?, x.dim(0), x.dim(1));
        let ranks = group.size();
        if rows == 0 {
            return Array::zeros(&[0, ranks * cols], x.dtype());
        }
        let all = group.gather(x)?.reshape(&[ranks, rows, cols])?;
        all.transpose(&[1, 0, 2])?.reshape(&[rows, ranks * cols])
    }
}

impl PeerOps for Mlx {
    fn send(&self, x: &Buf, rows: usize, rank: usize) {
        if rows == 0 {
            return;
        }
        let sent = || -> Result<(), Fault> {
            let x = x.get()?.astype(self.dtype)?;
            // At once: the other one waits for it, and nobody here asks for it.
            begin(&[&self.group()?.send(&x, rank)?])
        };
        self.kept(sent());
    }

    fn receive(&self, (rows, cols): (usize, usize), rank: usize, out: &mut Buf) {
        self.fill(out, || match rows {
            0 => Array::zeros(&[0, cols], self.dtype),
            rows => self.group()?.receive(&[rows, cols], self.dtype, rank),
        });
    }
}
