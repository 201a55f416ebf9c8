"""Scaling: standardised at any magnitude, inverted, stored, refused where it does not fit."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from datasets import assert_same, crossed, grid_data, refused
from langenode.data import DataError, Dataset, Scaling


@pytest.mark.parametrize("factor", [1e-200, 1e-12, 1.0, 1e12, 1e200])
@pytest.mark.parametrize("offset", [0.0, 3.0, 1e3])
def test_standardise_at_any_magnitude(factor, offset):
    rng = np.random.default_rng(1)
    outputs = factor * (offset + rng.normal(size=(6, 7, 2)))
    outputs[0, 2] = np.nan
    data = Dataset.from_arrays(factor * np.arange(7.0), outputs, inputs=factor * rng.normal(size=(6, 7, 1)))
    scaling = Scaling.standardise(data, initial_like_outputs=False)
    scaled = data.scaled(scaling)
    for column in range(2):
        observed = scaled.outputs[..., column][scaled.mask[..., column]]
        np.testing.assert_allclose([observed.mean(), observed.std()], [0, 1], atol=1e-10)
    np.testing.assert_allclose([scaled.inputs.mean(), scaled.inputs.std()], [0, 1], atol=1e-10)
    np.testing.assert_allclose(scaled.times[0], np.arange(7.0) / 6, rtol=1e-15)
    back = np.where(data.mask, scaling.unscale_outputs(scaled.outputs), 0.0)
    np.testing.assert_allclose(back, data.outputs, rtol=1e-12, atol=1e-15 * offset * factor)
    np.testing.assert_allclose(scaling.slope_at(data.outputs[0]) * scaling.output_scale, np.ones((7, 2)), rtol=1e-15)


def test_a_small_spread_about_a_large_mean_is_no_constant():
    rng = np.random.default_rng(2)
    data = Dataset.from_arrays(np.arange(200.0), 1 + 1e-12 * rng.normal(size=(1, 200)))
    scaling = Scaling.standardise(data, initial_like_outputs=False)
    np.testing.assert_allclose(scaling.output_scale, 1e-12, rtol=0.2)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e12, 1e-12, 1e308])
def test_a_constant_column_gets_scale_one(value):
    data = Dataset.from_arrays(np.arange(7.0), np.full((3, 7), value), inputs=np.full((3, 7), value))
    scaling = Scaling.standardise(data, initial_like_outputs=False)
    assert scaling.output_scale == 1 and scaling.input_scale == 1
    assert np.all(data.scaled(scaling).outputs == 0)


def test_rounding_noise_is_no_spread():
    data = Dataset.from_arrays([0.0, 1.0], [[0.3, 0.1 + 0.2]])
    assert Scaling.standardise(data, initial_like_outputs=False).output_scale == 1


def test_standardise_ignores_padding_missing_columns_and_handles_one_point():
    data = Dataset.from_list(
        [
            {"times": [5.0, 9.0], "outputs": [[1.0, np.nan], [3.0, np.nan]], "inputs": [0.0, 2.0]},
            {"times": [6.0], "outputs": [[2.0, np.nan]], "inputs": [1.0]},
        ]
    )
    scaling = Scaling.standardise(data, initial_like_outputs=False)
    assert scaling.time_scale == 4.0
    np.testing.assert_allclose(scaling.input_scale, np.std([0, 2, 1]), rtol=1e-15)
    np.testing.assert_array_equal(scaling.output_shift, [2.0, 0.0])
    np.testing.assert_allclose(scaling.output_scale, np.array([np.std([1, 3, 2]), 1.0]), rtol=1e-15)
    np.testing.assert_array_equal(data.scaled(scaling).lengths, [2, 1])
    assert Scaling.standardise(data.select(1), initial_like_outputs=False).time_scale == 1.0


def test_initial_is_scaled_like_the_outputs_if_asked():
    rng = np.random.default_rng(3)
    outputs = 5 + 2 * rng.normal(size=(4, 6, 2))
    data = Dataset.from_arrays(np.arange(6.0), outputs, initial=outputs[:, 0])
    like = data.scaled(Scaling.standardise(data, initial_like_outputs=True))
    np.testing.assert_array_equal(like.initial, like.outputs[:, 0])
    alone = data.scaled(Scaling.standardise(data, initial_like_outputs=False))
    np.testing.assert_array_equal(alone.initial, data.initial)
    refused("2 for 3 columns of initial", Scaling.standardise, crossed(), initial_like_outputs=True)


def test_identity_changes_nothing_and_a_changed_column_loses_its_unit():
    data = crossed()
    same = data.scaled(Scaling.identity(data))
    assert_same(same, data)
    assert same.units == data.units
    scaling = dataclasses.replace(Scaling.identity(data), output_scale=np.array([2.0, 1.0]))
    assert data.scaled(scaling).units == {"time": "s"}


def test_scaling_is_stored_as_plain_numbers():
    data = crossed()
    scaling = Scaling.standardise(data, initial_like_outputs=False)
    again = Scaling.from_dict(json.loads(json.dumps(scaling.to_dict())))
    for field in dataclasses.fields(Scaling):
        np.testing.assert_array_equal(getattr(again, field.name), getattr(scaling, field.name))
    assert again.initial_scale.shape == (3,)
    assert Scaling.from_dict(Scaling.identity(grid_data(1)).to_dict()).input_scale.shape == (0,)


def test_scaling_refuses():
    data = crossed()
    plain = Scaling.identity(data).to_dict()
    refused(
        "missing or unknown: .'time_scale'",
        Scaling.from_dict,
        {k: v for k, v in plain.items() if k != "time_scale"},
    )
    refused("must be positive", Scaling.from_dict, plain | {"output_scale": [0.0, 1.0]})
    refused("must be a vector of finite numbers", Scaling.from_dict, plain | {"output_shift": [np.nan, 1.0]})
    refused("one shift and one scale", Scaling.from_dict, plain | {"output_shift": [1.0]})
    refused("must be one number", Scaling.from_dict, plain | {"time_scale": [1.0]})
    one = {"output_shift": [0.0], "output_scale": [1.0], "output_knee": [0.0], "output_positive": [0.0]}
    narrow = Scaling.from_dict(plain | one)
    refused("1 for 2 columns of output", data.scaled, narrow)
    refused("no trajectory", Scaling.standardise, data.select([]), initial_like_outputs=False)


def test_unscale_takes_any_leading_axes_and_jax_arrays():
    scaling = dataclasses.replace(Scaling.identity(crossed()), output_shift=np.array([1.0, 2.0]))
    assert np.asarray(scaling.unscale_outputs(jnp.zeros((3, 4, 5, 2)))).tolist()[2][3][4] == [1.0, 2.0]
    bent = dataclasses.replace(scaling, output_knee=np.array([0.5, 0.0]), output_positive=np.array([0.0, 1.0]))
    found = jax.jit(bent.unscale_outputs)(jnp.array([[0.0, -3.0], [-2.0, 1.0]]))
    np.testing.assert_allclose(found, [[0.5 * np.expm1(1.0), 0.0], [0.0, 3.0]], rtol=1e-6)


def test_a_common_scale_keeps_the_relations_between_outputs_and_leaves_inputs_alone():
    rng = np.random.default_rng(0)
    outputs, inputs = rng.normal(2.0, 3.0, size=(4, 5, 3)), rng.normal(size=(4, 5, 2))
    data = Dataset.from_arrays(np.arange(5.0) * 2.0, outputs, inputs=inputs)
    scaled = data.scaled(Scaling.common(data))
    np.testing.assert_allclose(scaled.outputs, outputs / outputs.std(), rtol=1e-12)
    np.testing.assert_array_equal(scaled.inputs, inputs)
    assert scaled.times[0, -1] == 1.0
    with pytest.raises(DataError, match="no trajectory"):
        Scaling.common(data.select([]))


def test_a_knee_is_a_logarithmic_scale_that_ends_at_zero():
    rng = np.random.default_rng(0)
    outputs = np.exp(rng.normal(size=(5, 6, 3)))
    data = Dataset.from_arrays(np.arange(6.0), outputs, initial=outputs[:, 0])
    knees, positive = np.array([0.1, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])
    scaling = Scaling.standardise(data, initial_like_outputs=True, knees=knees, positive=positive)
    scaled = data.scaled(scaling)
    expected = np.log(1 + outputs[..., 0] / 0.1)
    np.testing.assert_allclose(scaled.outputs[..., 0], (expected - expected.mean()) / expected.std(), rtol=1e-9)
    assert scaled.initial is not None
    np.testing.assert_allclose(scaled.initial, scaled.outputs[:, 0], rtol=1e-12)
    np.testing.assert_allclose(scaling.unscale_outputs(scaled.outputs), outputs, rtol=1e-12)
    # Far below, only the third is negative; a number that has left all bounds stays one.
    np.testing.assert_array_equal(scaling.unscale_outputs(np.full(3, -50.0)) < 0, [False, False, True])
    assert np.all(np.isfinite(scaling.unscale_outputs(np.full(3, 1e3))))
    step = 1e-6
    slope = (scaling.scale_outputs(outputs + step) - scaling.scale_outputs(outputs - step)) / (2 * step)
    np.testing.assert_allclose(scaling.slope_at(outputs), slope, rtol=1e-7)
    assert scaling.scale_outputs(np.array([-1.0, 1.0, 1.0]))[0] == scaling.scale_outputs(np.zeros(3))[0]


def test_a_stored_scaling_has_its_knees_and_an_earlier_one_none():
    data = Dataset.from_arrays(np.arange(4.0), np.random.default_rng(0).uniform(1, 2, size=(3, 4, 2)))
    scaling = Scaling.standardise(data, initial_like_outputs=False, knees=np.array([0.3, 0.0]))
    stored = scaling.to_dict()
    again = Scaling.from_dict(stored)
    assert again.to_dict() == stored and again.is_positive.tolist() == [True, False]
    earlier = {k: v for k, v in stored.items() if k not in ("output_knee", "output_positive", "initial_knee")}
    assert not Scaling.from_dict(earlier).is_positive.any()
    refused("output_knee of a scaling must be", Scaling.from_dict, stored | {"output_knee": [-1.0, 0.0]})
    refused("output_knee of a scaling must be", Scaling.from_dict, stored | {"output_knee": [1.0]})
