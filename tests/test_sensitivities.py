"""Jacobians by forward sensitivities equal those of plain differentiation, and cost fewer passes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from langenode.models import (
    Adaptive,
    Forwards,
    Heun,
    NeuralODE,
    hyperelastic_potential,
    internal_variable_law,
    neural_ode,
    tensor_law,
)
from langenode.models.sensitivities import LARGEST_STATE, _scan, at_every_time, evolve
from problems import programs_within

KEY = jax.random.key(0)


class Decay(eqx.Module):
    rate: jax.Array

    def __call__(self, hidden, inputs):
        return -self.rate * hidden + inputs


def ode(**more):
    return neural_ode(
        num_inputs=1, num_outputs=2, num_hidden=2, dynamics_layers=(4,), observation_layers=(3,), key=KEY, **more
    )


def potential():
    law = hyperelastic_potential((3, 3), "softplus", convex=False, strain_scale=0.1, key=KEY)
    return NeuralODE(None, law, num_hidden=0)


def flow():
    return internal_variable_law(
        num_hidden=2, layers=(3,), rate_potential=False, strain_scale=0.1, rate_scale=1.0, key=KEY
    )


def branches():
    return tensor_law(
        num_branches=2,
        correction_layers=(3,),
        strain_scale=0.1,
        shortest=0.1,
        longest=1.0,
        bulk_ratio=2.0,
        key=KEY,
    )


# A model, its number of inputs and its start.
MODELS = {
    "ode": (ode, 1, (0.3, -0.2)),
    "substeps": (lambda: ode(solver=Heun(substeps=3)), 1, (0.3, -0.2)),
    "trainable start": (lambda: ode(trainable_initial=True), 1, None),
    "adaptive": (lambda: ode(solver=Adaptive()), 1, (0.3, -0.2)),
    "no dynamics": (
        lambda: neural_ode(num_inputs=1, num_outputs=2, num_hidden=0, observation_layers=(3,), key=KEY),
        1,
        None,
    ),
    "more states than weights": (lambda: NeuralODE(Decay(jnp.ones(())), num_hidden=2), 1, (0.3, -0.2)),
    "potential": (potential, 3, None),
    "internal variables": (flow, 3, None),
    "tensor law": (branches, 3, None),
}


def outputs_by_weights(model, inputs, initial):
    """Outputs of two trajectories as a function of the weights, and the weights."""
    arrays, static = eqx.partition(model, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(arrays)
    times = jnp.linspace(0.0, 1.0, inputs.shape[1])

    def outputs(flat):
        whole = eqx.combine(unravel(flat), static)
        return jax.vmap(lambda x: whole(times, x, initial))(inputs)

    return outputs, flat


SLOW = ("adaptive", "internal variables", "tensor law", "potential", "trainable start")  # to compile


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in MODELS])
def test_jacobians_equal_those_of_plain_differentiation(name):
    make, num_inputs, start = MODELS[name]
    inputs = 0.05 * jax.random.normal(KEY, (2, 6, num_inputs))
    outputs, flat = outputs_by_weights(make(), inputs, None if start is None else jnp.array(start))
    # The checkpoints of adaptive steps support reverse mode only.
    modes = (jax.jacrev,) if name == "adaptive" else (jax.jacrev, jax.jacfwd)
    plain, *carried = jax.jit(lambda w: [jax.jacrev(outputs)(w), *(mode(Forwards(outputs))(w) for mode in modes)])(flat)
    scale = np.abs(plain).max()
    assert scale > 0.0
    for found in carried:
        np.testing.assert_allclose(found, plain, rtol=1e-9, atol=1e-10 * scale)
    np.testing.assert_array_equal(jax.jit(Forwards(outputs))(flat), jax.jit(outputs)(flat))


def test_an_input_that_depends_on_weights_is_differentiated_plainly():
    def outputs(w):
        return evolve(lambda state, row: w[0] * state + jnp.sin(row), jnp.ones(1), w[1] * jnp.arange(1.0, 5.0)[:, None])

    w = jnp.array([0.5, 0.3])
    carried, plain = (jax.jit(jax.jacfwd(f))(w) for f in (Forwards(outputs), outputs))
    np.testing.assert_allclose(carried, plain, rtol=1e-12)


def test_a_step_is_differentiated_once_for_all_weights():
    """One backward pass per state: 40 weights do not cost 40 tangents of the sine."""

    def outputs(w):
        states = evolve(lambda state, row: state + jnp.sin(w * state * row).sum()[None], jnp.ones(1), jnp.arange(3.0))
        return at_every_time(lambda state: jnp.sin(w * state).sum(), states)

    plain = str(jax.make_jaxpr(jax.jacfwd(outputs))(jnp.ones(40)))
    carried = str(jax.make_jaxpr(jax.jacfwd(Forwards(outputs)))(jnp.ones(40)))
    assert "f64[40,3,40] = mul" in plain  # forty tangents of forty sines, at three times
    for squares in ("f64[40,40] = mul", "f64[40,3,40] = mul"):
        assert squares not in carried


def test_sensitivities_are_carried_only_where_asked_for():
    """A model called plainly, before or after, carries no Jacobian through its steps."""
    outputs, flat = outputs_by_weights(ode(), jnp.ones((2, 6, 1)), jnp.ones(2))
    before = str(jax.make_jaxpr(jax.jacfwd(outputs))(flat))
    assert str(jax.make_jaxpr(jax.jacfwd(Forwards(outputs)))(flat)) != before
    assert str(jax.make_jaxpr(jax.jacfwd(outputs))(flat)) == before


def driven(w, run):
    """Two states whose step, start and drive depend on the weights, by `evolve` or by a plain scan."""
    drive = (w[1] * jnp.arange(5.0)[:, None], jnp.arange(5))
    return run(
        lambda h, row: h + 0.1 * w[2] * jnp.tanh(w[0] * h[::-1] + row[0] + row[1]), jnp.stack([w[0], 1.0]), drive
    )


@pytest.mark.parametrize(
    "derivative",
    [jax.jacrev, jax.jacfwd, jax.hessian, lambda f: jax.jacrev(jax.jacrev(f))],
    ids=["reverse", "forward", "hessian", "reverse twice"],
)
def test_derivatives_of_all_steps_at_once_are_those_of_a_plain_scan(derivative):
    w = jnp.array([0.5, 0.3, -0.2])
    np.testing.assert_array_equal(*(jax.jit(driven, static_argnums=1)(w, run) for run in (evolve, _scan)))
    found, plain = (jax.jit(derivative(lambda w, run=run: driven(w, run)))(w) for run in (evolve, _scan))
    assert np.abs(plain).max() > 0.1
    np.testing.assert_allclose(found, plain, rtol=1e-12, atol=1e-14)


EVOLVING = [n for n in MODELS if n not in ("adaptive", "no dynamics", "potential")]


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in EVOLVING])
def test_gradients_of_many_samples_are_those_of_a_plain_scan(name, monkeypatch):
    """One set of weights per sample and two trajectories each, as in training."""
    make, num_inputs, start = MODELS[name]
    inputs = 0.05 * jax.random.normal(KEY, (2, 6, num_inputs))
    outputs, flat = outputs_by_weights(make(), inputs, None if start is None else jnp.array(start))
    samples = flat + 0.1 * jax.random.normal(KEY, (3, flat.size))

    def value_and_gradient(samples):
        return jax.value_and_grad(lambda samples: jnp.sum(jnp.sin(jax.vmap(outputs)(samples))))(samples)

    value, gradient = jax.jit(value_and_gradient)(samples)
    monkeypatch.setattr("langenode.models.sensitivities.LARGEST_STATE", 0)
    plain_value, plain = jax.jit(lambda samples: value_and_gradient(samples))(samples)
    np.testing.assert_allclose(value, plain_value, rtol=1e-12)
    np.testing.assert_allclose(gradient, plain, rtol=1e-10, atol=1e-10 * np.abs(plain).max())


def carried_shapes(jaxpr):
    """The shapes of everything that the loops of a program carry from step to step."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "scan":
            first = equation.params["num_consts"]
            yield from (v.aval.shape for v in equation.invars[first : first + equation.params["num_carry"]])
        for part in programs_within(equation):
            yield from carried_shapes(part)


def test_the_gradient_of_the_weights_is_summed_once_after_all_steps():
    def loss(w, run):
        return run(lambda h, row: h + jnp.sin(w * h * row).sum()[None], jnp.ones(1), jnp.arange(3.0)).sum()

    programs = {run: jax.make_jaxpr(jax.grad(loss), 1)(jnp.ones(40), run) for run in (evolve, _scan)}
    shapes = {run: set(carried_shapes(program.jaxpr)) for run, program in programs.items()}
    assert (40,) in shapes[_scan]
    assert shapes[evolve] == {(1,)}


def test_a_trajectory_of_a_single_time_has_no_step():
    outputs, flat = outputs_by_weights(ode(trainable_initial=True), jnp.ones((2, 1, 1)), None)
    found = jax.jit(jax.grad(lambda w: outputs(w).sum()))(flat)
    assert np.isfinite(found).all()
    assert np.abs(found).max() > 0.0


def test_many_states_are_differentiated_step_by_step():
    """The slope of a step by its state has as many columns as there are states."""

    def states(h):
        return evolve(lambda h, row: jnp.sin(h) * row, h, jnp.arange(1.0, 4.0))

    few, many = (str(jax.make_jaxpr(states)(jnp.ones(num))) for num in (LARGEST_STATE, LARGEST_STATE + 1))
    assert "custom_jvp" in few
    assert "custom_jvp" not in many


@pytest.mark.parametrize("kinds", [(np.float32, np.float64), (np.float64, np.float32)])
def test_weights_and_states_may_have_different_precision(kinds):
    """A user's 64-bit constant gives 64-bit outputs from 32-bit weights, and vice versa."""
    kind_weights, kind_states = kinds

    def outputs(w):
        states = evolve(
            lambda h, _: (h + 0.1 * jnp.sin(w[0] * h)).astype(kind_states), jnp.ones(2, kind_states), jnp.arange(3.0)
        )
        return at_every_time(lambda h: (w[1] * h).astype(kind_states), states)

    w = jnp.array([0.5, 0.3], kind_weights)
    ways = (jax.jacfwd(outputs), jax.jacfwd(Forwards(outputs)), jax.jacrev(Forwards(outputs)))
    plain, carried, backwards = jax.jit(lambda w: [way(w) for way in ways])(w)
    assert carried.dtype == plain.dtype
    np.testing.assert_allclose(carried, plain, rtol=1e-5)
    np.testing.assert_allclose(backwards, plain, rtol=1e-5)
