"""Stored finite-strain simulations as the data of the material demonstrations.

Loadings are divided into training, validation and test; besides, some microstructures are held out altogether. The
test has the held-out loadings of all microstructures, so that both kinds are scored.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from langenode._types import PRNGKeyArray
from langenode.config import ConfigError
from langenode.data import Dataset
from langenode.experiments.base import Splits
from langenode.simulators.composite.finite_strain import sets


def read_splits(options: Any, experiment: str, key: PRNGKeyArray) -> Splits:
    """Read the set of an experiment and divide it by the seed."""
    path = sets.SHIPPED[experiment] if options.fe_set is None else Path(options.fe_set)
    found = _read(path)
    if found.plan.amplitude != options.amplitude:
        raise ConfigError(
            f"data.amplitude must be that of the simulations, which the law is scaled by; found {options.amplitude:g}, "
            f"and {found.plan.amplitude:g} in {path}; set data.amplitude={found.plan.amplitude:g}"
        )
    data = sets.as_dataset(found)
    if not options.num_held_out <= data.num_units - 2:
        raise ConfigError(
            f"at least two microstructures must be left for training; {path} has {data.num_units}, of which "
            f"data.num_held_out={options.num_held_out} are held out; lower it"
        )
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    fractions = (1.0 - options.valid_fraction - options.test_fraction, options.valid_fraction, options.test_fraction)
    parts = data.split(*fractions, seed=int(rng.integers(2**31)))
    names = np.array(data.unit_names)
    held_out = set(rng.choice(names, options.num_held_out, replace=False).tolist())
    train, validation = (part.select(~_is_of(part, held_out)) for part in parts[:2])
    return Splits(train, validation, parts[2])


def _read(path: Path) -> sets.SimulationSet:
    try:
        return sets.read_set(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"data.fe_set must be a file that `simulate --solver fe` has made; {path} is not "
            f"({type(error).__name__}: {error}); name another"
        ) from None


def _is_of(data: Dataset, names: set[str]) -> np.ndarray:
    """Return whether each trajectory is of one of these units."""
    assert data.unit is not None
    return np.isin(np.array(data.unit_names)[data.unit], list(names))


def test_parts(splits: Splits) -> dict[str, Dataset]:
    """Return the test of microstructures that the training has seen, and of those that it has not; {} if no such."""
    test, seen = splits.test, set(splits.train.unit_names)
    is_seen = _is_of(test, seen)
    if is_seen.all():
        return {}
    return {"seen_microstructures": test.select(is_seen), "held_out_microstructures": test.select(~is_seen)}
