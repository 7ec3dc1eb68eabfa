//! One of several machines: rows to a neighbour and from one, and what all of them have put together.

use backend::ops::PeerOps;

use crate::ffi::{Array, Dtype, Fault, Group, begin, concatenate};
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
        self.sum_over(x, self.group()?.size())
    }

    /// The same of `over` neighbouring ranks, of which this is one. All ranks have to ask for it.
    fn sum_over(&self, x: &Array, over: usize) -> Result<Array, Fault> {
        let (group, rows) = (self.group()?, x.dim(0));
        if rows == 0 {
            return Ok(x.clone());
        }
        let all = group.gather(x)?;
        let of = |rank: usize| all.slice(0, rank * rows..(rank + 1) * rows)?.astype(Dtype::F32);
        let first = group.rank() / over * over;
        let mut sum = of(first)?;
        for rank in first + 1..first + over {
            sum = sum.add(&of(rank)?)?;
        }
        sum.astype(x.dtype())
    }

    /// Rows of f32 divided by their root mean square, as [`Array::rms_norm`] has it, where `over`
    /// neighbouring ranks have as many columns of every row each.
    pub(crate) fn rms_norm_over(&self, x: &Array, over: usize, eps: f32) -> Result<Array, Fault> {
        let squares = x.square()?.sum(1)?;
        let columns = (over * x.dim(1)) as f32;
        let mean = self.sum_over(&squares, over)?.times(columns.recip())?;
        x.multiply(&mean.plus(eps)?.rsqrt()?)
    }

    /// On the first rank: what all ranks have of the same rows, side by side in their order. The others
    /// keep their own and those that come after them. It goes from neighbour to neighbour, because a ring
    /// has no other ways.
    pub(crate) fn join_on_first(&self, x: &Array) -> Result<Array, Fault> {
        let (group, rows, cols) = (self.group()?, x.dim(0), x.dim(1));
        let (rank, ranks) = (group.rank(), group.size());
        let behind = ranks - rank - 1;
        if rows == 0 {
            return Array::zeros(&[0, (behind + 1) * cols], x.dtype());
        }
        let joined = match behind {
            0 => x.clone(),
            _ => {
                // What is received hangs on nothing that is computed here. It must not be waited for before
                // this rank has had its part in all sums, which the others wait for.
                begin(&[x])?;
                let theirs = group.receive(&[rows, behind * cols], x.dtype(), rank + 1)?;
                concatenate(&[x, &theirs], 1)?
            }
        };
        if rank > 0 {
            // At once: the one before waits for it, and nobody here asks for it.
            begin(&[&group.send(&joined, rank - 1)?])?;
        }
        Ok(joined)
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
