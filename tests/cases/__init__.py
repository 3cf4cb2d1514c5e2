"""Behaviour cases: input and expected output as data, answered by the product's own code.

`python -m tests.cases FILE...` runs any file in the format of `tests/data/hami_cases.md`.
"""
