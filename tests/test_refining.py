"""Finer grids for the integrator, and starts from first complete rows: readings stay in place."""

import numpy as np
import pytest

from langenode.data import Dataset, from_first_complete_row, refine, with_observed_start


def irregular():
    return Dataset.from_list(
        [
            {"times": [0.0, 0.1, 1.0], "outputs": [1.0, np.nan, 3.0], "inputs": [0.0, 1.0, 10.0]},
            {"times": [2.0, 2.3], "outputs": [4.0, 5.0], "inputs": [1.0, 4.0]},
        ],
    )


def test_long_intervals_are_cut_into_equal_pieces_and_short_ones_are_not():
    refined = refine(irregular(), 0.3)
    np.testing.assert_allclose(refined.data.times[0], [0.0, 0.1, 0.4, 0.7, 1.0], rtol=1e-14)
    np.testing.assert_array_equal(refined.data.times[1], [2.0, 2.3, 2.3, 2.3, 2.3])
    assert np.diff(refined.data.times, axis=1).max() <= 0.3 + 1e-12


def test_readings_and_inputs_are_where_they_were_and_inputs_are_linear_between():
    data = irregular()
    refined = refine(data, 0.3)
    for i in range(2):
        length = data.lengths[i]
        rows = refined.rows[data.condition[i], :length]
        np.testing.assert_array_equal(refined.data.times[i, rows], data.times[i, :length])
        np.testing.assert_array_equal(refined.data.outputs[i, rows], data.outputs[i, :length])
        np.testing.assert_array_equal(refined.data.mask[i, rows], data.mask[i, :length])
        np.testing.assert_array_equal(refined.data.inputs[i, rows], data.inputs[i, :length])
    assert refined.data.mask.sum() == data.mask.sum()
    np.testing.assert_allclose(refined.data.inputs[0, :, 0], [0, 1, 4, 7, 10], rtol=1e-12)


def test_a_grid_that_is_fine_enough_is_left_alone():
    data = irregular()
    refined = refine(data, 5.0)
    np.testing.assert_array_equal(refined.data.times, data.times)
    np.testing.assert_array_equal(refined.data.outputs, data.outputs)


def test_refining_keeps_the_replicates_of_a_condition_together():
    data = Dataset.from_arrays([0.0, 1.0, 4.0], np.arange(6.0).reshape(2, 3))
    refined = refine(data, 1.0).data
    assert refined.num_conditions == 1 and refined.num_times == 5
    np.testing.assert_array_equal(refined.outputs[refined.mask], data.outputs.ravel())


def test_a_trajectory_begins_where_all_its_outputs_were_read():
    first = {"times": [0.0, 1.0, 2.0, 3.0], "outputs": [[1, np.nan], [2, 5], [np.nan, 6], [4, 7]]}
    second = {"times": [0.0, 0.5, 2.0], "outputs": [[7, 8], [9, 10], [11, 12]]}
    data = from_first_complete_row(Dataset.from_list([first, second]))
    np.testing.assert_array_equal(data.times, [[1, 2, 3], [0, 0.5, 2]])
    started = with_observed_start(data)
    np.testing.assert_array_equal(started.initial, [[2, 5], [7, 8]])
    assert not started.mask[:, 0].any()
    np.testing.assert_array_equal(started.outputs[0][started.mask[0]], [6, 4, 7])


@pytest.mark.parametrize("outputs", [[[1, np.nan], [np.nan, 2], [3, np.nan]], [[1, np.nan], [2, np.nan], [3, 4]]])
def test_without_a_complete_row_early_on_a_trajectory_stays_whole(outputs):
    other = {"times": [0.0, 1.0], "outputs": [[1.0, 2.0], [3.0, 4.0]]}
    data = Dataset.from_list([{"times": [0.0, 1.0, 2.0], "outputs": outputs}, other])
    np.testing.assert_array_equal(from_first_complete_row(data).times, data.times)


def test_replicates_share_their_times_so_they_stay_whole():
    data = Dataset.from_arrays([0.0, 1.0, 2.0], [[np.nan, 1.0, 2.0], [3.0, 4.0, 5.0]])
    assert data.num_conditions == 1
    np.testing.assert_array_equal(from_first_complete_row(data).times, data.times)
