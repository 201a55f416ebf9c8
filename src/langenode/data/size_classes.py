"""Sizes that arrays of data are padded to, so that tables of about the same size run the same compiled programs.

Padding is masked, as that of trajectories of different lengths: it costs time and changes no result. Compiling is the
larger part of a fit of small data; large data are left as they are.
"""

from collections.abc import Sequence

import numpy as np

# Of a condition or trajectory times a time.
MOST_PADDED_CELLS = 2**13


def size_class(size: int) -> int:
    """Return the next of 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, ...: two to an octave."""
    step = 2 ** max(0, size.bit_length() - 2)
    return -(-size // step) * step


def class_of(num: int, num_times: int) -> tuple[int, int]:
    """How many trajectories (or conditions) and times arrays are padded to."""
    if num * num_times > MOST_PADDED_CELLS:
        return num, num_times
    return size_class(num), size_class(num_times)


def extended(values: np.ndarray, sizes: Sequence[int], fill: float | bool | None = None) -> np.ndarray:
    """Make the first axes of an array longer, by its last entries or by one number."""
    longer = [size - had for size, had in zip(sizes, values.shape, strict=False)]
    width = [(0, by) for by in longer] + [(0, 0)] * (values.ndim - len(longer))
    if fill is None:
        return np.pad(values, width, mode="edge")
    return np.pad(values, width, constant_values=fill)
