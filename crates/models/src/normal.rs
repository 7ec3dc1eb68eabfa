//! The normal distribution, as far as recipes need it.

/// How many standard deviations above the mean the share `p` of all numbers lies below; `p` between 0
/// and 1.
pub(crate) fn quantile(p: f64) -> f64 {
    let share_below = |x: f64| 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2);
    // Beyond this there is nothing that an f64 could say.
    let (mut low, mut high) = (-40.0, 40.0);
    loop {
        let middle = f64::midpoint(low, high);
        if middle == low || middle == high {
            return middle;
        }
        if share_below(middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From Python's `statistics.NormalDist().inv_cdf`.
    #[test]
    fn quantiles_are_those_of_tables() {
        for (p, x) in [
            (0.5, 0.0),
            (0.95, 1.644853626951472),
            (0.99, 2.326347874040841),
            (0.1, -1.2815515655446008),
            (1e-6, -4.753424308822899),
        ] {
            assert!((quantile(p) - x).abs() < 1e-12, "{p}: {}", quantile(p));
        }
    }
}
