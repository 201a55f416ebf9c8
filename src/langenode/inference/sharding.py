"""Samples and conditions divided over devices, of one process or of several that run the same program.

Every sample has a key of its own, so its draw does not depend on how many devices there are; sums over samples differ
in their last digits only. Numbers that are trained are on all devices. Outside of the compiled programs here all arrays
belong to their own process, and the devices of the others are not seen.
"""

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from langenode.inference.errors import FitError

Tree = TypeVar("Tree")
SAMPLE, CONDITION = "sample", "condition"

_DEVICES: ContextVar[tuple[Any, ...] | None] = ContextVar("langenode-devices", default=None)
# More devices than the members of an ensemble have no use.
MOST_CORES = 16


def use_cores() -> None:
    """Make a device of every core of this machine, for chains that do not depend on each other.

    For the command, before JAX has started; what is trained keeps to the first device, since a program that is divided
    takes longer to compile. Nothing is done where the user has chosen devices.
    """
    flags, cores = os.environ.get("XLA_FLAGS", ""), os.environ.get("NPROC", "")
    num = min(int(cores) if cores.isdigit() else num_cores(), MOST_CORES)
    options: Any = jax.config
    is_chosen = "xla_force_host_platform_device_count" in flags or options.jax_num_cpu_devices != -1
    if num < 2 or is_chosen or os.environ.get("JAX_PLATFORMS") != "cpu":
        return
    try:
        jax.config.update("jax_num_cpu_devices", num)
    except RuntimeError:  # JAX has started
        return
    _DEVICES.set(tuple(jax.local_devices()[:1]))


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def over(devices: Sequence[Any]) -> Iterator[None]:
    """Divide what is trained and predicted over these devices; without it over those of this process."""
    token = _DEVICES.set(tuple(devices))
    try:
        yield
    finally:
        _DEVICES.reset(token)


class Devices(NamedTuple):
    """Devices in a rectangle, samples by conditions; without a mesh there is one, and nothing is divided."""

    mesh: Mesh | None = None

    def each(self, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Within a program: `function(shared, samples)` on every device for its part of the samples.

        What it gives is divided alike. The gradient of `shared` is summed over devices once, at the end; a compiler
        that is left to divide a loop by itself does it in every step.
        """
        if self.mesh is None or self.mesh.shape[SAMPLE] == 1:
            return function
        mesh, divided = self.mesh, PartitionSpec(SAMPLE)

        def call(shared: Any, samples: Any) -> Any:
            # As one vector, the gradient is one message and not one for every array.
            vector, whole = ravel_pytree(shared)
            mapped = jax.shard_map(
                lambda numbers, part: function(whole(numbers), part),
                mesh=mesh,
                in_specs=(PartitionSpec(), divided),
                out_specs=divided,
                axis_names={SAMPLE},
                check_vma=False,
            )
            return mapped(vector, samples)

        return call

    def by_sample(self, tree: Tree) -> Tree:
        """Within a program: divide the first axis of all arrays."""
        return self._divided(tree, 0, SAMPLE)

    def by_condition(self, tree: Tree, axis: int = 0) -> Tree:
        """Within a program: divide this axis of all arrays, where the devices divide it evenly."""
        return self._divided(tree, axis, CONDITION)

    def everywhere(self, tree: Tree) -> Tree:
        """Within a program: have all arrays whole on every device."""
        if self.mesh is None:
            return tree
        return jax.lax.with_sharding_constraint(tree, NamedSharding(self.mesh, PartitionSpec()))

    @property
    def num_processes(self) -> int:
        """How many processes the devices belong to."""
        return 1 if self.mesh is None else len({device.process_index for device in self.mesh.devices.flat})

    def _divided(self, tree: Tree, axis: int, name: str) -> Tree:
        if self.mesh is None or self.mesh.shape[name] == 1:
            return tree
        num = self.mesh.shape[name]
        within = jax.sharding.get_abstract_mesh()  # of `each`, where one axis is divided already
        mesh: Any = self.mesh if within.empty else within

        def divide(leaf: Any) -> Any:
            if leaf.shape[axis] % num:
                return leaf
            spec = PartitionSpec(*[None] * axis, name)
            return jax.lax.with_sharding_constraint(leaf, NamedSharding(mesh, spec))

        return jax.tree.map(divide, tree)


ALONE = Devices()


def devices_for(num_samples: int, num_conditions: int = 1, *, is_trained: bool = False) -> Devices:
    """As many of the devices as divide the samples evenly; what is left of them divides the conditions.

    Of several processes every device must have its part, since a process without one would not know of the others'
    end. Where the numbers do not allow that, each process does all of the work, but an error where it trains.
    """
    given = _DEVICES.get()
    found = jax.local_devices() if given is None else given
    across = math.gcd(len(found), num_samples)
    along = math.gcd(len(found) // across, num_conditions)
    num = across * along
    if num < len(found) and len({device.process_index for device in found}) > 1:
        if not is_trained:
            return ALONE
        raise FitError(
            f"samples and conditions must divide evenly over the devices of all processes; got {num_samples} samples "
            f"(of a chunk), {num_conditions} conditions or trajectories and {len(found)} devices; set "
            f"training.num_samples to a multiple of {len(found)}"
        )
    if num == 1:
        return ALONE
    return Devices(Mesh(np.array(found[:num], dtype=object).reshape(across, along), (SAMPLE, CONDITION)))


def here(devices: Devices, tree: Tree) -> Tree:
    """What a program has left whole on all devices, as arrays of this process alone."""
    if devices.mesh is None:
        return tree
    return jax.tree.map(lambda leaf: jax.numpy.asarray(np.asarray(leaf)) if isinstance(leaf, jax.Array) else leaf, tree)


def gathered(array: Any) -> np.ndarray:
    """A divided array as a whole, in every process."""
    if isinstance(array, jax.Array) and not (array.is_fully_addressable or array.is_fully_replicated):
        from jax.experimental import multihost_utils

        return np.asarray(multihost_utils.process_allgather(array, tiled=True))
    return np.asarray(array)


def agreed(devices: Devices, tree: Tree) -> Tree:
    """The first process's numbers in place of every other's: theirs may differ in the last digits, or by the clock.

    An error where the processes have come to arrays of other shapes, since then they are not at the same work.
    """
    if devices.num_processes == 1:
        return tree
    from jax.experimental import multihost_utils

    leaves, structure = jax.tree.flatten(tree)
    is_number = [_is_number(leaf) for leaf in leaves]
    numbers = [leaf for leaf, yes in zip(leaves, is_number, strict=True) if yes]
    marks = multihost_utils.process_allgather(np.array([_mark(numbers)], np.uint32))
    if len(np.unique(marks)) > 1:
        raise FitError(
            "all processes must be at the same work; they have models or data of other shapes; give them the same "
            "version, data and settings, on machines of one kind"
        )
    shared = iter(multihost_utils.broadcast_one_to_all(numbers))
    mixed = [jax.numpy.asarray(next(shared)) if yes else leaf for leaf, yes in zip(leaves, is_number, strict=True)]
    return jax.tree.unflatten(structure, mixed)


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray) and not jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _mark(arrays: Sequence[Any]) -> int:
    import zlib

    return zlib.crc32(repr([(array.shape, str(array.dtype)) for array in arrays]).encode())
