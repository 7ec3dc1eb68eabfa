//! When the device begins with what is planned so far.
//!
//! A pass is planned op by op while nothing waits for it; only its logits are read. A device that began
//! when they are asked for would be idle as long as the planning takes, which on a GPU may be a good part
//! of what one row takes. So it is told to begin a few times on the way, where the residual stream has
//! been added to: all that layers left behind so far hangs on that. What is computed is the same in
//! either case, kernel by kernel.
//!
//! The next pass cannot be begun before a token is chosen, because tokens are chosen on the host.

/// Sums after which it begins first: soon, since the device has nothing to do by then.
const FIRST: usize = 2;
/// Sums between two beginnings from then on, two for most layers. Each costs the device an event to tell
/// who waits.
const THEN: usize = 8;

/// When what is planned is begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Begin {
    /// A few times while a pass is planned.
    #[default]
    WhilePlanning,
    /// When its result is read.
    WhenRead,
}

/// Counts the sums of a pass.
#[derive(Debug)]
pub(crate) struct Ahead {
    begin: Begin,
    left: usize,
}

impl Ahead {
    pub(crate) fn new(begin: Begin) -> Ahead {
        Ahead { begin, left: FIRST }
    }

    /// A pass begins.
    pub(crate) fn restart(&mut self) {
        self.left = FIRST;
    }

    /// Counts a sum. Whether it is to be begun with.
    pub(crate) fn begins_after_sum(&mut self) -> bool {
        if self.begin == Begin::WhenRead {
            return false;
        }
        self.left -= 1;
        let begins = self.left == 0;
        if begins {
            self.left = THEN;
        }
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soon_and_then_every_few_sums() {
        let mut ahead = Ahead::new(Begin::WhilePlanning);
        let begun = |ahead: &mut Ahead| -> Vec<usize> {
            (1..=20).filter(|_| ahead.begins_after_sum()).collect()
        };
        assert_eq!(begun(&mut ahead), [2, 10, 18]);
        ahead.restart();
        assert_eq!(begun(&mut ahead), [2, 10, 18]);
        assert!(begun(&mut Ahead::new(Begin::WhenRead)).is_empty());
    }
}
