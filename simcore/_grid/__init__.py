"""The front that all grids share: arguments are read once, results are finished in one place.

============  ==================================================================================
memory        the memory that is free on a device, and what `max_memory` means there
options       the checks of options: choices, flags, counts, `max_memory`
inputs        arrays as tensors, and the checks of their shapes, devices and entries
basis         `Basis`, which may stand in for a layer, and the truncation that it keeps
scale         float64 layers too large or too small to be squared, by powers of two
side          both arguments of a grid, read once: `Sides`, of one `Side` for each argument
finish        the warnings of a grid, and what its caller gets back
progress      a progress bar
one_operator  a function that is a single operator where torch traces it
============  ==================================================================================
"""
