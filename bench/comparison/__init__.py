"""The parts of `bench/compare.py`: models, peers, measurements, limits and the report."""
