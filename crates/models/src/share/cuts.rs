//! What each of several machines takes of the tensors that they share.
//!
//! Which things a kind of layer consists of, and how they are shared, is said by the kind itself, which
//! is a [`Shares`].

use std::collections::BTreeMap;
use std::ops::Range;

use super::Share;

/// What cannot be shared by so many, for [`crate::Error::NotShared`].
pub(crate) type Unshared = String;

/// A kind of layer, of which each of several machines has a share.
pub(crate) trait Shares {
    /// Becomes what each of `ranks` machines has of it.
    fn share(&mut self, ranks: usize) -> Result<(), Unshared>;

    /// What a machine takes of its tensors, in the layer called `layer`.
    fn cut(&self, layer: &str, cuts: &mut Cuts);
}

/// What is taken of tensors that are shared, by name.
#[derive(Debug)]
pub(crate) struct Cuts {
    share: Share,
    by_name: BTreeMap<String, Cut>,
    /// Over how many machines norms go, of whose gains each has a part.
    norms: BTreeMap<String, usize>,
}

/// What is taken of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Of so many rows, or numbers of a vector, these in this order.
    Rows { whole: usize, ranges: Vec<Range<usize>> },
    /// Of so many columns, these in ascending order: what it is multiplied to is a part of a sum.
    Columns { whole: usize, ranges: Vec<Range<usize>> },
}

/// Things that lie one after the other, such as heads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// How many.
    pub(crate) n: usize,
    /// Rows, columns or numbers of each.
    pub(crate) each: usize,
}

impl Share {
    /// All, by one machine.
    pub(crate) const WHOLE: Share = Share { rank: 0, ranks: 1 };

    /// Which of `n` things this machine has: as many as each other one, or, of fewer than there are
    /// machines, one, which neighbours have too. See [`evenly`] and [`evenly_or_one`].
    pub(crate) fn of(self, n: usize) -> Range<usize> {
        let Share { rank, ranks } = self;
        let first = rank * n / ranks;
        first..first + (n / ranks).max(1)
    }

    /// The same in rows, columns or numbers.
    pub(crate) fn of_run(self, row: Run) -> Range<usize> {
        let Range { start, end } = self.of(row.n);
        start * row.each..end * row.each
    }
}

impl Run {
    /// Things of one row, column or number each.
    pub(crate) fn of(n: usize) -> Run {
        Run { n, each: 1 }
    }

    fn len(self) -> usize {
        self.n * self.each
    }
}

impl Cuts {
    pub(crate) fn new(share: Share) -> Cuts {
        Cuts { share, by_name: BTreeMap::new(), norms: BTreeMap::new() }
    }

    /// Takes rows of what is called `name`: of things of several kinds, one kind after the other, its
    /// share of each.
    pub(crate) fn rows(&mut self, name: String, parts: &[Run]) {
        let (mut ranges, mut first) = (Vec::new(), 0);
        for part in parts {
            let Range { start, end } = self.share.of_run(*part);
            ranges.push(first + start..first + end);
            first += part.len();
        }
        self.rows_at(name, first, ranges);
    }

    /// Takes these of `whole` rows of what is called `name`.
    pub(crate) fn rows_at(&mut self, name: String, whole: usize, ranges: Vec<Range<usize>>) {
        self.by_name.insert(name, Cut::Rows { whole, ranges: joined(ranges) });
    }

    /// Takes its share of the columns of what is called `name`.
    pub(crate) fn columns(&mut self, name: String, of: Run) {
        let range = self.share.of_run(of);
        self.columns_at(name, of.len(), vec![range]);
    }

    /// Takes these of `whole` columns of what is called `name`, in ascending order.
    pub(crate) fn columns_at(&mut self, name: String, whole: usize, ranges: Vec<Range<usize>>) {
        self.by_name.insert(name, Cut::Columns { whole, ranges: joined(ranges) });
    }

    /// Takes its share of the gain of a norm called `name`, which goes over the columns that `over`
    /// neighbouring machines have: they sum up the squares.
    pub(crate) fn norm(&mut self, name: String, of: Run, over: usize) {
        self.norms.insert(name.clone(), over);
        self.rows(name, &[of]);
    }

    pub(crate) fn of(&self, name: &str) -> Option<&Cut> {
        self.by_name.get(name)
    }

    /// Over the columns of how many machines the norm called `name` goes.
    pub(crate) fn norm_over(&self, name: &str) -> usize {
        self.norms.get(name).copied().unwrap_or(1)
    }

    /// Which machine this is of how many. Experts and the projections out of latents, whose names depend
    /// on how they are stored, are not listed: each machine has its share of the columns between the
    /// projections of experts, and of the heads that latents become.
    pub(crate) fn share(&self) -> Share {
        self.share
    }
}

/// A share of `n` things, or what cannot be shared.
pub(crate) fn evenly(n: usize, ranks: usize, what: &str) -> Result<usize, Unshared> {
    match n.is_multiple_of(ranks) {
        true => Ok(n / ranks),
        false => Err(format!("its {n} {what}")),
    }
}

/// The same of things that several machines may have all of: one each if there are fewer than machines.
pub(crate) fn evenly_or_one(n: usize, ranks: usize, what: &str) -> Result<usize, Unshared> {
    match n > 0 && ranks.is_multiple_of(n) {
        true => Ok(1),
        false => evenly(n, ranks, what),
    }
}

/// The same in as few ranges as there can be.
pub(crate) fn joined(ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut all: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => all.push(range),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_things_than_machines_are_had_by_neighbours() {
        let of = |n, ranks| (0..ranks).map(|rank| Share { rank, ranks }.of(n)).collect::<Vec<_>>();
        assert_eq!(of(6, 2), [0..3, 3..6]);
        assert_eq!(of(2, 4), [0..1, 0..1, 1..2, 1..2]);
        assert_eq!(of(1, 3), [0..1, 0..1, 0..1]);
        assert_eq!([evenly_or_one(6, 2, "x"), evenly_or_one(2, 4, "x")], [Ok(3), Ok(1)]);
        assert_eq!(evenly_or_one(3, 4, "heads"), Err("its 3 heads".to_owned()));
        assert_eq!(evenly_or_one(3, 2, "heads"), Err("its 3 heads".to_owned()));
    }

    #[test]
    fn cuts_are_a_share_of_each_part() {
        let mut cuts = Cuts::new(Share { rank: 1, ranks: 2 });
        cuts.rows("x".to_owned(), &[Run { n: 4, each: 3 }, Run { n: 1, each: 5 }, Run::of(2)]);
        let ranges = vec![6..17, 18..19];
        assert_eq!(cuts.of("x"), Some(&Cut::Rows { whole: 19, ranges }));
        cuts.norm("n".to_owned(), Run { n: 4, each: 3 }, 2);
        assert_eq!((cuts.norm_over("n"), cuts.norm_over("x")), (2, 1));
        let ranges = std::iter::once(6..12).collect();
        assert_eq!(cuts.of("n"), Some(&Cut::Rows { whole: 12, ranges }));
    }
}
