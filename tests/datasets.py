"""Small data sets with known contents, and what tests ask of them."""

import dataclasses

import numpy as np
import pytest

from langenode.data import DataError, Dataset

ARRAYS = ("times", "inputs", "outputs", "mask", "initial", "condition", "unit")
REST = ("input_names", "output_names", "condition_names", "unit_names")


def crossed(num_units=3, num_conditions=4, num_times=5):
    """Every unit under every condition except one pair, some cells missing, one input, two outputs, a start."""
    rng = np.random.default_rng(0)
    unit, condition = (a.ravel()[:-1] for a in np.meshgrid(*map(np.arange, (num_units, num_conditions)), indexing="ij"))
    num = len(unit)
    outputs = rng.normal(size=(num, num_times, 2))
    outputs[1, 2, 0] = outputs[2, :, 1] = np.nan
    return Dataset.from_arrays(
        np.linspace(0.1, 1.7, num_times),
        outputs,
        inputs=rng.normal(size=(num_conditions, num_times, 1))[condition],
        initial=rng.normal(size=(num, 3)),
        condition=condition,
        unit=unit,
        input_names=("strain",),
        output_names=("stress", "σ, volume"),
        units={"time": "s", "stress": "MPa"},
        attributes={"W": rng.normal(size=num), "b": rng.normal(size=(num, 2)), "none": np.zeros((num, 0))},
    )


def ragged():
    """Three trajectories of lengths 4, 2 and 1 without inputs."""
    return Dataset.from_list(
        [
            {"times": [0.0, 0.1, 0.3, 0.7], "outputs": [1.0, np.nan, 3.0, 4.0], "unit": "b"},
            {"times": [0.0, 2.0], "outputs": [5.0, 6.0], "unit": "a"},
            {"times": [-1.0], "outputs": [7.0], "unit": "b"},
        ]
    )


def grid_data(num, num_times=3, **options):
    """One output, values 0, 1, 2, ..."""
    outputs = np.arange(float(num * num_times)).reshape(num, num_times)
    return Dataset.from_arrays(np.arange(float(num_times)), outputs, **options)


def per_condition(num_conditions, repeats=2):
    """Each condition has its own input and `repeats` replicates."""
    condition = np.repeat(np.arange(num_conditions), repeats)
    inputs = np.repeat(condition[:, None].astype(float), 3, axis=1)
    return grid_data(len(condition), inputs=inputs)


def assert_same(a, b, fields=ARRAYS + REST):
    for name in fields:
        left, right = getattr(a, name), getattr(b, name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype, name
        np.testing.assert_array_equal(left, right, err_msg=name)


def fields_of(data, **changes):
    return {f.name: getattr(data, f.name) for f in dataclasses.fields(data)} | changes


def refused(match, function, *args, **options):
    with pytest.raises(DataError, match=match) as caught:
        function(*args, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)
