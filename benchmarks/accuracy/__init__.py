"""The figures of the papers, made again: one command for all of them, results as JSON and as plots.

`python -m benchmarks.accuracy` runs every figure, `python -m benchmarks.accuracy pckv` those of one family,
`python -m benchmarks.accuracy pckv-uu` one. See `figures` for what a figure is and `registry` for how one is added.
"""
