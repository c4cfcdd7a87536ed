"""The code that all grids share before and after their operators run.

Arguments are read once, and results are finished in one place.

============  ==================================================================================
memory        the memory that is free on a device, and what `max_memory` means there
options       the checks of options: choices, flags, counts, `max_memory`, those of a measure
inputs        arrays as tensors, the checks of their shapes, devices and entries, and the least
              number of rows for each purpose; groups of rows, such as the words of a sentence
basis         `Basis`, which may stand in for a layer, and the truncation that it keeps
neighbours    `Neighbours`, which may stand in for a layer in grids of neighbours
scale         layers outside the range of float64, and distances between rows that float32 loses
side          both arguments of a grid, read once: `Sides`, of one `Side` for each argument
derivative    values with gradients of their own, and functions whose derivatives stay finite
matrices      `Rdm` and `Gram`, matrices over examples that stand for a layer
finish        the warnings of a grid, and the array that its caller gets back
progress      a progress bar
forks         one thread in a forked child of a process that has computed grids
one_operator  a function that is a single operator where torch traces it
============  ==================================================================================
"""
