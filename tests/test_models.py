"""Models: exact solutions, orders of convergence, optional parts, gradients, and the paper's parameter counts."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langenode.config import ConfigError
from langenode.experiments import EXPERIMENTS
from langenode.fitting import build
from langenode.fitting.choose import configure
from langenode.inference.partition import Partition
from langenode.models import MLP, Adaptive, Heun, NeuralODE, OnConcatenation, neural_ode, num_parameters
from langenode.models.networks import ACTIVATIONS, scale_last_layer


def relaxation(hidden, inputs):
    """dh/dt = -h + x."""
    return -hidden + inputs


def logistic(hidden, inputs):
    """dh/dt = h (1 - h), whatever the input."""
    return hidden * (1.0 - hidden) + 0.0 * inputs.sum()


def driven_by_sine(times):
    """The solution of dh/dt = -h + sin t from h(0) = 1."""
    return 0.5 * (np.sin(times) - np.cos(times)) + 1.5 * np.exp(-times)


def driven_piecewise(times, inputs, initial, rate=1.0):
    """The exact solution of dh/dt = rate (x - h) where x is linear between the times."""
    hidden = [initial]
    for n in range(len(times) - 1):
        dt = times[n + 1] - times[n]
        slope = (inputs[n + 1] - inputs[n]) / dt
        # On the interval h = x - slope / rate + decay exp(-rate s).
        decay = hidden[-1] - inputs[n] + slope / rate
        hidden.append(inputs[n + 1] - slope / rate + decay * np.exp(-rate * dt))
    return np.array(hidden)


def fitted_order(numbers, errors):
    return -np.polyfit(np.log(numbers), np.log(errors), 1)[0]


@eqx.filter_jit
def run(solver, dynamics, initial, times, inputs):
    return solver(dynamics, initial, times, inputs)


def solve(solver, dynamics, initial, times, inputs, padded_to=0):
    """Return the hidden state at the times; padding (where the state is constant) avoids recompilation."""
    num = len(times)
    times, inputs = (np.pad(column, (0, max(padded_to - num, 0)), "edge") for column in (times, inputs))
    return np.asarray(run(solver, dynamics, np.array([initial]), times, inputs[:, None]))[:num, 0]


GRIDS = {
    "uniform": lambda num: np.linspace(0.0, 2.0, num + 1),
    "graded": lambda num: 2.0 * np.linspace(0.0, 1.0, num + 1) ** 1.7,
    "alternating": lambda num: np.linspace(0.0, 2.0, num + 1) + 0.3 / num * (-1.0) ** np.arange(num + 1),
}


# --- Heun


@pytest.mark.parametrize(("rule", "order"), [("trapezoid", 2.0), ("paper", 1.0)])
@pytest.mark.parametrize("grid", GRIDS)
def test_order_with_a_varying_input(rule, order, grid):
    numbers, errors = [16, 32, 64, 128], []
    for num in numbers:
        times = GRIDS[grid](num)
        hidden = solve(Heun(input_rule=rule), relaxation, driven_by_sine(times[0]), times, np.sin(times), 129)
        errors.append(np.abs(hidden - driven_by_sine(times)).max())
    assert abs(fitted_order(numbers, errors) - order) < 0.4
    assert errors[-1] < errors[0]


def test_paper_and_trapezoid_rules_agree_for_a_constant_input():
    times, inputs = np.linspace(0.0, 1.0, 9), np.full(9, 0.7)
    ours, theirs = (solve(Heun(3, rule), relaxation, 0.2, times, inputs) for rule in ("trapezoid", "paper"))
    np.testing.assert_allclose(ours, theirs, rtol=1e-14)


def test_order_in_substeps_for_a_constant_input():
    times = np.array([0.0, 0.4, 1.5, 2.0])
    exact = 1.0 / (1.0 + 4.0 * np.exp(-times))
    numbers = [2, 4, 8, 16]
    errors = [np.abs(solve(Heun(n), logistic, 0.2, times, np.ones(4)) - exact).max() for n in numbers]
    assert abs(fitted_order(numbers, errors) - 2.0) < 0.4


@pytest.mark.parametrize(("rule", "order"), [("trapezoid", 2.0), ("paper", 1.0)])
def test_order_in_substeps_for_an_input_linear_in_each_interval(rule, order):
    times, inputs = np.array([0.0, 0.4, 1.5, 2.0]), np.array([0.0, 1.0, -2.0, 0.5])
    exact = driven_piecewise(times, inputs, 0.3)
    numbers = [2, 4, 8, 16]
    errors = [np.abs(solve(Heun(n, rule), relaxation, 0.3, times, inputs) - exact).max() for n in numbers]
    assert abs(fitted_order(numbers, errors) - order) < 0.4


@pytest.mark.parametrize("rule", ["trapezoid", "paper"])
def test_substeps_are_steps_on_a_finer_grid(rule):
    times, inputs = np.array([0.0, 0.4, 1.5, 2.0]), np.array([0.0, 1.0, -2.0, 0.5])
    fine = np.interp(np.arange(13) / 4, np.arange(4), times)
    on_fine = solve(Heun(1, rule), relaxation, 0.3, fine, np.interp(fine, times, inputs))
    np.testing.assert_allclose(solve(Heun(4, rule), relaxation, 0.3, times, inputs), on_fine[::4], rtol=1e-12)


@pytest.mark.parametrize("rule", ["trapezoid", "paper"])
def test_heun_is_the_printed_scheme_with_its_step(rule):
    rng = np.random.default_rng(0)
    times, inputs = np.cumsum(rng.uniform(0.1, 0.5, 7)), rng.normal(size=7)
    hidden = [0.4]
    rate = lambda h, x: np.sin(h) + h * x  # noqa: E731
    for n in range(6):
        dt = times[n + 1] - times[n]
        first = rate(hidden[-1], inputs[n + 1] if rule == "paper" else inputs[n])
        second = rate(hidden[-1] + dt * first, inputs[n + 1])
        hidden.append(hidden[-1] + 0.5 * dt * (first + second))
    ours = solve(Heun(input_rule=rule), lambda h, x: jnp.sin(h) + h * x, 0.4, times, inputs)
    np.testing.assert_allclose(ours, hidden, rtol=1e-12)


@pytest.mark.parametrize("substeps", [1, 3])
def test_one_time_gives_the_start(substeps):
    np.testing.assert_array_equal(solve(Heun(substeps), relaxation, 0.3, np.array([1.5]), np.array([2.0])), [0.3])


def test_heun_stands_still_in_padding():
    times, inputs = np.array([0.0, 0.4, 1.0]), np.array([0.0, 1.0, -2.0])
    padded = solve(Heun(2), relaxation, 0.3, np.r_[times, 1.0, 1.0], np.r_[inputs, -2.0, -2.0])
    plain = solve(Heun(2), relaxation, 0.3, times, inputs)
    np.testing.assert_array_equal(padded, np.r_[plain, plain[-1], plain[-1]])


# --- Adaptive

KINKED = np.array([0.0, 0.4, 1.5, 1.6, 3.0]), np.array([0.0, 1.0, -2.0, 0.5, 0.7])


def adjustable(hidden, inputs):
    """dh/dt = rate (x - h) + growth h^2: one compiled program for several problems."""
    x, rate, growth = inputs
    return rate * (x - hidden) + growth * hidden**2


def solve_adjustable(times, inputs, initial, *, rate=1.0, growth=0.0, stiff=False):
    columns = np.column_stack([inputs, np.full(5, rate), np.full(5, growth)])
    solver = Adaptive(rtol=1e-9, atol=1e-9, stiff=stiff, max_steps=1000)
    return np.asarray(run(solver, adjustable, np.array([initial]), times, columns))[:, 0]


@pytest.mark.parametrize("num", [pytest.param(5, marks=[pytest.mark.slow]), 3, 1])
def test_adaptive_keeps_its_tolerance_also_with_padding(num):
    times, inputs = KINKED
    exact = driven_piecewise(times, inputs, 0.3)
    padding = np.arange(5).clip(max=num - 1)
    hidden = solve_adjustable(times[padding], inputs[padding], 0.3)
    # The tolerance is per step; the problem contracts, so errors of only a few steps accumulate.
    np.testing.assert_allclose(hidden, exact[padding], rtol=0.0, atol=1e-8)


def test_stiff_solver_takes_a_stiff_problem_in_few_steps():
    exact = driven_piecewise(*KINKED, 1.0, rate=1e5)
    stiff = solve_adjustable(*KINKED, 1.0, rate=1e5, stiff=True)
    np.testing.assert_allclose(stiff, exact, rtol=0.0, atol=1e-6)
    explicit = solve_adjustable(*KINKED, 1.0, rate=1e5)
    assert not np.isfinite(explicit[-1])


def test_adaptive_divergence_gives_non_finite_outputs_and_no_exception():
    times = np.linspace(0.0, 2.0, 5)
    hidden = solve_adjustable(times, np.zeros(5), 1.0, rate=0.0, growth=1.0)
    np.testing.assert_allclose(hidden[:2], [1.0, 2.0], rtol=1e-7)  # h = 1 / (1 - t)
    assert not np.isfinite(hidden[-1])


def test_adaptive_needs_no_steps_at_the_times_without_inputs():
    times = np.linspace(0.0, 1.0, 5)
    hidden = run(Adaptive(max_steps=16), lambda h, x: -h, np.ones(1), times, np.zeros((5, 0)))
    np.testing.assert_allclose(hidden[:, 0], np.exp(-times), atol=1e-4)


@pytest.mark.slow
def test_adaptive_gradient_is_exact_and_finite_with_padding():
    times = jnp.array([0.0, 0.4, 1.5, 1.5])

    def total(rate):
        hidden = Adaptive(rtol=1e-9, atol=1e-11)(lambda h, x: -rate * h, jnp.ones(1), times, jnp.zeros((4, 1)))
        return hidden.sum()

    exact = -jnp.sum(times * jnp.exp(-0.7 * times))
    np.testing.assert_allclose(jax.jit(jax.grad(total))(0.7), exact, rtol=1e-6)


# --- parts, start and users' own code


def test_without_dynamics_the_model_is_a_map():
    network = MLP((2, 4, 3), key=jax.random.key(0))
    model = NeuralODE(None, OnConcatenation(network), num_hidden=0)
    times, inputs = jnp.linspace(0.0, 1.0, 5), jax.random.normal(jax.random.key(1), (5, 2))
    outputs = eqx.filter_jit(model)(times, inputs)
    np.testing.assert_allclose(outputs, jax.vmap(network)(inputs), rtol=1e-14)
    np.testing.assert_array_equal(outputs[::-1], eqx.filter_jit(model)(times, inputs[::-1]))
    assert model.hidden(times, inputs).shape == (5, 0)


def test_without_observation_the_state_is_seen():
    model = NeuralODE(relaxation, num_hidden=1)
    times, inputs = jnp.asarray(np.linspace(0.0, 1.0, 5)), jnp.asarray(np.ones((5, 1)))
    np.testing.assert_array_equal(model(times, inputs), model.hidden(times, inputs))


def test_start_is_the_trainable_one_else_the_given_one_else_zero():
    times, inputs, given = jnp.linspace(0.0, 1.0, 3), jnp.ones((3, 1)), jnp.array([4.0])
    free = NeuralODE(relaxation, num_hidden=1)
    trainable = NeuralODE(relaxation, num_hidden=1, initial=jnp.array([2.0]))
    assert free(times, inputs)[0, 0] == 0.0
    assert free(times, inputs, given)[0, 0] == 4.0
    assert trainable(times, inputs)[0, 0] == trainable(times, inputs, given)[0, 0] == 2.0
    gradient = eqx.filter_grad(lambda m: m(times, inputs, given)[-1, 0])(trainable)
    # Heun's factor for dh/dt = -h is 1 - dt + dt^2 / 2 per step.
    np.testing.assert_allclose(gradient.initial, [(1.0 - 0.5 + 0.125) ** 2], rtol=1e-12)


def test_plain_functions_serve_as_parts():
    model = NeuralODE(relaxation, lambda h, x: jnp.concatenate([h**2, 3.0 * x]), num_hidden=1, solver=Heun(64))
    times, inputs = np.array([0.0, 0.5, 2.0]), np.array([0.3, 1.0, -1.0])
    outputs = eqx.filter_jit(model)(jnp.asarray(times), jnp.asarray(inputs)[:, None], jnp.array([0.7]))
    np.testing.assert_allclose(outputs[:, 0], driven_piecewise(times, inputs, 0.7) ** 2, atol=1e-3)
    np.testing.assert_allclose(outputs[:, 1], 3.0 * inputs, rtol=1e-14)
    assert num_parameters(model) == 0


def test_users_module_with_weights_is_trained_like_a_network():
    class Decay(eqx.Module):
        rate: jax.Array

        def __call__(self, hidden, inputs):
            return -self.rate * hidden

    model = NeuralODE(Decay(jnp.array(0.8)), num_hidden=1, solver=Heun(200))
    times = jnp.array([0.0, 1.0])
    slope = eqx.filter_grad(lambda m: m(times, jnp.zeros((2, 0)), jnp.ones(1))[-1, 0])(model).dynamics.rate
    np.testing.assert_allclose(slope, -np.exp(-0.8), rtol=1e-4)
    assert num_parameters(model) == 1


def test_the_key_changes_nothing_in_a_deterministic_model():
    model = NeuralODE(relaxation, num_hidden=1)
    times, inputs = jnp.asarray(np.linspace(0.0, 1.0, 5)), jnp.asarray(np.ones((5, 1)))
    np.testing.assert_array_equal(model(times, inputs), model(times, inputs, key=jax.random.key(3)))


def test_gradients_equal_finite_differences():
    model = neural_ode(
        num_inputs=1,
        num_outputs=2,
        num_hidden=2,
        dynamics_layers=(3,),
        observation_layers=(3,),
        trainable_initial=True,
        solver=Heun(2),
        key=jax.random.key(2),
    )
    partition = Partition.of(model)
    times = jnp.array([0.0, 0.2, 0.7, 1.0])
    inputs = jnp.sin(3.0 * times)[:, None]
    value = jax.jit(lambda w: jnp.sum(jnp.cos(partition.combine(model, w)(times, inputs))))
    weights = partition.flatten(model) + 0.1
    gradient = jax.jit(jax.grad(value))(weights)
    step = 1e-5
    shifts = step * jnp.eye(partition.dim)
    values = jax.jit(jax.vmap(value))(jnp.concatenate([weights + shifts, weights - shifts]))
    differences = (values[: partition.dim] - values[partition.dim :]) / (2.0 * step)
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-8)
    assert jnp.abs(gradient).min() > 0.0


# --- networks


@pytest.mark.parametrize("activation", ["tanh", "softplus"])
def test_network_is_the_printed_formula(activation):
    network = MLP((2, 3, 4, 2), activation, key=jax.random.key(1))
    x = np.array([0.3, -1.2])
    expected = x
    for number, (weight, bias) in enumerate(
        (np.asarray(layer.weight), np.asarray(layer.bias)) for layer in network.layers
    ):
        expected = weight @ (expected if number == 0 else FORMULAS[activation](expected)) + bias
    np.testing.assert_allclose(network(jnp.asarray(x)), expected, rtol=1e-12)
    assert network.sizes == (2, 3, 4, 2)


FORMULAS = {
    "tanh": np.tanh,
    "softplus": lambda x: np.log1p(np.exp(x)),
    "silu": lambda x: x / (1.0 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0.0),
    "elu": lambda x: np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0))),
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "sin": np.sin,
}


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_activations_are_what_their_names_say(activation):
    x = np.linspace(-3.0, 3.0, 13)
    found = ACTIVATIONS[activation](jnp.asarray(x))
    np.testing.assert_allclose(found, FORMULAS[activation](x), rtol=1e-12, atol=1e-15)


def test_a_single_layer_is_affine():
    network = MLP((2, 1), key=jax.random.key(0))
    a, b = jnp.array([0.3, -1.2]), jnp.array([2.0, 0.5])
    np.testing.assert_allclose(network(a + b) - network(a), network(b) - network(jnp.zeros(2)), rtol=1e-12)


def test_scaled_last_layer_scales_the_output():
    network = MLP((2, 3, 2), key=jax.random.key(0))
    x = jnp.array([0.3, -1.2])
    np.testing.assert_allclose(scale_last_layer(network, 0.1)(x), 0.1 * network(x), rtol=1e-13)
    np.testing.assert_array_equal(scale_last_layer(network, 0.0)(x), jnp.zeros(2))


def test_networks_differ_by_key_and_parts_have_keys_of_their_own():
    first, second = (MLP((2, 3, 2), key=jax.random.key(k)) for k in (0, 1))
    assert not np.array_equal(first.layers[0].weight, second.layers[0].weight)
    model = neural_ode(num_inputs=1, num_outputs=2, num_hidden=2, key=jax.random.key(0))
    first, second = (leaf for leaf in jax.tree.leaves(model) if leaf.shape == (16, 3))
    assert not np.array_equal(first, second)


# --- parameter counts (METHOD, section 1)


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ((1, 16, 16, 1), 321),
        ((3, 3, 3, 1), 28),
        ((16, 16, 16, 6), 646),
        ((16, 16, 16, 1), 561),
        ((9, 16, 16, 1), 449),
        ((1, 1), 2),
    ],
)
def test_parameter_counts_of_the_papers_networks(sizes, count):
    network = MLP(sizes, key=jax.random.key(0))
    assert num_parameters(network) == count
    assert count == sum(a * b + b for a, b in itertools.pairwise(sizes))


def test_parameter_counts_of_the_papers_models():
    key = jax.random.key(0)
    schlogl = neural_ode(num_inputs=0, num_outputs=1, num_hidden=1, observation_layers=None, key=key)
    assert num_parameters(schlogl) == 321
    dynamics, potential = OnConcatenation(MLP((16, 16, 16, 6), key=key)), OnConcatenation(MLP((16, 16, 16, 1), key=key))
    composite = NeuralODE(dynamics, potential, num_hidden=6)
    assert num_parameters(composite) == 646 + 561 == 1207
    assert Partition.of(composite, "last_layer").dim == 102 + 17 == 119


def test_inferred_noise_and_trainable_start_count_as_weights():
    model = NeuralODE(relaxation, num_hidden=2, initial=jnp.zeros(2), log_noise=jnp.zeros(2))
    assert num_parameters(model) == 4
    assert num_parameters({"a": jnp.ones(3), "count": jnp.arange(4), "name": "x"}) == 3


# --- what is refused


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda key: MLP((3,), key=key), "sizes such as"),
        (lambda key: MLP((3, 0, 1), key=key), "positive layer size"),
        (lambda key: MLP((3, 1), "tan", key=key), "must be one of elu, .*found .tan."),
        (lambda key: Heun(0), "substeps must be at least 1"),
        (lambda key: NeuralODE(None, None, num_hidden=0), "give at least one"),
        (lambda key: NeuralODE(relaxation, None, num_hidden=0), "make them agree"),
        (lambda key: NeuralODE(None, relaxation, num_hidden=2), "make them agree"),
        (
            lambda key: neural_ode(num_inputs=1, num_outputs=2, num_hidden=1, observation_layers=None, key=key),
            "sizes must be equal",
        ),
        (lambda key: neural_ode(num_inputs=1, num_outputs=1, num_hidden=-1, key=key), "make them agree"),
    ],
)
def test_bad_arguments_are_refused_in_plain_words(make, message):
    with pytest.raises(ValueError, match=message):
        make(jax.random.key(0))


def test_unknown_input_rule_is_refused():
    # beartype refuses it first where types are checked, otherwise our own check does.
    with pytest.raises(Exception, match="input_rule"):
        Heun(1, "midpoint")  # pyright: ignore[reportArgumentType]


def test_a_configuration_can_make_the_start_a_weight():
    """`dh/dt = W h + b` from a trained start s: the outputs begin there, and change by e^{W t} as s does."""
    asked = {"method": "map", "target": "posterior", "model": {"trainable_start": True, "substeps": 8}}
    config = configure("ou", [{**asked, "precision": "float64"}])
    model = build.untrained(EXPERIMENTS["ou"], config)
    assert Partition.of(model, "all").dim == 3
    times, known = jnp.linspace(0.0, 1.0, 5), jnp.array([5.0])
    rate = model.dynamics.network.layers[0].weight[0, 0]

    def outputs(start):
        return eqx.tree_at(lambda m: m.initial, model, start)(times, jnp.zeros((5, 0)), known)[:, 0]

    value, slope = outputs(jnp.array([0.3])), jax.jacfwd(outputs)(jnp.array([0.3]))[:, 0]
    assert value[0] == 0.3
    np.testing.assert_allclose(slope, np.exp(rate * times), rtol=1e-3)
    for name, more in (("hyperelastic", {}), ("viscoelastic", {"law": "tensor"}), ("schlogl", {"noise": True})):
        with pytest.raises(ConfigError, match=r"trainable_start=[Tt]rue"):
            configure(name, [{"model": {"trainable_start": True, **more}}])
