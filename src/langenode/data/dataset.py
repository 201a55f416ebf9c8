"""The data set: trajectories on padded rectangular arrays, and its parts and views."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.typing import DTypeLike

from langenode._arrays import placed
from langenode._types import Array, Int
from langenode.data.building import broadcast, number_conditions, number_labels, stack_trajectories, with_columns
from langenode.data.checks import (
    DataError,
    booleans,
    checked_arrays,
    checked_attributes,
    checked_labels,
    checked_names,
    numbers,
    rectangular,
    settled,
    store,
    valid_cells,
)
from langenode.data.views import Batch, Cases, Replicates, are_crossed, cast, number_members

# NumPy's own ArrayLike is a union of protocols that a tuple of numbers fails when checked at run time.
ArrayLike = np.ndarray | Array | Sequence[Any]


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Dataset:
    """Trajectories on padded rectangular arrays, checked once on construction and read-only afterwards.

    Times increase strictly in the valid part of a trajectory; padding repeats its last valid time and input
    row and is masked. Unobserved outputs are 0.0. Trajectories of one condition share times and inputs; their
    start (`initial`) may differ: a random start is part of the condition's distribution. `units` maps a column's
    name (and "time") to its physical unit; `attributes` holds extra numbers for each trajectory, such as the true
    weights that a simulator drew; `labels` maps a column of the table that was read to its text in the first row of
    each trajectory, for results in the user's words.
    """

    # Shapes are given as comments, so that a wrong shape reaches the checks and is explained in plain words.
    times: np.ndarray  # (traj, time)
    inputs: np.ndarray  # (traj, time, in)
    outputs: np.ndarray  # (traj, time, out)
    mask: np.ndarray  # (traj, time, out)
    initial: np.ndarray | None  # (traj, state)
    condition: np.ndarray  # (traj,), numbers from 0
    unit: np.ndarray  # (traj,), numbers from 0
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    units: Mapping[str, str] = dataclasses.field(default_factory=dict)
    condition_names: tuple[str, ...] = ()
    unit_names: tuple[str, ...] = ()
    attributes: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    labels: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        names = ("times", "inputs", "outputs", "mask", "initial", "condition", "unit")
        store(self, checked_arrays(**{name: getattr(self, name) for name in names}))
        num_conditions, num_units = (int(codes.max(initial=-1)) + 1 for codes in (self.condition, self.unit))
        rest = {
            "input_names": checked_names(self.input_names, self.num_inputs, "input_names", "x"),
            "output_names": checked_names(self.output_names, self.num_outputs, "output_names", "y"),
            "condition_names": checked_names(self.condition_names, num_conditions, "condition_names"),
            "unit_names": checked_names(self.unit_names, num_units, "unit_names"),
            "units": dict(self.units),
            "attributes": checked_attributes(self.attributes, self.num_trajectories),
            "labels": checked_labels(self.labels, self.num_trajectories),
        }
        store(self, rest)

    @classmethod
    def from_arrays(
        cls,
        times: ArrayLike,
        outputs: ArrayLike,
        *,
        inputs: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        initial: ArrayLike | None = None,
        condition: ArrayLike | None = None,
        unit: ArrayLike | None = None,
        input_names: Sequence[str] = (),
        output_names: Sequence[str] = (),
        units: Mapping[str, str] | None = None,
        attributes: Mapping[str, ArrayLike] | None = None,
    ) -> "Dataset":
        """Build a data set from arrays, with defaults for what is not given.

        `outputs` is (traj, time, out), or (traj, time) for one output; `inputs` likewise, and a leading axis of
        length one is shared by all; `times` is (traj, time) or one shared (time,) grid; `initial` is (traj, state)
        or (traj,). Without a mask, NaN outputs count as missing. Without conditions, trajectories with identical
        times and inputs share one condition; on one grid without inputs there is a single condition, and a varying
        start is part of its distribution. `condition` and `unit` are labels (text or numbers), numbered in sorted
        order.
        """
        values = with_columns(numbers(outputs, "outputs"), "outputs")
        num, steps = values.shape[:2]
        grid = broadcast(numbers(times, "times"), (num, steps), "times")
        path = np.zeros((1, steps, 0)) if inputs is None else with_columns(numbers(inputs, "inputs"), "inputs")
        path = broadcast(path, (num, steps, path.shape[2]), "inputs")
        observed = ~np.isnan(values) if mask is None else with_columns(booleans(mask, "mask"), "mask")
        start = None if initial is None else numbers(initial, "initial")
        labels = number_conditions(grid, path) if condition is None else condition
        condition_codes, condition_names = number_labels(labels, num, "condition")
        unit_codes, unit_names = number_labels(np.arange(num) if unit is None else unit, num, "unit")
        return cls(
            times=settled(grid),
            inputs=settled(path),
            outputs=settled(values),
            mask=settled(broadcast(observed, values.shape, "mask")),
            initial=start[:, None] if start is not None and start.ndim == 1 else start,
            condition=condition_codes,
            unit=unit_codes,
            input_names=tuple(input_names),
            output_names=tuple(output_names),
            units=units or {},
            condition_names=condition_names,
            unit_names=unit_names,
            attributes={name: numbers(value, name) for name, value in (attributes or {}).items()},
        )

    @classmethod
    def from_list(
        cls,
        trajectories: Sequence[Mapping[str, Any]],
        *,
        input_names: Sequence[str] = (),
        output_names: Sequence[str] = (),
        units: Mapping[str, str] | None = None,
    ) -> "Dataset":
        """Build a data set from a list with one dict per trajectory; trajectories of any length are padded.

        Keys: times (time,), outputs (time, out) or (time,), and optionally inputs, mask, initial (state,) or
        a number, condition, unit, attributes (a dict). Replicates of a *given* condition that were observed
        at different times are put on the union of their times, with outputs missing where not observed. An input
        at such a time comes from the replicate that has it, provided that the others, interpolated linearly within
        their own range, agree with it to 1 % of the input's range.
        """
        columns = stack_trajectories(trajectories)
        return cls.from_arrays(**columns, input_names=input_names, output_names=output_names, units=units)

    def __repr__(self) -> str:
        return (
            f"Dataset({self.num_trajectories} trajectories, {self.num_times} times, inputs "
            f"{list(self.input_names)}, outputs {list(self.output_names)}, {self.num_conditions} conditions, "
            f"{self.num_units} units, {int(self.mask.sum())} of {self.mask.size} cells observed)"
        )

    @property
    def num_trajectories(self) -> int:
        """Number of trajectories."""
        return self.times.shape[0]

    @property
    def num_times(self) -> int:
        """Length of the padded time axis."""
        return self.times.shape[1]

    @property
    def num_inputs(self) -> int:
        """Number of input columns, possibly 0."""
        return self.inputs.shape[2]

    @property
    def num_outputs(self) -> int:
        """Number of output columns."""
        return self.outputs.shape[2]

    @property
    def num_conditions(self) -> int:
        """Number of conditions."""
        return len(self.condition_names)

    @property
    def num_units(self) -> int:
        """Number of units (specimens)."""
        return len(self.unit_names)

    @property
    def has_crossed_units(self) -> bool:
        """Whether some unit appears in more than one condition."""
        return are_crossed(self.unit, self.condition)

    @property
    def lengths(self) -> Int[np.ndarray, " traj"]:
        """Number of valid time points of each trajectory, without padding."""
        return valid_cells(self.times).sum(axis=1)

    @property
    def is_complete(self) -> bool:
        """Whether every cell of the rectangular arrays was observed: nothing missing, no padding."""
        return bool(self.mask.all())

    def select(self, index: ArrayLike | slice | int) -> "Dataset":
        """Select the trajectories at `index`, any NumPy index: numbers, a slice or a Boolean mask.

        Conditions and units are renumbered compactly and keep their labels; the time axis is cut to the
        longest selected trajectory.
        """
        chosen = _positions(index, self.num_trajectories)
        longest = int(self.lengths[chosen].max(initial=0))
        conditions, condition = np.unique(self.condition[chosen], return_inverse=True)
        units, unit = np.unique(self.unit[chosen], return_inverse=True)
        return dataclasses.replace(
            self,
            times=settled(self.times[chosen, :longest]),
            inputs=settled(self.inputs[chosen, :longest]),
            outputs=settled(self.outputs[chosen, :longest]),
            mask=settled(self.mask[chosen, :longest]),
            initial=None if self.initial is None else self.initial[chosen],
            condition=condition,
            unit=unit,
            condition_names=tuple(self.condition_names[i] for i in conditions),
            unit_names=tuple(self.unit_names[i] for i in units),
            attributes={name: values[chosen] for name, values in self.attributes.items()},
            labels={name: tuple(values[i] for i in chosen) for name, values in self.labels.items()},
        )

    def split(
        self, train: float | int, valid: float | int, test: float | int, *, seed: int
    ) -> tuple["Dataset", "Dataset", "Dataset"]:
        """Split into training, validation and test parts by condition; by trajectory if there is one condition only.

        The three fractions sum to 1. A positive fraction gets at least one condition; a zero fraction gives a
        data set without trajectories. Where conditions differ in size, fractions are those of trajectories, as nearly
        as whole conditions allow.
        """
        fractions = np.array([train, valid, test], dtype=float)
        if not (np.all(fractions >= 0) and abs(fractions.sum() - 1) < 1e-6):
            raise DataError(
                "the three fractions of a split must be at least 0 and sum to 1; "
                f"found {train:g}, {valid:g} and {test:g}; change them"
            )
        by_condition = self.num_conditions > 1
        groups = self.condition if by_condition else np.arange(self.num_trajectories)
        count = self.num_conditions if by_condition else self.num_trajectories
        needed = int((fractions > 0).sum())
        if count < needed:
            kind = "conditions" if by_condition else "trajectories"
            raise DataError(
                f"a split into {needed} parts needs at least {needed} {kind}; the data has {count}; "
                "add data or set a fraction to 0"
            )
        order, sizes = np.random.default_rng(seed).permutation(count), np.bincount(groups)
        if sizes.min() == sizes.max():
            parts = np.split(order, np.cumsum(_allocate(fractions, count))[:2])
        else:
            parts = _balanced(fractions, order, sizes)
        first, second, third = (self.select(np.isin(groups, part)) for part in parts)
        return first, second, third

    def cases(self) -> Cases:
        """Return the shared time grid and inputs of each condition."""
        _, first = np.unique(self.condition, return_index=True)
        return Cases(self.times[first], self.inputs[first])

    def replicates(self) -> Replicates:
        """Arrange the trajectories by member and condition.

        The member is the unit where units are crossed with conditions (some unit appears in more than one
        condition), otherwise the number of the replicate within its condition. Where a trajectory is absent, its
        start is filled with that of the first trajectory of its condition.
        """
        member = number_members(self.unit, self.condition)
        where = (member, self.condition)
        leading = (int(member.max(initial=-1)) + 1, self.num_conditions)
        present = np.zeros(leading, dtype=bool)
        present[where] = True
        outputs = np.zeros(leading + self.outputs.shape[1:])
        outputs[where] = self.outputs
        mask = np.zeros(outputs.shape, dtype=bool)
        mask[where] = self.mask
        initial = None
        if self.initial is not None:
            _, first = np.unique(self.condition, return_index=True)
            initial = np.broadcast_to(self.initial[first], leading + self.initial.shape[1:]).copy()
            initial[where] = self.initial
        return Replicates(outputs, mask, initial, present)

    def arrays(self, dtype: DTypeLike) -> Batch:
        """Convert to JAX arrays of a floating `dtype`; raise if times would coincide or numbers overflow in it."""
        wanted = np.dtype(dtype)
        if wanted == np.float64 and not jax.config.read("jax_enable_x64"):
            raise DataError("float64 arrays need JAX's 64-bit mode; it is off; set jax_enable_x64 or use float32")
        times = cast(self.times, wanted, "times")
        if not np.array_equal(valid_cells(times), valid_cells(self.times)):
            raise DataError(f"times must differ in {wanted}; some become equal; start them at 0 or use float64")
        return Batch(
            times=placed(times),
            inputs=placed(cast(self.inputs, wanted, "inputs")),
            outputs=placed(cast(self.outputs, wanted, "outputs")),
            mask=placed(self.mask),
            initial=None if self.initial is None else placed(cast(self.initial, wanted, "initial")),
            condition=placed(self.condition.astype(np.int32)),
        )

    def scaled(self, scaling: Callable[["Dataset"], "Dataset"]) -> "Dataset":
        """Apply a `Scaling`; a column that changes loses its physical unit."""
        return scaling(self)


def _positions(index: Any, num: int) -> np.ndarray:
    """Return the numbers of the trajectories that a NumPy index selects."""
    if not isinstance(index, slice):
        index = np.atleast_1d(rectangular(index, "index"))
        index = index if index.size else index.astype(np.int64)
    try:
        chosen = np.arange(num)[index]
    except IndexError as error:
        raise DataError(f"an index must select from the {num} trajectories; {error}; change it") from error
    if chosen.ndim != 1:
        raise DataError(f"an index must have one axis; found {chosen.ndim}; flatten it")
    return chosen


def _balanced(fractions: np.ndarray, order: np.ndarray, sizes: np.ndarray) -> list[list[int]]:
    """Deal out groups of unequal sizes, the large ones first, so that members are divided by the fractions."""
    parts: list[list[int]] = [[], [], []]
    lacking = fractions * sizes.sum()
    for done, group in enumerate(sorted(order, key=lambda group: -sizes[group])):
        empty = [part for part in range(3) if fractions[part] > 0 and not parts[part]]
        must = len(empty) == len(order) - done  # one is left for each part that has none yet
        part = max(empty if must else np.flatnonzero(fractions > 0), key=lambda part: lacking[part])
        parts[part].append(int(group))
        lacking[part] -= sizes[group]
    return parts


def _allocate(fractions: np.ndarray, count: int) -> np.ndarray:
    """Round `fractions * count` to whole numbers that sum to `count`, at least 1 for a positive fraction."""
    shares = fractions / fractions.sum() * count
    counts = (fractions > 0).astype(int)
    while counts.sum() < count:
        counts[np.argmax(shares - counts)] += 1
    return counts
