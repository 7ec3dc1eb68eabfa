//! Who has to go so that a model fits. Numbers in, a decision out: no models, no clock, no lock.

use std::time::Duration;

/// A model that takes up memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resident {
    /// Which entry it is.
    pub(super) entry: usize,
    pub(super) bytes: u64,
    pub(super) pinned: bool,
    /// Requests that use it.
    pub(super) in_use: usize,
    pub(super) last_used: Duration,
    /// It is going already.
    pub(super) closing: bool,
}

/// Memory in bytes, but for the residents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Account {
    /// What all of it may take.
    pub(super) limit: u64,
    /// The process without models.
    pub(super) baseline: u64,
    /// What the process was measured to hold, its models included.
    pub(super) measured: u64,
}

/// What has to happen before a model can be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Nothing.
    Free,
    /// These entries have to go, best first.
    Close(Vec<usize>),
    /// What is closing has to be gone.
    Coming,
    /// It can not be had: so much is held by what must not be unloaded.
    Held(u64),
    /// It would not fit if it were alone.
    TooLarge,
}

/// Decides for a model of `needed` bytes.
///
/// A resident counts with all that it may come to take. Where the process was measured to hold more
/// than that, the measurement counts. First to go are models that nobody uses, the one that was not
/// used for the longest first; then those in use, in the same order.
pub(super) fn make_room(needed: u64, account: &Account, residents: &[Resident]) -> Room {
    let sum = |some: &dyn Fn(&&Resident) -> bool| -> u64 {
        residents.iter().filter(some).fold(0, |sum, r| sum.saturating_add(r.bytes))
    };
    let Account { limit, baseline, measured } = *account;
    let fits = |others: u64| needed.saturating_add(others) <= limit;
    if !fits(baseline) {
        return Room::TooLarge;
    }
    let reserved = sum(&|_| true);
    let overhead = measured.saturating_sub(reserved).max(baseline);
    let stays = sum(&|r| !r.closing);
    if fits(overhead.saturating_add(reserved)) {
        return Room::Free;
    }
    if fits(overhead.saturating_add(stays)) {
        return Room::Coming;
    }
    let mut can_go: Vec<_> = residents.iter().filter(|r| !r.pinned && !r.closing).collect();
    can_go.sort_by_key(|r| (r.in_use > 0, r.last_used));
    let mut others = overhead.saturating_add(stays);
    let mut close = Vec::new();
    for resident in can_go {
        if fits(others) {
            break;
        }
        others -= resident.bytes.min(others);
        close.push(resident.entry);
    }
    if fits(others) { Room::Close(close) } else { Room::Held(others) }
}

/// Bytes in the unit people read: the largest of which there is one, once rounded.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    // Less than half a hundredth of the next smaller unit below is written as 1024.00 of those.
    let unit = UNITS.iter().find(|(_, size)| bytes >= size - size / 204_800);
    match unit {
        Some((name, size)) => format!("{:.2} {name}", bytes as f64 / *size as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_are_told_in_units() {
        let told = [
            (0, "0 B"),
            (1 << 10, "1.00 KiB"),
            ((1 << 20) - 1, "1.00 MiB"),
            ((1 << 30) - 4096, "1.00 GiB"),
            (1023 << 20, "1023.00 MiB"),
            (3 << 29, "1.50 GiB"),
        ];
        for (bytes, text) in told {
            assert_eq!(human_bytes(bytes), text);
        }
    }

    fn resident(entry: usize, bytes: u64, in_use: usize, last_used: u64) -> Resident {
        let last_used = Duration::from_secs(last_used);
        Resident { entry, bytes, pinned: false, in_use, last_used, closing: false }
    }

    #[track_caller]
    fn check(needed: u64, limit: u64, residents: &[Resident], expected: Room) {
        let account = Account { limit, baseline: 1, measured: 0 };
        assert_eq!(make_room(needed, &account, residents), expected);
    }

    #[test]
    fn the_least_recently_used_idle_model_goes_first() {
        let three = [resident(0, 10, 0, 5), resident(1, 10, 0, 3), resident(2, 10, 1, 1)];
        check(9, 40, &three, Room::Free);
        check(10, 40, &three, Room::Close(vec![1]));
        check(20, 40, &three, Room::Close(vec![1, 0]));
        check(39, 40, &three, Room::Close(vec![1, 0, 2]));
        check(40, 40, &three, Room::TooLarge);
    }

    #[test]
    fn pinned_models_stay_and_closing_ones_are_waited_for() {
        let mut two = [resident(0, 10, 0, 5), resident(1, 10, 0, 3)];
        two[1].pinned = true;
        check(15, 30, &two, Room::Close(vec![0]));
        check(25, 30, &two, Room::Held(11));
        two[0].closing = true;
        check(15, 30, &two, Room::Coming);
    }

    #[test]
    fn what_was_measured_counts_where_it_is_more() {
        let one = [resident(0, 10, 0, 5)];
        let account = |measured| Account { limit: 40, baseline: 1, measured };
        assert_eq!(make_room(20, &account(20), &one), Room::Free);
        assert_eq!(make_room(20, &account(21), &one), Room::Close(vec![0]));
        assert_eq!(make_room(20, &account(40), &one), Room::Held(30));
    }

    proptest! {
        #[test]
        fn what_is_closed_is_enough_and_no_more(
            parts in prop::collection::vec((1..20u64, 0..2usize, 0..9u64, any::<bool>()), 0..6),
            needed in 1..60u64,
            limit in 1..60u64,
        ) {
            let residents: Vec<_> = parts.iter().enumerate().map(|(i, &(bytes, in_use, at, pinned))| {
                Resident { pinned, ..resident(i, bytes, in_use, at) }
            }).collect();
            let account = Account { limit, baseline: 2, measured: 0 };
            let others = |gone: &[usize]| -> u64 {
                residents.iter().filter(|r| !gone.contains(&r.entry)).map(|r| r.bytes).sum()
            };
            match make_room(needed, &account, &residents) {
                Room::Free => prop_assert!(needed + 2 + others(&[]) <= limit),
                Room::Close(gone) => {
                    prop_assert!(gone.iter().all(|&i| !residents[i].pinned));
                    prop_assert!(needed + 2 + others(&gone) <= limit);
                    prop_assert!(needed + 2 + others(&gone[..gone.len() - 1]) > limit);
                }
                Room::Coming => prop_assert!(false, "nothing is closing"),
                Room::Held(held) => {
                    let pinned: u64 = residents.iter().filter(|r| r.pinned).map(|r| r.bytes).sum();
                    prop_assert_eq!(held, pinned + 2);
                    prop_assert!(needed + held > limit);
                }
                Room::TooLarge => prop_assert!(needed + 2 > limit),
            }
        }
    }

    #[test]
    fn bytes_are_told_in_the_unit_that_fits() {
        let told: Vec<_> = [12, 1 << 10, 3 << 19, 5 << 29].into_iter().map(human_bytes).collect();
        assert_eq!(told, ["12 B", "1.00 KiB", "1.50 MiB", "2.50 GiB"]);
    }
}
