"""Tests of what `soak.py`, `stall.py` and `tax.py` reckon with: `python3 -m unittest discover --start-directory bench`."""

import types
import unittest

import soak
import stall
import tax
from served import percentile, total

MIB = 1 << 20


class Reckoning(unittest.TestCase):
    def test_percentiles(self):
        self.assertEqual(percentile([5], 0.99), 5)
        self.assertEqual(percentile(range(100), 0.5), 50)
        self.assertEqual(percentile(range(100), 0.99), 99)

    def test_a_server_tax_goes_by_medians_and_by_times_between_tokens(self):
        self.assertAlmostEqual(tax.decode_speed([2.0, 2.1, 2.5], 11), 20)
        self.assertAlmostEqual(tax.loss([100, 200, 90], [98, 10, 99]), 0.02)

    def test_totals_are_of_one_name(self):
        samples = {'a_total{model_name="x"}': 2.0, 'a_total{model_name="y"}': 3.0, "a_total_more": 9.0}
        self.assertEqual(total(samples, "a_total"), 5.0)

    def test_memory_that_grows_is_seen_and_a_warm_up_is_not(self):
        def samples(own):
            return [{"at": n, "anonymous": mib * MIB} for n, mib in enumerate(own)]

        warm = [10, 40, 80] + [100, 101, 99] * 10
        growth, values = soak.memory_growth(samples(warm), 3)
        self.assertEqual((growth, len(values)), (0, 30))
        leak = [10, 40, 80] + [100 + n for n in range(30)]
        self.assertEqual(soak.memory_growth(samples(leak), 3)[0], 20)
        self.assertIsNone(soak.memory_growth(samples(warm), 30)[0])

    def test_responses_that_nobody_asked_for_are_found(self):
        def responses(status, n):
            return {f'hearth_http_responses_total{{method="POST",route="/x",status="{status}"}}': n}

        right = responses(200, 7.0) | responses(504, 2.0) | responses(429, 1.0) | responses(500, 0.0)
        error = 'vllm:request_success_total{model_name="m",finished_reason="error"}'
        self.assertEqual(soak.failures(right | {error: 0.0}), [])
        found = soak.failures(right | responses(503, 3.0) | {error: 1.0})
        self.assertEqual(found, ["3 responses with status 503", "1 answers that broke off"])

    def test_gaps_are_those_that_end_in_time(self):
        stream = types.SimpleNamespace(times=[1.0, 1.5, 2.5, 2.75])
        self.assertEqual(stall.gaps(stream, 2.0, 2.6), [1000.0])
        self.assertEqual(stall.gaps(stream, 0.0, 9.0), [500.0, 1000.0, 250.0])


if __name__ == "__main__":
    unittest.main()
