"""Trajectories: the record every stage works on, how it is built, split, scaled and stored.

A `Dataset` says three things without which no target has a meaning: which trajectories are replicates of one
*condition* (same times and inputs), which *unit* (specimen) each came from, and which cells were observed.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from langenode._types import Array, Bool, Float, Int

__all__ = ["Batch", "Cases", "DataError", "Dataset", "Replicates", "Scaling", "load_data", "save_data"]

# NumPy's own ArrayLike is a union of protocols that a tuple of numbers fails when checked at run time.
ArrayLike = np.ndarray | Array | Sequence[Any]


class DataError(ValueError):
    """What must hold of the data, what was found and what to do, in one line."""

    def __init__(self, message: str):
        super().__init__(" ".join(message.split()))


class Cases(NamedTuple):
    """The time grid and the inputs shared by all trajectories of each condition."""

    times: Float[np.ndarray, "condition time"]
    inputs: Float[np.ndarray, "condition time in"]


class Replicates(NamedTuple):
    """Trajectories ordered by member and condition; `present` is False where there is no such trajectory."""

    outputs: Float[np.ndarray, "member condition time out"]
    mask: Bool[np.ndarray, "member condition time out"]
    initial: Float[np.ndarray, "member condition state"] | None
    present: Bool[np.ndarray, "member condition"]


class Batch(NamedTuple):
    """The arrays of a data set on the device: a pytree to pass through `jit`."""

    times: Float[Array, "traj time"]
    inputs: Float[Array, "traj time in"]
    outputs: Float[Array, "traj time out"]
    mask: Bool[Array, "traj time out"]
    initial: Float[Array, "traj state"] | None
    condition: Int[Array, " traj"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Dataset:
    """Trajectories on padded rectangular arrays, checked once when made and read-only after that.

    Times increase strictly in the valid part of a trajectory; padding repeats its last valid time and input
    row and is masked. Unobserved outputs are 0.0. Trajectories of one condition share times and inputs; their
    start (`initial`) may differ: a random start is part of the condition's law. `units` maps a column's name
    (and "time") to its physical unit; `attributes` holds extra numbers of each trajectory, such as the true
    weights that a simulator drew.
    """

    # Shapes stand in comments, because a wrong one must be refused by the checks below, in plain words.
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

    def __post_init__(self):
        arrays = {name: _numbers(getattr(self, name), name) for name in ("times", "inputs", "outputs")}
        arrays["mask"] = _booleans(self.mask, "mask")
        arrays |= {name: _integers(getattr(self, name), name) for name in ("condition", "unit")}
        if self.initial is not None:
            arrays["initial"] = _numbers(self.initial, "initial")
        _check_shapes(arrays)
        _check_times(arrays["times"])
        _check_inputs(arrays)
        _check_outputs(arrays)
        _check_conditions(arrays)
        # A NaN in a masked cell would poison gradients through `where(mask, ...)`, so none is kept.
        arrays["outputs"] = np.where(arrays["mask"], arrays["outputs"], 0.0)
        _store(self, arrays | {"attributes": _checked_attributes(self.attributes, len(arrays["times"]))})
        _store(self, {"units": dict(self.units)} | _checked_names(self))

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
        """Build a data set from arrays, filling in what is not given.

        `outputs` is (traj, time, out), or (traj, time) for one output; `inputs` likewise, a leading axis of
        one is shared by all; `times` is (traj, time) or one shared (time,) grid; `initial` is (traj, state)
        or (traj,). Without a mask, NaN outputs are missing. Without conditions, trajectories with identical
        times and inputs share one; so without inputs on one grid there is a single condition and a varying
        start is part of its law. `condition` and `unit` are labels (text or numbers), numbered in sorted
        order.
        """
        values = _with_channel(_numbers(outputs, "outputs"), "outputs")
        num, steps = values.shape[:2]
        grid = _broadcast(_numbers(times, "times"), (num, steps), "times")
        if inputs is None:
            path = np.zeros((num, steps, 0))
        else:
            path = _with_channel(_numbers(inputs, "inputs"), "inputs")
            path = _broadcast(path, (num, steps, path.shape[2]), "inputs")
        observed = ~np.isnan(values) if mask is None else _with_channel(_booleans(mask, "mask"), "mask")
        start = None if initial is None else _numbers(initial, "initial")
        codes, labels = _condition_labels(condition, grid, path)
        unit_codes, unit_labels = _number_labels(np.arange(num) if unit is None else unit, num, "unit")
        return cls(
            times=grid,
            inputs=path,
            outputs=values,
            mask=_broadcast(observed, values.shape, "mask"),
            initial=start[:, None] if start is not None and start.ndim == 1 else start,
            condition=codes,
            unit=unit_codes,
            input_names=tuple(input_names),
            output_names=tuple(output_names),
            units=units or {},
            condition_names=labels,
            unit_names=unit_labels,
            attributes={name: _numbers(value, name) for name, value in (attributes or {}).items()},
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
        """Build a data set from one dict a trajectory, of any lengths, by padding.

        Keys: times (time,), outputs (time, out) or (time,), and optionally inputs, mask, initial (state,) or
        a number, condition, unit, attributes (a dict). Replicates of a *given* condition that were observed
        at different times are put on the union of their times, missing where not observed; an input there
        comes from the replicate that has it, if the others, interpolated linearly within their own range,
        agree with it to 1 % of the input's range.
        """
        records = [_record(raw, index) for index, raw in enumerate(trajectories)]
        if not records:
            raise DataError("a data set needs at least one trajectory; the list is empty; add a trajectory")
        _check_same_keys(records)
        if "condition" in records[0]:
            records = _on_union_grids(records)
        columns: dict[str, Any] = {key: [record[key] for record in records] for key in records[0]}
        columns["attributes"] = {
            name: _stack([values[name] for values in columns["attributes"]], name) for name in columns["attributes"][0]
        }
        for key, fill in (("times", "edge"), ("inputs", "edge"), ("outputs", "zero"), ("mask", "zero")):
            columns[key] = _padded(columns[key], key, fill)
        if "initial" in columns:
            columns["initial"] = _stack(columns["initial"], "initial")
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
    def lengths(self) -> Int[np.ndarray, " traj"]:
        """Number of valid time points of each trajectory, before its padding."""
        return _valid_lengths(self.times)

    @property
    def is_complete(self) -> bool:
        """Whether every cell of the rectangle was observed: nothing missing, no padding."""
        return bool(self.mask.all())

    def select(self, index: ArrayLike | slice | int) -> "Dataset":
        """Take the trajectories at `index`, any NumPy index: numbers, a slice or a Boolean mask.

        Conditions and units are renumbered compactly and keep their labels; the time axis is cut to the
        longest.
        """
        chosen = _positions(index, self.num_trajectories)
        longest = int(self.lengths[chosen].max(initial=0))
        conditions, condition = np.unique(self.condition[chosen], return_inverse=True)
        units, unit = np.unique(self.unit[chosen], return_inverse=True)
        return dataclasses.replace(
            self,
            times=self.times[chosen, :longest],
            inputs=self.inputs[chosen, :longest],
            outputs=self.outputs[chosen, :longest],
            mask=self.mask[chosen, :longest],
            initial=None if self.initial is None else self.initial[chosen],
            condition=condition,
            unit=unit,
            condition_names=tuple(self.condition_names[i] for i in conditions),
            unit_names=tuple(self.unit_names[i] for i in units),
            attributes={name: values[chosen] for name, values in self.attributes.items()},
        )

    def split(
        self, train: float | int, valid: float | int, test: float | int, *, seed: int
    ) -> tuple["Dataset", "Dataset", "Dataset"]:
        """Split into training, validation and test parts by condition; by trajectory if there is only one.

        The three fractions sum to 1. A positive fraction gets at least one condition; a zero fraction gives a
        data set without trajectories.
        """
        fractions = np.array([train, valid, test], dtype=float)
        if not (np.all(fractions >= 0) and abs(fractions.sum() - 1) < 1e-6):
            raise DataError(
                "the three fractions of a split must be at least 0 and sum to 1; "
                f"got {train:g}, {valid:g} and {test:g}; change them"
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
        order = np.random.default_rng(seed).permutation(count)
        parts = np.split(order, np.cumsum(_allocate(fractions, count))[:2])
        first, second, third = (self.select(np.flatnonzero(np.isin(groups, part))) for part in parts)
        return first, second, third

    def cases(self) -> Cases:
        """The shared time grid and inputs of each condition."""
        _, first = np.unique(self.condition, return_index=True)
        return Cases(self.times[first], self.inputs[first])

    def replicates(self) -> Replicates:
        """Order the trajectories by member and condition.

        The member is the unit where units are crossed with conditions (some unit appears in more than one
        condition), else the number of the replicate within its condition. A start that is absent is filled
        with the first present one of its condition.
        """
        member, num_members = _members(self.unit, self.condition)
        where = (member, self.condition)
        leading = (num_members, self.num_conditions)
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
        """The arrays in JAX with a floating `dtype`; refuses one in which the data would lose its meaning."""
        wanted = np.dtype(dtype)
        if wanted == np.float64 and not jax.config.read("jax_enable_x64"):
            raise DataError("float64 arrays need JAX's 64-bit mode; it is off; set jax_enable_x64 or use float32")
        times = _cast(self.times, wanted, "times")
        if not np.array_equal(_valid_lengths(times), self.lengths):
            raise DataError(f"times must differ in {wanted}; some round to one; start them at 0 or use float64")
        return Batch(
            times=jnp.asarray(times),
            inputs=jnp.asarray(_cast(self.inputs, wanted, "inputs")),
            outputs=jnp.asarray(_cast(self.outputs, wanted, "outputs")),
            mask=jnp.asarray(self.mask),
            initial=None if self.initial is None else jnp.asarray(_cast(self.initial, wanted, "initial")),
            condition=jnp.asarray(self.condition.astype(np.int32)),
        )

    def scaled(self, scaling: "Scaling") -> "Dataset":
        """Scale times, inputs, outputs and start; a column that changes loses its physical unit."""
        scaling.check_fits(self)
        initial = self.initial
        if initial is not None:
            initial = (initial - scaling.initial_shift) / scaling.initial_scale
        inputs_kept = (scaling.input_shift == 0) & (scaling.input_scale == 1)
        outputs_kept = (scaling.output_shift == 0) & (scaling.output_scale == 1)
        changed = {name for name, kept in zip(self.input_names, inputs_kept, strict=True) if not kept}
        changed |= {name for name, kept in zip(self.output_names, outputs_kept, strict=True) if not kept}
        changed |= set() if scaling.time_scale == 1 else {"time"}
        return dataclasses.replace(
            self,
            times=self.times / scaling.time_scale,
            inputs=(self.inputs - scaling.input_shift) / scaling.input_scale,
            outputs=(self.outputs - scaling.output_shift) / scaling.output_scale,
            initial=initial,
            units={name: unit for name, unit in self.units.items() if name not in changed},
        )


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Scaling:
    """Shifts and scales that make a data set dimensionless.

    Column by column, scaled = (value - shift) / scale. Times are divided by `time_scale` only. The arrays of
    the start are empty for data without one.
    """

    time_scale: float
    input_shift: np.ndarray  # (in,)
    input_scale: np.ndarray  # (in,)
    output_shift: np.ndarray  # (out,)
    output_scale: np.ndarray  # (out,)
    initial_shift: np.ndarray  # (state,)
    initial_scale: np.ndarray  # (state,)

    def __post_init__(self):
        fields = {f.name: _numbers(getattr(self, f.name), f.name) for f in dataclasses.fields(self)}
        for name, values in fields.items():
            if values.ndim != (0 if name == "time_scale" else 1) or not np.all(np.isfinite(values)):
                raise DataError(f"{name} of a scaling must be finite numbers in a row; found {values}; change it")
            if name.endswith("scale") and not np.all(values > 0):
                raise DataError(f"{name} of a scaling must be positive; found {values}; use 1 for no scaling")
        for kind in ("input", "output", "initial"):
            shift, scale = fields[f"{kind}_shift"], fields[f"{kind}_scale"]
            if shift.shape != scale.shape:
                raise DataError(
                    f"a scaling needs one shift and one scale a column; {kind} has {shift.size} shifts and "
                    f"{scale.size} scales; give as many of each"
                )
        _store(self, fields | {"time_scale": float(fields["time_scale"])})

    @classmethod
    def identity(cls, data: Dataset) -> "Scaling":
        """The scaling that changes nothing."""
        num_state = 0 if data.initial is None else data.initial.shape[1]
        return cls(
            time_scale=1.0,
            input_shift=np.zeros(data.num_inputs),
            input_scale=np.ones(data.num_inputs),
            output_shift=np.zeros(data.num_outputs),
            output_scale=np.ones(data.num_outputs),
            initial_shift=np.zeros(num_state),
            initial_scale=np.ones(num_state),
        )

    @classmethod
    def standardise(cls, data: Dataset, *, initial_like_outputs: bool) -> "Scaling":
        """Mean 0 and standard deviation 1 of every column over its observed cells; the longest duration is 1.

        A constant column is only shifted. The start is scaled like the outputs if asked (a state that is
        observed directly), else left alone.
        """
        if data.num_trajectories == 0:
            raise DataError("standardising needs data; there is no trajectory; use a part that has some")
        valid = np.arange(data.num_times) < data.lengths[:, None]
        inputs = [_moments(data.inputs[..., i][valid]) for i in range(data.num_inputs)]
        outputs = [_moments(data.outputs[..., i][data.mask[..., i]]) for i in range(data.num_outputs)]
        duration = float((data.times[:, -1] - data.times[:, 0]).max())
        changes = {
            "time_scale": duration if duration > 0 else 1.0,
            "input_shift": np.array([shift for shift, _ in inputs]),
            "input_scale": np.array([scale for _, scale in inputs]),
            "output_shift": np.array([shift for shift, _ in outputs]),
            "output_scale": np.array([scale for _, scale in outputs]),
        }
        if initial_like_outputs:
            changes |= {"initial_shift": changes["output_shift"], "initial_scale": changes["output_scale"]}
        scaling = dataclasses.replace(cls.identity(data), **changes)
        scaling.check_fits(data)
        return scaling

    def check_fits(self, data: Dataset) -> None:
        """Raise a `DataError` unless this scaling has a number for every column of `data`."""
        num_state = None if data.initial is None else data.initial.shape[1]
        for kind, width in (("input", data.num_inputs), ("output", data.num_outputs), ("initial", num_state)):
            found = getattr(self, f"{kind}_scale").size
            if width is not None and found != width:
                raise DataError(
                    f"a scaling must have one number a column; it has {found} for {width} columns of {kind}; "
                    "make it from data with the same columns"
                )

    def unscale_outputs(self, y: Float[Array | np.ndarray, "*batch out"]) -> Any:
        """Outputs in physical units from scaled ones; any leading axes."""
        return y * self.output_scale + self.output_shift

    def unscale_spread(self, s: Float[Array | np.ndarray, "*batch out"]) -> Any:
        """Standard deviations of the outputs in physical units from scaled ones; any leading axes."""
        return s * self.output_scale

    def to_dict(self) -> dict[str, float | list[float]]:
        """Plain numbers and lists, for JSON."""
        return {f.name: np.asarray(getattr(self, f.name)).tolist() for f in dataclasses.fields(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Scaling":
        """The inverse of `to_dict`."""
        names = {f.name for f in dataclasses.fields(cls)}
        if set(values) != names:
            wrong = sorted(names.symmetric_difference(values))
            raise DataError(f"a stored scaling must have {sorted(names)}; missing or unknown: {wrong}; refit it")
        fields: dict[str, Any] = {name: _numbers(value, name) for name, value in values.items()}
        if fields["time_scale"].ndim:
            raise DataError(f"time_scale of a scaling must be one number; found {values['time_scale']}; change it")
        time_scale = float(fields.pop("time_scale"))
        return cls(time_scale=time_scale, **fields)


def save_data(data: Dataset, path: str | Path) -> None:
    """Write a data set to `path`, whole or not at all; the suffix .nc, .npz or .csv chooses the format.

    NetCDF (version 3) and NPZ keep everything bit for bit. CSV keeps names and numbers, one row a time point,
    in the columns trajectory, time, x:INPUT, y:OUTPUT, h0:NUMBER, condition, unit; physical units and
    attributes are not in it.
    """
    from langenode import datafiles

    datafiles.write(data, Path(path))


def load_data(
    path: str | Path,
    *,
    trajectory: str | None = None,
    time: str | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    initial: Sequence[str] | None = None,
    condition: str | None = None,
    unit: str | None = None,
) -> Dataset:
    """Read a data set from a .nc, .npz or .csv file that `save_data` wrote or whose columns are named here.

    A CSV file has one row a time point and an empty cell where a value is missing. Columns not named here are
    found by the names that `save_data` writes; without a trajectory column the file is one trajectory. In a
    foreign .nc or .npz file the names are of variables over (trajectory, time), or (time,) where shared;
    those of the start, condition and unit are over (trajectory,).
    """
    from langenode import datafiles

    columns = datafiles.Columns(trajectory, time, inputs, outputs, initial, condition, unit)
    return datafiles.read(Path(path), columns)


def _store(record: Any, values: Mapping[str, Any]) -> None:
    """Set fields of a frozen record while it is being made; its arrays become read-only."""
    for name, value in values.items():
        for array in value.values() if isinstance(value, Mapping) else (value,):
            if isinstance(array, np.ndarray):
                array.setflags(write=False)
        object.__setattr__(record, name, value)


def _raw(values: Any, name: str) -> np.ndarray:
    """A NumPy array of whatever was given, if it is rectangular."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be a rectangular array; {error}; pad it or use from_list") from error


def _numbers(values: Any, name: str) -> np.ndarray:
    """A fresh float64 copy, if these are real numbers."""
    array = _raw(values, name)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name} must be real numbers; found {array.dtype} values; convert them first")
    return array.astype(np.float64)


def _integers(values: Any, name: str) -> np.ndarray:
    """A fresh int64 copy, if these are whole numbers by type."""
    array = _raw(values, name)
    if array.dtype.kind not in "iu" and array.size:
        raise DataError(f"{name} must be whole numbers; found {array.dtype} values; use from_arrays for labels")
    return array.astype(np.int64)


def _booleans(values: Any, name: str) -> np.ndarray:
    """A fresh bool copy, if these are Booleans by type."""
    array = _raw(values, name)
    if array.dtype.kind != "b" and array.size:
        raise DataError(f"{name} must be True or False; found {array.dtype} values; convert it with astype(bool)")
    return array.astype(bool)


def _cast(array: np.ndarray, dtype: np.dtype, name: str) -> np.ndarray:
    """The array in a floating type, if its numbers are still finite there."""
    if not jnp.issubdtype(dtype, jnp.floating):
        raise DataError(f"arrays must have a floating type; got {dtype}; use float32 or float64")
    with np.errstate(over="ignore"):
        cast = array.astype(dtype)
    if not np.all(np.isfinite(cast)):
        raise DataError(f"{name} must be finite in {dtype}; some overflow; scale the data or use float64")
    return cast


def _with_channel(array: np.ndarray, name: str) -> np.ndarray:
    """Give (traj, time) a trailing axis of one column."""
    if array.ndim == 2:
        return array[..., None]
    if array.ndim != 3:
        raise DataError(f"{name} must be (traj, time, column) or (traj, time); found shape {array.shape}; reshape it")
    return array


def _broadcast(array: np.ndarray, shape: tuple[int, ...], name: str) -> np.ndarray:
    try:
        return np.broadcast_to(array, shape)
    except ValueError as error:
        raise DataError(f"{name} must fit the shape {shape} of the outputs; found {array.shape}; reshape it") from error


def _stack(rows: Sequence[np.ndarray], name: str) -> np.ndarray:
    if len({row.shape for row in rows}) > 1:
        shapes = sorted({row.shape for row in rows})
        raise DataError(f"{name} must have one shape in all trajectories; found {shapes}; make them equal")
    return np.stack(rows)


def _padded(rows: Sequence[np.ndarray], name: str, fill: str) -> np.ndarray:
    """Stack arrays of unequal length; the tail repeats the last row ("edge") or is zero."""
    longest = max(len(row) for row in rows)
    widths = [[(0, longest - len(row))] + [(0, 0)] * (row.ndim - 1) for row in rows]
    mode = "edge" if fill == "edge" else "constant"
    return _stack([np.pad(row, width, mode=mode) for row, width in zip(rows, widths, strict=True)], name)


def _number_labels(labels: Any, num: int, name: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Number labels compactly in sorted order; the labels themselves, as text, are the names."""
    array = _raw(labels, name)
    if array.dtype.kind in "OT":
        if not all(isinstance(label, str) for label in array.flat):
            raise DataError(f"{name} must be labels, all text or all numbers; found a mixture; convert them first")
        array = array.astype(str)
    if array.shape != (num,):
        raise DataError(f"{name} must be one label a trajectory, shape ({num},); found {array.shape}; reshape it")
    if array.dtype.kind not in "iuUfb" or (array.dtype.kind == "f" and not np.all(np.isfinite(array))):
        raise DataError(f"{name} must be text or finite numbers; found {array.dtype} values; label all trajectories")
    # Text such as "2" and "10" (from a file) is put in the order of the numbers it stands for.
    if array.dtype.kind == "U" and num and all(text.isdecimal() and str(int(text)) == text for text in array):
        array = array.astype(np.int64)
    values, codes = np.unique(array, return_inverse=True)
    return codes, tuple(str(value) for value in values)


def _condition_labels(condition: Any, times: np.ndarray, inputs: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """The given conditions, or one for each distinct pair of times and inputs in order of appearance."""
    if condition is not None:
        return _number_labels(condition, len(times), "condition")
    seen: dict[bytes, int] = {}
    # Adding 0.0 turns -0.0 into 0.0: equal numbers must have equal bytes.
    keys = [(row + 0.0).tobytes() + (path + 0.0).tobytes() for row, path in zip(times, inputs, strict=True)]
    codes = np.array([seen.setdefault(key, len(seen)) for key in keys], dtype=np.int64)
    return codes, tuple(str(i) for i in range(len(seen)))


def _valid_lengths(times: np.ndarray) -> Int[np.ndarray, " traj"]:
    """One more than the number of leading positive time steps."""
    if times.shape[1] == 0:
        return np.zeros(len(times), dtype=np.int64)
    return 1 + np.logical_and.accumulate(np.diff(times, axis=1) > 0, axis=1).sum(axis=1)


def _check_shapes(arrays: Mapping[str, np.ndarray]) -> None:
    if arrays["outputs"].ndim != 3 or arrays["inputs"].ndim != 3:
        raise DataError(
            f"inputs and outputs must be (traj, time, column); found {arrays['inputs'].shape} and "
            f"{arrays['outputs'].shape}; reshape them"
        )
    num, steps, width = arrays["outputs"].shape
    if width == 0 or (steps == 0 and num > 0):
        raise DataError(f"data needs an output column and a time point; outputs are {(num, steps, width)}; add them")
    wanted = {
        "times": (num, steps),
        "inputs": (num, steps, arrays["inputs"].shape[2]),
        "mask": (num, steps, width),
        "condition": (num,),
        "unit": (num,),
    }
    if "initial" in arrays:
        wanted["initial"] = (num, arrays["initial"].shape[-1] if arrays["initial"].ndim else 0)
    for name, shape in wanted.items():
        if arrays[name].shape != shape:
            raise DataError(
                f"{name} must have shape {shape} to match outputs of {(num, steps, width)}; "
                f"found {arrays[name].shape}; reshape it"
            )


def _check_times(times: np.ndarray) -> None:
    if not np.all(np.isfinite(times)):
        i, j = np.argwhere(~np.isfinite(times))[0]
        raise DataError(f"times must be finite; trajectory {i} has {times[i, j]} at index {j}; drop that row")
    padding = np.arange(1, times.shape[1]) >= _valid_lengths(times)[:, None]
    wrong = padding & (np.diff(times, axis=1) != 0)
    if wrong.any():
        i = np.argwhere(wrong)[0, 0]
        j = _valid_lengths(times)[i]
        raise DataError(
            f"times must increase strictly within a trajectory; trajectory {i} has {times[i, j]} after "
            f"{times[i, j - 1]} at index {j}; sort the rows and drop repeated times"
        )


def _check_inputs(arrays: Mapping[str, np.ndarray]) -> None:
    inputs = arrays["inputs"]
    if not np.all(np.isfinite(inputs)):
        i, j, k = np.argwhere(~np.isfinite(inputs))[0]
        raise DataError(
            f"inputs must be known at every time; trajectory {i} has {inputs[i, j, k]} in input {k} at index "
            f"{j}; fill the gap or drop the row"
        )
    if "initial" in arrays and not np.all(np.isfinite(arrays["initial"])):
        i = np.argwhere(~np.isfinite(arrays["initial"]))[0, 0]
        raise DataError(f"initial must be finite; trajectory {i} has {arrays['initial'][i]}; fill it or leave it out")
    if len(inputs) == 0:
        return
    lengths = _valid_lengths(arrays["times"])
    last = inputs[np.arange(len(inputs)), lengths - 1][:, None]
    padding = np.arange(inputs.shape[1]) >= lengths[:, None]
    wrong = padding & np.any(inputs != last, axis=2)
    if wrong.any():
        i, j = np.argwhere(wrong)[0]
        raise DataError(
            "inputs must repeat the last valid row where the last time is repeated (padding); trajectory "
            f"{i} does not at index {j}; drop repeated times or use from_list"
        )


def _check_outputs(arrays: Mapping[str, np.ndarray]) -> None:
    outputs, mask = arrays["outputs"], arrays["mask"]
    wrong = mask & ~np.isfinite(outputs)
    if wrong.any():
        i, j, k = np.argwhere(wrong)[0]
        raise DataError(
            f"observed outputs must be finite; trajectory {i} has {outputs[i, j, k]} in output {k} at index "
            f"{j}; set its mask to False"
        )
    padding = np.arange(mask.shape[1]) >= _valid_lengths(arrays["times"])[:, None]
    wrong = padding & mask.any(axis=2)
    if wrong.any():
        i, j = np.argwhere(wrong)[0]
        raise DataError(
            f"a repeated last time is padding and must be masked; trajectory {i} has an output at index {j}; "
            "drop the repeated time or set its mask to False"
        )
    blank = np.flatnonzero(~mask.any(axis=(1, 2)))
    if blank.size:
        raise DataError(f"a trajectory needs at least one observed output; trajectory {blank[0]} has none; drop it")


def _check_conditions(arrays: Mapping[str, np.ndarray]) -> None:
    condition = arrays["condition"]
    for name in ("condition", "unit"):
        found = np.unique(arrays[name])
        if not np.array_equal(found, np.arange(len(found))):
            raise DataError(
                f"{name} must use every number from 0 to its highest; found {found[:5]}...; "
                "number them so or give them as labels to from_arrays"
            )
    _, first = np.unique(condition, return_index=True)
    for name in ("times", "inputs"):
        differs = arrays[name] != arrays[name][first[condition]]
        wrong = np.flatnonzero(differs.any(axis=tuple(range(1, differs.ndim))))
        if wrong.size:
            i, label = wrong[0], condition[wrong[0]]
            raise DataError(
                f"trajectories of one condition must share times and inputs; the {name} of trajectory {i} in "
                f"condition {label} differ from those of trajectory {first[label]}; "
                "give it another condition or use from_list"
            )


def _checked_names(data: Dataset) -> dict[str, tuple[str, ...]]:
    """Names of columns, conditions and units, by default their numbers."""
    counts = {
        "input_names": (data.inputs.shape[2], "x"),
        "output_names": (data.outputs.shape[2], "y"),
        "condition_names": (int(data.condition.max(initial=-1)) + 1, ""),
        "unit_names": (int(data.unit.max(initial=-1)) + 1, ""),
    }
    checked = {}
    for field, (count, prefix) in counts.items():
        names = tuple(getattr(data, field)) or tuple(f"{prefix}{i}" for i in range(count))
        if len(names) != count:
            raise DataError(f"{field} must have {count} names; found {len(names)}; name each one once")
        if len(set(names)) != count or not all(isinstance(name, str) and name for name in names):
            raise DataError(f"{field} must be distinct and not empty; found {list(names)[:8]}; rename them")
        checked[field] = names
    return checked


def _checked_attributes(attributes: Mapping[str, Any], num: int) -> dict[str, np.ndarray]:
    checked = {name: _numbers(values, f"attribute {name}") for name, values in attributes.items()}
    for name, values in checked.items():
        if values.ndim == 0 or len(values) != num:
            raise DataError(
                f"attribute {name} must have one entry for each of {num} trajectories; "
                f"found shape {values.shape}; reshape it"
            )
    return checked


def _positions(index: Any, num: int) -> np.ndarray:
    """The numbers of the trajectories that a NumPy index takes."""
    if not isinstance(index, slice):
        index = np.atleast_1d(_raw(index, "index"))
        index = index if index.size else index.astype(np.int64)
    try:
        chosen = np.arange(num)[index]
    except IndexError as error:
        raise DataError(f"an index must take some of the {num} trajectories; {error}; change it") from error
    if chosen.ndim != 1:
        raise DataError(f"an index must have one axis; found {chosen.ndim}; flatten it")
    return chosen


def _allocate(fractions: np.ndarray, count: int) -> np.ndarray:
    """Whole numbers near `fractions * count` that sum to `count`, at least 1 for a positive fraction."""
    shares = fractions / fractions.sum() * count
    # The small shift keeps 0.7 * 10 at 7, whichever way it was rounded.
    counts = np.maximum(np.floor(shares + 1e-9), fractions > 0).astype(int)
    while counts.sum() < count:
        counts[np.argmax(shares - counts)] += 1
    while counts.sum() > count:
        counts[np.argmax(np.where(counts > 1, counts - shares, -np.inf))] -= 1
    return counts


def _members(unit: np.ndarray, condition: np.ndarray) -> tuple[np.ndarray, int]:
    """The member number of each trajectory and how many members there are."""
    pairs = np.stack([unit, condition], axis=1)
    distinct, first, counts = np.unique(pairs, axis=0, return_index=True, return_counts=True)
    crossed = len(distinct) > len(np.unique(distinct[:, 0]))
    if not crossed:
        order = np.argsort(condition, kind="stable")
        start = np.searchsorted(condition[order], condition[order])
        member = np.empty_like(condition)
        member[order] = np.arange(len(condition)) - start
        return member, int(member.max(initial=-1)) + 1
    if counts.max() > 1:
        twice = first[np.argmax(counts)]
        raise DataError(
            f"units crossed with conditions must have one trajectory in each; unit {unit[twice]} has "
            f"{counts.max()} in condition {condition[twice]}; number these as different units"
        )
    return unit, int(unit.max()) + 1


def _moments(values: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation, or scale 1 where values differ by rounding only.

    All sums run over numbers of order 1, so columns of 1e-200 or 1e200 neither underflow nor overflow.
    """
    if values.size == 0:
        return 0.0, 1.0
    peak = float(np.abs(values).max())
    if values.max() / 2 - values.min() / 2 <= 4 * np.finfo(np.float64).eps * peak:
        return float(values[0]), 1.0
    relative = values / peak
    mean = relative.mean()
    spread = np.abs(relative - mean).max()
    deviation = spread * np.sqrt(np.mean(((relative - mean) / spread) ** 2))
    return float(mean * peak), float(deviation * peak)


_KEYS = ("times", "outputs", "inputs", "mask", "initial", "condition", "unit", "attributes")


def _record(raw: Mapping[str, Any], index: int) -> dict[str, Any]:
    """One trajectory of a list with its arrays in full: times, outputs, mask, inputs and attributes."""
    if not {"times", "outputs"} <= set(raw) <= set(_KEYS):
        found = ", ".join(map(str, raw))
        raise DataError(
            f"a trajectory must have times and outputs, and may have {', '.join(_KEYS[2:])}; "
            f"trajectory {index} has {found}; rename its keys"
        )
    record = {key: value for key, value in raw.items() if value is not None}
    times = _numbers(raw["times"], f"times of trajectory {index}")
    if times.ndim != 1 or len(times) == 0 or not np.all(np.diff(times) > 0):
        raise DataError(
            f"times must increase strictly along one axis; in trajectory {index}, of shape {times.shape}, "
            "they do not; sort the rows and drop repeated times"
        )
    outputs = _numbers(raw["outputs"], f"outputs of trajectory {index}")
    record |= {"times": times, "outputs": outputs}
    record["inputs"] = _numbers(record.get("inputs", np.zeros((len(times), 0))), f"inputs of trajectory {index}")
    record["mask"] = _booleans(record["mask"], "mask") if "mask" in record else ~np.isnan(outputs)
    for key in ("outputs", "mask", "inputs"):
        record[key] = record[key][:, None] if record[key].ndim == 1 else record[key]
        if record[key].ndim != 2 or len(record[key]) != len(times):
            raise DataError(
                f"{key} must be (time, column) with {len(times)} rows; trajectory {index} has shape "
                f"{record[key].shape}; reshape it"
            )
    attributes = record.get("attributes", {})
    record["attributes"] = {name: _numbers(value, name) for name, value in attributes.items()}
    if "initial" in record:
        record["initial"] = np.atleast_1d(_numbers(record["initial"], "initial"))
    return record


def _check_same_keys(records: Sequence[Mapping[str, Any]]) -> None:
    for index, record in enumerate(records):
        for part, first in ((record, records[0]), (record["attributes"], records[0]["attributes"])):
            if set(part) != set(first):
                wrong = sorted(set(part).symmetric_difference(first))
                raise DataError(f"all trajectories must have the same keys; {index} and 0 differ in {wrong}; add them")


def _on_union_grids(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Put the replicates of each condition on the union of their times, missing where not observed."""
    groups: dict[Any, list[int]] = {}
    for index, record in enumerate(records):
        groups.setdefault(record["condition"], []).append(index)
    placed: list[dict[str, Any]] = [dict(record) for record in records]
    for members in groups.values():
        grid = np.unique(np.concatenate([records[i]["times"] for i in members]))
        if all(len(records[i]["times"]) == len(grid) for i in members):
            continue
        inputs = _inputs_on_union(records, members, grid)
        for i in members:
            rows = np.searchsorted(grid, records[i]["times"])
            placed[i] |= {"times": grid, "inputs": inputs}
            for key in ("outputs", "mask"):
                values = records[i][key]
                placed[i][key] = np.zeros((len(grid), values.shape[1]), dtype=values.dtype)
                placed[i][key][rows] = values
    return placed


def _inputs_on_union(records: Sequence[Mapping[str, Any]], members: Sequence[int], grid: np.ndarray) -> np.ndarray:
    """The inputs of one condition on the union of its replicates' times, if the replicates agree on them."""
    inputs = np.full((len(grid), _stack([records[i]["inputs"][0] for i in members], "inputs").shape[1]), np.nan)
    for i in members:
        rows = np.searchsorted(grid, records[i]["times"])
        known = ~np.isnan(inputs[rows]).any(axis=1)
        wrong = known & np.any(inputs[rows] != records[i]["inputs"], axis=1)
        if wrong.any():
            raise DataError(
                f"replicates of a condition must have the same inputs at the same time; trajectory {i} in "
                f"condition {records[i]['condition']} differs at time {grid[rows][wrong][0]}; "
                "give it another condition"
            )
        inputs[rows] = records[i]["inputs"]
    # Without shared times the values could come from two different loadings: the paths must agree as well.
    tolerance = 0.01 * np.ptp(inputs, axis=0) if inputs.size else 0.0
    for i in members:
        times, own = records[i]["times"], records[i]["inputs"]
        inside = (grid >= times[0]) & (grid <= times[-1])
        path = np.stack([np.interp(grid[inside], times, column) for column in own.T], -1) if own.size else own[:0]
        if own.size and np.any(np.abs(path - inputs[inside]) > tolerance):
            raise DataError(
                f"replicates of a condition must follow the same inputs; trajectory {i} in condition "
                f"{records[i]['condition']} is over 1 % off the others between its time points; "
                "give inputs on a common grid or another condition"
            )
    return inputs
