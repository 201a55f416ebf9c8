"""Which weights are stochastic: round trips, names, complements, and that the other weights stay shared."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langenode.inference.partition import Partition
from langenode.inference.priors import GaussianPrior
from langenode.models import MLP, NeuralODE, OnConcatenation, neural_ode, num_parameters
from problems import programs_within

TIMES, INPUTS = jnp.asarray(np.linspace(0.0, 1.0, 4)), jnp.asarray(np.ones((4, 1)))
NUM_SAMPLES = 64  # unlike any size in the models, so that a repeated leaf is told by its shape


@pytest.fixture(scope="module")
def model():
    """Two networks, a trainable start, an inferred noise scale."""
    plain = neural_ode(
        num_inputs=1,
        num_outputs=1,
        num_hidden=2,
        dynamics_layers=(5, 7),
        observation_layers=(3,),
        key=jax.random.key(0),
    )
    return NeuralODE(
        plain.dynamics, plain.observation, num_hidden=2, initial=jnp.array([0.1, 0.2]), log_noise=jnp.array([-1.0])
    )


CHOICES = {
    "all": "all",
    "last_layer": "last_layer",
    "leaves": lambda m: (m.dynamics.network.layers[0].bias, m.initial),
    "one_leaf": lambda m: m.observation.network.layers[0].weight,
    "sub-model": lambda m: m.dynamics,
    "mixed": lambda m: [m.observation.network.layers[1], m.log_noise],
}


@pytest.mark.parametrize("where", CHOICES.values(), ids=CHOICES)
def test_round_trip_is_bit_equal(model, where):
    partition = Partition.of(model, where)
    again = partition.combine(model, partition.flatten(model))
    for old, new in zip(jax.tree.leaves(model), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(old, new)
    weights = jnp.asarray(np.arange(partition.dim) + 0.5)
    changed = partition.combine(model, weights)
    np.testing.assert_array_equal(partition.flatten(changed), weights)
    # All other leaves are the model's own, not copies.
    for position, (old, new) in enumerate(zip(jax.tree.leaves(model), jax.tree.leaves(changed), strict=True)):
        assert (new is old) == (position not in partition.positions)


def test_all_is_every_weight(model):
    partition = Partition.of(model)
    assert partition == Partition.of(model, "all")
    assert partition.dim == num_parameters(model) == sum(partition.sizes)


def test_last_layer_is_that_of_every_network_and_the_noise(model):
    partition = Partition.of(model, "last_layer")
    assert partition.leaf_names == (
        "dynamics.network.layers[2].weight",
        "dynamics.network.layers[2].bias",
        "observation.network.layers[1].weight",
        "observation.network.layers[1].bias",
        "log_noise",
    )
    assert partition.shapes == ((2, 7), (2,), (1, 3), (1,), (1,))
    assert partition.dim == 16 + 4 + 1


def test_last_layer_of_the_hyperelastic_potential():
    potential = MLP((3, 3, 3, 1), "softplus", key=jax.random.key(0))
    partition = Partition.of(potential, "last_layer")
    assert partition.dim == 4
    rest = eqx.filter(potential, partition.is_rest(potential))
    assert num_parameters(rest) == 24


def test_last_layer_of_a_single_layer_is_that_layer():
    network = MLP((2, 1), key=jax.random.key(0))
    assert Partition.of(network, "last_layer") == Partition.of(network, "all")


@pytest.mark.parametrize(
    ("choice", "leaf_names"),
    [
        ("leaves", ("dynamics.network.layers[0].bias", "initial")),
        ("one_leaf", ("observation.network.layers[0].weight",)),
        ("mixed", ("observation.network.layers[1].weight", "observation.network.layers[1].bias", "log_noise")),
        ("sub-model", tuple(f"dynamics.network.layers[{i}].{part}" for i in range(3) for part in ("weight", "bias"))),
    ],
)
def test_functions_choose_leaves_or_sub_models(model, choice, leaf_names):
    assert Partition.of(model, CHOICES[choice]).leaf_names == leaf_names


def test_order_follows_the_model_not_the_choice(model):
    forwards = Partition.of(model, lambda m: (m.dynamics.network.layers[0].bias, m.initial))
    backwards = Partition.of(model, lambda m: (m.initial, m.dynamics.network.layers[0].bias))
    assert forwards == backwards


def test_names_point_at_the_weights(model):
    partition = Partition.of(model, lambda m: (m.dynamics.network.layers[2], m.initial))
    assert len(partition.names) == len(set(partition.names)) == partition.dim
    index = partition.names.index("dynamics.network.layers[2].weight[1,3]")
    assert partition.flatten(model)[index] == model.dynamics.network.layers[2].weight[1, 3]
    assert partition.flatten(model)[partition.names.index("initial[1]")] == 0.2


def test_a_scalar_weight_has_the_name_of_its_leaf():
    class Law(eqx.Module):
        rate: jax.Array
        level: jax.Array

    partition = Partition.of(Law(jnp.array(2.0), jnp.array([3.0, 4.0])))
    assert partition.names == ("rate", "level[0]", "level[1]")
    assert partition.combine(Law(jnp.array(0.0), jnp.zeros(2)), jnp.array([2.0, 3.0, 4.0])).rate == 2.0


@pytest.mark.parametrize("where", CHOICES.values(), ids=CHOICES)
def test_rest_is_the_complement(model, where):
    partition = Partition.of(model, where)
    flags = jax.tree.leaves(partition.is_rest(model))
    leaves = jax.tree.leaves(model)
    assert flags == [eqx.is_inexact_array(leaf) and i not in partition.positions for i, leaf in enumerate(leaves)]
    rest = eqx.filter(model, partition.is_rest(model))
    assert num_parameters(rest) + partition.dim == num_parameters(model)


def test_functions_and_integers_are_never_weights():
    class Counted(eqx.Module):
        network: MLP
        count: jax.Array

        def __call__(self, hidden, inputs):
            return self.network(hidden)

    counted = Counted(MLP((1, 1), key=jax.random.key(0)), jnp.arange(3))
    model = NeuralODE(counted, lambda h, x: h**2, num_hidden=1)
    partition = Partition.of(model)
    assert partition.dim == 2
    assert sum(jax.tree.leaves(partition.is_rest(model))) == 0
    outputs = jax.vmap(lambda w: partition.combine(model, w)(TIMES, INPUTS))(jnp.ones((3, 2)))
    assert outputs.shape == (3, 4, 1)


def test_one_partition_serves_models_of_the_same_structure(model):
    partition = Partition.of(model, "last_layer")
    other = jax.tree.map(lambda leaf: 2.0 * leaf if eqx.is_inexact_array(leaf) else leaf, model)
    np.testing.assert_array_equal(partition.flatten(other), 2.0 * partition.flatten(model))


@pytest.mark.parametrize(
    "where", [lambda m: (), lambda m: m.solver, lambda m: None], ids=["nothing", "no weights", "none"]
)
def test_selecting_nothing_is_refused(model, where):
    with pytest.raises(ValueError, match="at least one weight must be stochastic"):
        Partition.of(model, where)


def test_what_is_no_weight_is_not_taken_for_one(model):
    with pytest.raises(ValueError, match="must choose weights or parts"):
        Partition.of(model, lambda m: m.num_hidden)


def test_unknown_names_are_refused(model):
    with pytest.raises(ValueError, match=r"'all', 'last_layer', .*'structure', 'unit', 'none' or a function"):
        Partition.of(model, "first_layer")


def test_last_layer_without_networks_is_refused():
    model = NeuralODE(lambda h, x: -h, num_hidden=1, initial=jnp.ones(1))
    with pytest.raises(ValueError, match="selects none"):
        Partition.of(model, "last_layer")


# --- one copy for all replicas


def replicas(model, partition):
    return lambda weights: jax.vmap(lambda w: partition.combine(model, w)(TIMES, INPUTS))(weights)


def equations(jaxpr):
    """All equations of a jaxpr and of those inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in programs_within(equation):
            yield from equations(inner)


def products(model, partition):
    """Of every matrix product: the shapes of its operands and whether it has a batch dimension."""
    weights = jnp.zeros((NUM_SAMPLES, partition.dim))
    jaxpr = jax.make_jaxpr(replicas(model, partition))(weights).jaxpr
    found = []
    for equation in equations(jaxpr):
        if equation.primitive.name == "dot_general":
            _, batch = equation.params["dimension_numbers"]
            found.append(([variable.aval.shape for variable in equation.invars], batch != ((), ())))
    return found, list(equations(jaxpr))


def test_shared_matrices_are_multiplied_once_for_all_replicas(model):
    partition = Partition.of(model, "last_layer")
    shared = [leaf.shape for leaf in jax.tree.leaves(eqx.filter(model, partition.is_rest(model))) if leaf.ndim == 2]
    assert sorted(shared) == [(3, 3), (5, 3), (7, 5)]
    found, everything = products(model, partition)
    plain = [operands for operands, is_batched in found if not is_batched]
    batched = [operands for operands, is_batched in found if is_batched]
    # Points come first, then the matrix.
    assert {operands[1] for operands in plain} == {shape[::-1] for shape in shared}
    # What is batched are the stochastic last layers, and nothing else.
    assert {operands[1] for operands in batched} == {(NUM_SAMPLES, 7, 2), (NUM_SAMPLES, 3, 1)}
    # No value anywhere is a shared matrix repeated for the samples.
    shapes = {variable.aval.shape for equation in everything for variable in equation.outvars}
    assert not shapes & {(NUM_SAMPLES, *shape) for shape in shared}


def test_the_inspection_sees_repeated_matrices_where_all_weights_are_stochastic(model):
    found, everything = products(model, Partition.of(model, "all"))
    assert all(is_batched for _, is_batched in found)
    shapes = {variable.aval.shape for equation in everything for variable in equation.outvars}
    assert (NUM_SAMPLES, 7, 5) in shapes


def cost(model, where):
    partition = Partition.of(model, where)
    weights = jnp.zeros((NUM_SAMPLES, partition.dim))
    found = jax.jit(replicas(model, partition)).lower(weights).compile().cost_analysis()
    assert found is not None
    return found


def test_shared_features_cost_no_more_work_for_more_replicas():
    static = NeuralODE(None, OnConcatenation(MLP((1, 16, 16, 1), key=jax.random.key(0))), num_hidden=0)
    every, last = cost(static, "all"), cost(static, "last_layer")
    # Up to the last layer the work is done once, not once a replica: 17 of 321 weights remain.
    assert 0.0 < last["flops"] < 0.1 * every["flops"]
    assert 0.0 < last["bytes accessed"] < 0.1 * every["bytes accessed"]


def test_shared_matrices_of_the_dynamics_are_read_once(model):
    # The hidden state differs between replicas, so the flops are those of 'all'; the memory traffic is not.
    every, last = cost(model, "all"), cost(model, "last_layer")
    assert last["flops"] <= every["flops"]
    assert last["bytes accessed"] < 0.8 * every["bytes accessed"]


# --- the prior on the flat vector


def test_prior_density_is_that_of_independent_normals():
    stats = pytest.importorskip("scipy.stats")
    mean, scale, weights = np.array([0.0, 1.0, -2.0]), np.array([1.0, 0.3, 5.0]), np.array([0.4, 0.8, 3.0])
    prior = GaussianPrior(jnp.asarray(mean), jnp.asarray(scale))
    expected = stats.norm(mean, scale).logpdf(weights).sum()
    np.testing.assert_allclose(prior.log_density(jnp.asarray(weights)), expected, rtol=1e-12)
    slope = jax.grad(prior.log_density)(jnp.asarray(weights))
    np.testing.assert_allclose(slope, -(weights - mean) / scale**2, rtol=1e-12)


def test_prior_of_unequal_sizes_is_refused():
    with pytest.raises(Exception, match=r"mean and a scale for each weight|dim"):
        GaussianPrior(jnp.zeros(2), jnp.ones(3))
