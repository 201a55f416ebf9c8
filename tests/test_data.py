"""The data set: what it refuses, how it is built, split and read."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from datasets import assert_same, crossed, fields_of, grid_data, per_condition, ragged, refused
from langenode.data import Dataset, Extent

# Building


def test_from_arrays_fills_in_the_rest():
    data = grid_data(4)
    assert (data.num_trajectories, data.num_times, data.num_inputs, data.num_outputs) == (4, 3, 0, 1)
    assert (data.num_conditions, data.num_units, data.is_complete) == (1, 4, True)
    assert data.initial is None
    assert data.output_names == ("y0",) and data.unit_names == ("0", "1", "2", "3")
    np.testing.assert_array_equal(data.unit, np.arange(4))
    np.testing.assert_array_equal(data.lengths, [3, 3, 3, 3])
    assert data.times.shape == (4, 3) and data.times.dtype == np.float64
    assert "4 trajectories" in repr(data) and "\n" not in repr(data)


def test_nan_outputs_are_missing_and_stored_as_zero():
    data = Dataset.from_arrays([0.0, 1.0, 2.0], [[1.0, np.nan, 3.0]])
    np.testing.assert_array_equal(data.mask[0, :, 0], [True, False, True])
    np.testing.assert_array_equal(data.outputs[0, :, 0], [1.0, 0.0, 3.0])
    assert not data.is_complete


def test_a_trajectory_without_a_reading_is_data_to_predict():
    data = Dataset.from_arrays([0.0, 1.0], [[1.0, 2.0], [np.nan, np.nan]])
    assert not data.mask[1].any() and not data.outputs[1].any()


def test_masked_cells_are_zeroed_whatever_they_held():
    mask = np.array([[[True], [False], [False]]])
    outputs = np.array([[[1.0], [np.inf], [5.0]]])
    data = Dataset.from_arrays([0.0, 1.0, 2.0], outputs, mask=mask)
    np.testing.assert_array_equal(data.outputs[0, :, 0], [1.0, 0.0, 0.0])


def test_default_condition_is_identical_times_and_inputs():
    inputs = np.array([[0.0, 1.0], [0.0, 2.0], [-0.0, 1.0]])
    data = Dataset.from_arrays([0.0, 1.0], np.ones((3, 2)), inputs=inputs)
    np.testing.assert_array_equal(data.condition, [0, 1, 0])
    # Different starts do not make different conditions.
    data = Dataset.from_arrays([0.0, 1.0], np.ones((3, 2)), initial=[1.0, 2.0, 3.0])
    assert data.num_conditions == 1 and data.initial is not None and data.initial.shape == (3, 1)


def test_one_input_row_is_shared():
    data = Dataset.from_arrays([0.0, 1.0], np.ones((3, 2)), inputs=[[0.5, 0.7]])
    assert data.inputs.shape == (3, 2, 1) and data.num_conditions == 1


@pytest.mark.parametrize(
    ("labels", "codes", "names"),
    [
        ([7, 3, 7], [1, 0, 1], ("3", "7")),
        (["b", "a", "b"], [1, 0, 1], ("a", "b")),
        (["10", "2", "10"], [1, 0, 1], ("2", "10")),
        (["010", "2", "010"], [0, 1, 0], ("010", "2")),
        ([0.5, 0.25, 0.5], [1, 0, 1], ("0.25", "0.5")),
    ],
)
def test_labels_are_numbered_in_sorted_order(labels, codes, names):
    data = grid_data(3, condition=labels, unit=labels)
    np.testing.assert_array_equal(data.condition, codes)
    np.testing.assert_array_equal(data.unit, codes)
    assert data.condition_names == names == data.unit_names


def test_arrays_are_copied_and_read_only():
    outputs = np.ones((2, 3))
    data = Dataset.from_arrays(np.arange(3.0), outputs, attributes={"W": np.zeros(2)})
    outputs[:] = 5.0
    assert np.all(data.outputs == 1.0)
    for array in (data.times, data.outputs, data.mask, data.condition, data.attributes["W"]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.times = outputs  # type: ignore[misc]


def test_from_list_pads():
    data = ragged()
    np.testing.assert_array_equal(data.lengths, [4, 2, 1])
    np.testing.assert_array_equal(data.times[1], [0.0, 2.0, 2.0, 2.0])
    np.testing.assert_array_equal(data.times[2], [-1.0] * 4)
    np.testing.assert_array_equal(data.mask[..., 0], [[1, 0, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])
    np.testing.assert_array_equal(data.outputs[1, :, 0], [5.0, 6.0, 0.0, 0.0])
    np.testing.assert_array_equal(data.condition, [0, 1, 2])
    np.testing.assert_array_equal(data.unit, [1, 0, 1])


def test_from_list_pads_inputs_with_the_last_row_and_keeps_attributes():
    data = Dataset.from_list(
        [
            {
                "times": [0, 1],
                "outputs": [[1, 2]] * 2,
                "inputs": [3.0, 4.0],
                "initial": 1,
                "attributes": {"W": 5},
            },
            {"times": [0], "outputs": [[1, 2]], "inputs": [6.0], "initial": 2, "attributes": {"W": 7}},
        ],
        input_names=["u"],
        output_names=["p", "q"],
        units={"u": "N"},
    )
    np.testing.assert_array_equal(data.inputs[..., 0], [[3.0, 4.0], [6.0, 6.0]])
    np.testing.assert_array_equal(data.initial, [[1.0], [2.0]])
    np.testing.assert_array_equal(data.attributes["W"], [5.0, 7.0])
    assert data.input_names == ("u",) and data.units == {"u": "N"}


def test_replicates_at_other_times_go_on_the_union():
    data = Dataset.from_list(
        [
            {"times": [0.0, 2.0], "outputs": [1.0, 2.0], "inputs": [0.0, 4.0], "condition": "ramp"},
            {
                "times": [1.0, 2.0, 3.0],
                "outputs": [3.0, np.nan, 5.0],
                "inputs": [2.0, 4.0, 6.0],
                "condition": "ramp",
            },
            {"times": [0.0], "outputs": [9.0], "inputs": [1.0], "condition": "hold"},
        ]
    )
    np.testing.assert_array_equal(data.times, [[0, 1, 2, 3], [0, 1, 2, 3], [0, 0, 0, 0]])
    np.testing.assert_array_equal(data.inputs[:2, :, 0], [[0, 2, 4, 6]] * 2)
    np.testing.assert_array_equal(data.mask[..., 0], [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 0, 0]])
    np.testing.assert_array_equal(data.outputs[:2, :, 0], [[1, 0, 2, 0], [0, 3, 0, 5]])
    assert data.condition_names == ("hold", "ramp")
    np.testing.assert_array_equal(data.condition, [1, 1, 0])


def test_union_without_inputs():
    data = Dataset.from_list(
        [{"times": t, "outputs": np.ones(len(t)), "condition": 0} for t in ([0.0, 1.0], [0.5], [0.0, 0.5, 1.0])]
    )
    np.testing.assert_array_equal(data.times, [[0.0, 0.5, 1.0]] * 3)
    assert data.mask.sum() == 6


def test_union_refuses_other_inputs_at_a_shared_time_and_other_paths_between():
    first = {"times": [0.0, 2.0, 4.0], "outputs": [1.0] * 3, "inputs": [0.0, 1.0, 2.0], "condition": "a"}
    shared = {"times": [0.0, 2.0], "outputs": [1.0] * 2, "inputs": [0.0, 1.5], "condition": "a"}
    between = {"times": [1.0, 3.0], "outputs": [1.0] * 2, "inputs": [9.0, 9.0], "condition": "a"}
    refused("trajectory 1 in condition a differs at time 2.0", Dataset.from_list, [first, shared])
    refused("in condition a is over 1 % off", Dataset.from_list, [first, between])


@pytest.mark.parametrize(
    ("trajectories", "match"),
    [
        ([], "at least one trajectory"),
        ([{"times": [0.0]}], "must have times and outputs"),
        ([{"time": [0.0], "times": [0.0], "outputs": [1.0]}], "rename its keys"),
        ([{"times": [0.0, 0.0], "outputs": [1.0, 2.0]}], "increase strictly"),
        ([{"times": [0.0, np.nan], "outputs": [1.0, 2.0]}], "increase strictly"),
        ([{"times": [0.0, 1.0], "outputs": [1.0]}], "with 2 rows"),
        ([{"times": [], "outputs": []}], "increase strictly"),
        ([{"times": [0.0], "outputs": ["a"]}], "real numbers"),
        (
            [{"times": [0.0], "outputs": [1.0]}, {"times": [0.0], "outputs": [1.0], "unit": 1}],
            "the same keys",
        ),
        ([{"times": [0.0], "outputs": [1.0]}, {"times": [0.0], "outputs": [[1.0, 2.0]]}], "same shape"),
        (
            [
                {"times": [0.0], "outputs": [1.0], "inputs": [1.0], "condition": 0},
                {"times": [1.0], "outputs": [1.0], "inputs": [[1.0, 2.0]], "condition": 0},
            ],
            "same shape",
        ),
    ],
)
def test_from_list_refuses(trajectories, match):
    refused(match, Dataset.from_list, trajectories)


# Validation


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"times": np.zeros((2, 4))}, "times must have shape"),
        ({"mask": np.ones((2, 3, 2), bool)}, "mask must have shape"),
        ({"mask": np.ones((2, 3, 1))}, "mask must be True or False"),
        ({"condition": np.zeros(3, int)}, "condition must have shape"),
        ({"condition": np.zeros(2)}, "condition must be whole numbers"),
        ({"condition": np.array([0, 2])}, "condition must use every number"),
        ({"unit": np.array([-1, 0])}, "unit must use every number"),
        ({"initial": np.zeros((3, 1))}, "initial must have shape"),
        ({"initial": np.array([[0.0], [np.nan]])}, "initial must be finite; trajectory 1"),
        ({"outputs": np.zeros((2, 3))}, "must be .traj, time, column."),
        ({"outputs": np.zeros((2, 3, 1), complex)}, "real numbers; found complex128"),
        (
            {"times": np.array([[0.0, 1.0, 2.0], [0.0, np.inf, 2.0]])},
            "times must be finite; trajectory 1 has inf at index 1",
        ),
        (
            {"times": np.array([[0.0, 1.0, 2.0], [0.0, 2.0, 1.0]])},
            "trajectory 1 has 1.0 after 2.0 at index 2",
        ),
        (
            {"times": np.array([[0.0, 1.0, 2.0], [0.0, 0.0, 1.0]])},
            "trajectory 1 has 0.0 after 0.0 at index 1",
        ),
        (
            {"times": np.array([[0.0, 1.0, 1.0]] * 2)},
            "padding and must be masked; trajectory 0 has an output at index 2",
        ),
        ({"inputs": np.full((2, 3, 1), np.nan)}, "trajectory 0 has nan in input 0 at index 0"),
        ({"outputs": np.full((2, 3, 1), np.nan)}, "observed outputs must be finite; trajectory 0 has nan"),
        (
            {"times": np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 3.0]])},
            "times of trajectory 1 in condition 0 differ",
        ),
        ({"inputs": np.arange(6.0).reshape(2, 3, 1)}, "inputs of trajectory 1 in condition 0 differ"),
        ({"output_names": ("a", "b")}, "output_names must have 1 names; found 2"),
        ({"unit_names": ("a", "a")}, "unit_names must be distinct"),
        ({"condition_names": ("",)}, "condition_names must be distinct and not empty"),
        ({"attributes": {"W": np.zeros(3)}}, "attribute W must have one entry"),
    ],
)
def test_refuses(changes, match):
    fields = fields_of(grid_data(2), input_names=(), **changes)
    message = refused(match, Dataset, **fields)
    assert ";" in message


def test_refuses_padding_that_does_not_repeat_the_inputs():
    data = Dataset.from_list([{"times": [0, 1], "outputs": [1, 1], "inputs": [1, 2]}] * 2)
    changes = {"times": np.zeros((2, 2)), "mask": np.array([[[True], [False]]] * 2)}
    refused("repeat the last valid row .* trajectory 0 does not at index 1", Dataset, **fields_of(data, **changes))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"inputs": np.ones((4, 3))}, "inputs must fit"),
        ({"inputs": [[1.0], [1.0, 2.0]]}, "rectangular"),
        ({"mask": np.ones((5, 3), bool)}, "mask must fit"),
        ({"condition": [0, 1]}, "one label per trajectory"),
        ({"condition": [0.0, np.nan, 1.0]}, "finite numbers"),
        ({"unit": [None, "a", "b"]}, "a mixture"),
        ({"attributes": {"W": ["a", "b", "c"]}}, "real numbers"),
    ],
)
def test_from_arrays_refuses(options, match):
    refused(match, grid_data, 3, **options)


# Selecting and splitting


def test_select_renumbers_and_keeps_labels():
    data = crossed()
    part = data.select([10, 1, 5])
    np.testing.assert_array_equal(part.condition, [1, 0, 0])
    assert part.condition_names == ("1", "2")
    assert part.unit_names == ("0", "1", "2") and part.unit.tolist() == [2, 0, 1]
    np.testing.assert_array_equal(part.outputs, data.outputs[[10, 1, 5]])
    np.testing.assert_array_equal(part.attributes["b"], data.attributes["b"][[10, 1, 5]])
    assert part.units == data.units


@pytest.mark.parametrize("index", [slice(1, 3), np.array([False, True, True]), [1, 2], (-2, -1), range(1, 3)])
def test_select_trims_the_time_axis(index):
    part = ragged().select(index)
    assert part.times.shape == (2, 2)
    assert part.unit_names == ("a", "b")


def test_select_one_none_and_wrong():
    data = ragged()
    assert data.select(1).num_trajectories == 1
    assert data.select([0, 0]).num_trajectories == 2
    empty = data.select([])
    assert empty.num_trajectories == empty.num_conditions == empty.num_units == 0 and empty.num_outputs == 1
    refused("select from the 3 trajectories", data.select, [3])
    refused("select from the 3 trajectories", data.select, [True, False])
    refused("select from the 3 trajectories", data.select, [0.5])
    refused("one axis", data.select, [[0], [1]])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_conditions", [3, 4, 10, 17])
def test_split_never_shares_a_condition(seed, num_conditions):
    data = per_condition(num_conditions)
    parts = data.split(0.7, 0.15, 0.15, seed=seed)
    labels = [set(part.condition_names) for part in parts]
    assert all(labels) and sum(map(len, labels)) == num_conditions
    assert set().union(*labels) == set(data.condition_names)
    assert sum(part.num_trajectories for part in parts) == data.num_trajectories


def test_split_is_deterministic_and_depends_on_the_seed():
    data = per_condition(30)
    first, again, other = (data.split(0.5, 0.25, 0.25, seed=seed) for seed in (1, 1, 2))
    for a, b in zip(first, again, strict=True):
        assert_same(a, b)
    assert first[0].condition_names != other[0].condition_names


def test_split_of_one_condition_is_by_trajectory():
    data = grid_data(10)
    parts = data.split(0.8, 0.1, 0.1, seed=0)
    assert [part.num_trajectories for part in parts] == [8, 1, 1]
    assert sorted(name for part in parts for name in part.unit_names) == sorted(data.unit_names)


def test_split_sizes_are_exact_where_they_can_be():
    parts = per_condition(10, repeats=1).split(0.7, 0.2, 0.1, seed=3)
    assert [part.num_conditions for part in parts] == [7, 2, 1]


def test_split_with_a_zero_part_and_too_few():
    train, valid, test = per_condition(2).split(0.5, 0, 0.5, seed=0)
    assert (train.num_conditions, valid.num_trajectories, test.num_conditions) == (1, 0, 1)
    train, valid, test = grid_data(1).split(1, 0, 0, seed=0)
    assert (train.num_trajectories, valid.num_trajectories, test.num_trajectories) == (1, 0, 0)
    refused("needs at least 3 conditions; the data has 2", per_condition(2).split, 0.6, 0.2, 0.2, seed=0)
    refused("needs at least 2 trajectories; the data has 1", grid_data(1).split, 0.5, 0, 0.5, seed=0)


@pytest.mark.parametrize("fractions", [(0.5, 0.5, 0.5), (1.2, -0.1, -0.1), (np.nan, 0.5, 0.5), (0.0, 0.0, 0.0)])
def test_split_refuses_fractions(fractions):
    refused("sum to 1", grid_data(5).split, *fractions, seed=0)


# Cases, replicates, arrays


def test_cases_are_the_grid_of_each_condition():
    data = crossed()
    cases = data.cases()
    np.testing.assert_array_equal(cases.times[data.condition], data.times)
    np.testing.assert_array_equal(cases.inputs[data.condition], data.inputs)
    assert cases.times.shape == (4, 5) and cases.inputs.shape == (4, 5, 1)


def test_replicates_of_crossed_units():
    data = crossed()
    found = data.replicates()
    assert data.has_crossed_units and not grid_data(5).has_crossed_units
    assert found.outputs.shape == (3, 4, 5, 2) and found.mask.shape == (3, 4, 5, 2)
    np.testing.assert_array_equal(found.outputs[data.unit, data.condition], data.outputs)
    np.testing.assert_array_equal(found.mask[data.unit, data.condition], data.mask)
    assert found.present.sum() == 11 and not found.present[2, 3]
    assert not found.mask[2, 3].any() and not found.outputs[2, 3].any()
    assert found.initial is not None and data.initial is not None
    np.testing.assert_array_equal(found.initial[2, 3], data.initial[3])
    np.testing.assert_array_equal(found.initial[data.unit, data.condition], data.initial)


def test_replicates_of_nested_units_are_counted_within_a_condition():
    data = grid_data(5, inputs=np.repeat([[1.0], [0.0], [1.0], [1.0], [0.0]], 3, axis=1))
    found = data.replicates()
    assert data.condition.tolist() == [0, 1, 0, 0, 1]
    np.testing.assert_array_equal(found.present, [[True, True], [True, True], [True, False]])
    np.testing.assert_array_equal(found.outputs[:, 0], data.outputs[[0, 2, 3]])
    np.testing.assert_array_equal(found.outputs[:2, 1], data.outputs[[1, 4]])
    assert found.initial is None


def test_replicates_refuse_a_unit_twice_in_a_condition_when_crossed():
    data = per_condition(2)
    data = dataclasses.replace(data, unit=np.array([0, 0, 0, 1]), unit_names=())
    refused("unit 0 has 2 in condition 0", data.replicates)


def test_repeats_of_a_nested_unit_are_members_of_their_own():
    data = dataclasses.replace(grid_data(4), unit=np.array([0, 0, 1, 1]), unit_names=())
    assert data.replicates().present.shape == (4, 1)


@pytest.mark.parametrize("dtype", [jnp.float32, np.float64, "float32"])
def test_arrays_are_a_pytree_of_one_dtype(dtype):
    data = crossed()
    batch = data.arrays(dtype)
    floats = (batch.times, batch.inputs, batch.outputs, batch.initial)
    assert all(array is not None and array.dtype == np.dtype(dtype) for array in floats)
    assert batch.mask.dtype == bool and batch.condition.dtype == jnp.int32
    total = jax.jit(lambda b: jnp.sum(b.outputs * b.mask))(batch)
    np.testing.assert_allclose(total, data.outputs.sum(), rtol=1e-5)
    assert grid_data(2).arrays(dtype).initial is None
    assert len(jax.tree.leaves(grid_data(2).arrays(dtype))) == 5


def test_arrays_refuse_a_dtype_that_spoils_the_data():
    late = Dataset.from_arrays(1e9 + np.arange(3.0), np.ones((1, 3)))
    refused("times must differ in float32", late.arrays, np.float32)
    assert late.arrays(np.float64).times[0, 1] == 1e9 + 1
    huge = Dataset.from_arrays(np.arange(3.0), np.full((1, 3), 1e39))
    refused("outputs must be finite in float32", huge.arrays, np.float32)
    refused("floating", huge.arrays, np.int32)


def test_float64_arrays_need_x64():
    with jax.enable_x64(False):
        refused("64-bit mode", grid_data(1).arrays, np.float64)
        assert grid_data(1).arrays(np.float32).times.dtype == np.float32


def test_a_split_of_unequal_conditions_divides_trajectories_by_its_fractions():
    """Conditions of 30 and of 1 trajectories: three quarters of the conditions might be nearly all, or hardly any."""
    condition = np.concatenate([np.repeat(np.arange(2), 15), np.arange(2, 12)])
    times = np.arange(3.0) + 1e-3 * condition[:, None]
    data = Dataset.from_arrays(times, np.zeros((40, 3)), condition=condition)
    for seed in range(5):
        parts = data.split(0.75, 0.25, 0.0, seed=seed)
        assert [part.num_trajectories for part in parts] in ([30, 10, 0], [25, 15, 0]), seed
        assert sorted(name for part in parts for name in part.condition_names) == sorted(data.condition_names)
    smallest = data.select(condition < 3).split(0.9, 0.05, 0.05, seed=0)
    assert [part.num_conditions for part in smallest] == [1, 1, 1]


# What the data cover


def test_an_extent_has_a_margin_and_names_columns_in_the_users_words():
    times, starts = np.array([0.0, 1.0, 4.0]), np.array([[1.0], [3.0]])
    data = Dataset.from_arrays(
        times,
        np.zeros((2, 3)),
        inputs=np.array([[[0.0, 5.0]] * 3, [[8.0, 5.0]] * 3]),
        initial=starts,
        input_names=("T", "p"),
    )
    extent = Extent.from_dict(Extent.of(data).to_dict())
    assert extent.duration == 4.0 and extent.beyond(data) == []

    def asked(duration=4.0, inputs=(0.0, 5.0), start=1.0):
        path, initial = np.array([[inputs] * 3]), np.array([[start]])
        return extent.beyond(
            Dataset.from_arrays(
                times * duration / 4.0, np.zeros((1, 3)), inputs=path, initial=initial, input_names=("T", "p")
            )
        )

    assert asked(5.0, (10.0, 5.0), 0.5) == []  # a quarter of each range
    assert asked(5.1) == ["durations up to 5.1 (training: 4)"]
    assert asked(inputs=(-2.1, 5.0)) == ["input 'T' from -2.1 to -2.1 (training: 0 to 8)"]
    assert asked(inputs=(0.0, 5.1)) == ["input 'p' from 5.1 to 5.1 (training: 5 to 5)"]
    assert asked(start=3.6) == ["starts of 'y0' from 3.6 to 3.6 (training: 1 to 3)"]
