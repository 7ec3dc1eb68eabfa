"""Golden cases of model families, one module per area, each with its `CASES`."""
