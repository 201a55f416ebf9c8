"""Shifts and scales that make a data set dimensionless, and their inverse."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float
from langenode.data.checks import DataError, is_constant, numbers, store, valid_cells
from langenode.data.dataset import Dataset

# What a scaling has beside shifts and scales, and which of these it is as long as.
_OPTIONAL = {"output_knee": "output_scale", "output_positive": "output_scale", "initial_knee": "initial_scale"}
# Of the logarithm of an output over its knee: a prediction that has left all bounds must stay a number.
_HIGHEST = 60.0


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Scaling:
    """Shifts and scales that make a data set dimensionless: `scaling(data)`, or `data.scaled(scaling)`.

    Per column, scaled = (value - shift) / scale. Times are divided by `time_scale`; with `from_zero` every trajectory
    first starts at time 0, which loses nothing for a model that sees only time differences and avoids cancellation for
    times such as 1.7e9 s. The arrays of the start are empty for data without a start.

    An output with a knee k above 0 is first put on the scale log(1 + y / k), as is a start with one (see `levels`).
    Outputs with a knee, and those that are `output_positive` (1, else 0), are never unscaled to less than zero.
    """

    time_scale: float
    from_zero: bool
    input_shift: np.ndarray  # (in,)
    input_scale: np.ndarray  # (in,)
    output_shift: np.ndarray  # (out,)
    output_scale: np.ndarray  # (out,)
    initial_shift: np.ndarray  # (state,)
    initial_scale: np.ndarray  # (state,)
    output_knee: np.ndarray | None = None  # (out,); None is zero for all
    output_positive: np.ndarray | None = None  # (out,)
    initial_knee: np.ndarray | None = None  # (state,)

    def __post_init__(self):
        names = [f.name for f in dataclasses.fields(self) if f.name not in ("from_zero", *_OPTIONAL)]
        fields = {name: numbers(getattr(self, name), name) for name in names}
        for name, like in _OPTIONAL.items():
            given = getattr(self, name)
            fields[name] = np.zeros_like(fields[like]) if given is None else numbers(given, name)
        for name, values in fields.items():
            if values.ndim != (0 if name == "time_scale" else 1) or not np.all(np.isfinite(values)):
                raise DataError(f"{name} of a scaling must be a vector of finite numbers; found {values}; change it")
            if name.endswith("scale") and not np.all(values > 0):
                raise DataError(f"{name} of a scaling must be positive; found {values}; use 1 for no scaling")
            if name in _OPTIONAL and (not np.all(values >= 0) or values.shape != fields[_OPTIONAL[name]].shape):
                raise DataError(f"{name} of a scaling must be one number per column, not negative; found {values}")
        for kind in ("input", "output", "initial"):
            shift, scale = fields[f"{kind}_shift"], fields[f"{kind}_scale"]
            if shift.shape != scale.shape:
                raise DataError(
                    f"a scaling needs one shift and one scale per column; {kind} has {shift.size} shifts and "
                    f"{scale.size} scales; give as many of each"
                )
        store(self, fields | {"time_scale": float(fields["time_scale"])})

    @classmethod
    def identity(cls, data: Dataset) -> "Scaling":
        """Return the scaling that changes nothing."""
        num_state = 0 if data.initial is None else data.initial.shape[1]
        return cls(
            time_scale=1.0,
            from_zero=False,
            input_shift=np.zeros(data.num_inputs),
            input_scale=np.ones(data.num_inputs),
            output_shift=np.zeros(data.num_outputs),
            output_scale=np.ones(data.num_outputs),
            initial_shift=np.zeros(num_state),
            initial_scale=np.ones(num_state),
        )

    @classmethod
    def standardise(
        cls,
        data: Dataset,
        *,
        initial_like_outputs: bool,
        knees: np.ndarray | None = None,
        positive: np.ndarray | None = None,
    ) -> "Scaling":
        """Give every column mean 0 and standard deviation 1 over its observed cells; the longest duration becomes 1.

        A constant column is only shifted. With `initial_like_outputs` the start is scaled like the outputs (a state
        that is observed directly), otherwise it is left unchanged. `knees` and `positive` are one number per output.
        """
        if data.num_trajectories == 0:
            raise DataError("standardising needs data; found no trajectory; use a part that has some")
        knees = np.zeros(data.num_outputs) if knees is None else knees
        valid = np.broadcast_to(valid_cells(data.times)[..., None], data.inputs.shape)
        input_shift, input_scale = _moments_of_columns(data.inputs, valid)
        output_shift, output_scale = _moments_of_columns(warped(data.outputs, knees), data.mask)
        duration = float((data.times[:, -1] - data.times[:, 0]).max())
        scaling = dataclasses.replace(
            cls.identity(data),
            time_scale=duration if duration > 0 else 1.0,
            from_zero=True,
            input_shift=input_shift,
            input_scale=input_scale,
            output_shift=output_shift,
            output_scale=output_scale,
            output_knee=knees,
            output_positive=positive,
        )
        if initial_like_outputs:
            starts = {"initial_shift": output_shift, "initial_scale": output_scale, "initial_knee": knees}
            scaling = dataclasses.replace(scaling, **starts)
            scaling.check_fits(data)
        return scaling

    @classmethod
    def common(cls, data: Dataset) -> "Scaling":
        """Divide all outputs by their common standard deviation, without a shift; inputs stay; the duration becomes 1.

        For components of one tensor, which a material law couples: separate scales would break the coupling.
        """
        if data.num_trajectories == 0:
            raise DataError("scaling needs data; found no trajectory; use a part that has some")
        _, spread = moments(data.outputs[data.mask])
        duration = float((data.times[:, -1] - data.times[:, 0]).max())
        return dataclasses.replace(
            cls.identity(data),
            time_scale=duration if duration > 0 else 1.0,
            from_zero=True,
            output_scale=np.full(data.num_outputs, spread),
        )

    def __call__(self, data: Dataset) -> Dataset:
        """Scale times, inputs, outputs and start; a column that changes loses its physical unit."""
        self.check_fits(data)
        names = ("time", *data.input_names, *data.output_names)
        shifts = np.concatenate([[0.0], self.input_shift, self.output_shift])
        scales = np.concatenate([[self.time_scale], self.input_scale, self.output_scale])
        is_warped = np.concatenate([np.zeros(1 + len(self.input_scale)), self.knees]) > 0
        changed = {names[i] for i in np.flatnonzero((shifts != 0) | (scales != 1) | is_warped)}
        start = None
        if data.initial is not None:
            assert self.initial_knee is not None
            start = (warped(data.initial, self.initial_knee) - self.initial_shift) / self.initial_scale
        return dataclasses.replace(
            data,
            times=(data.times - (data.times[:, :1] if self.from_zero else 0.0)) / self.time_scale,
            inputs=(data.inputs - self.input_shift) / self.input_scale,
            outputs=self.scale_outputs(data.outputs),
            initial=start,
            units={name: unit for name, unit in data.units.items() if name not in changed},
        )

    def check_fits(self, data: Dataset) -> None:
        """Raise a `DataError` unless this scaling has a number for every column of `data`."""
        widths = {"input": data.num_inputs, "output": data.num_outputs}
        if data.initial is not None:
            widths["initial"] = data.initial.shape[1]
        for kind, width in widths.items():
            found = getattr(self, f"{kind}_scale").size
            if found != width:
                raise DataError(
                    f"a scaling must have one number per column; it has {found} for {width} columns of {kind}; "
                    "make it from data with the same columns"
                )

    @property
    def knees(self) -> np.ndarray:
        """The knees of the outputs, 0 for linear ones."""
        assert self.output_knee is not None
        return self.output_knee

    @property
    def is_positive(self) -> np.ndarray:
        """Which outputs are never negative."""
        assert self.output_positive is not None
        return (self.knees > 0) | (self.output_positive > 0)

    def scale_outputs(self, y: Float[np.ndarray, "*batch out"]) -> Any:
        """Return outputs in physical units scaled; any leading axes. Below zero a scale with a knee ends."""
        return (warped(y, self.knees) - self.output_shift) / self.output_scale

    def unscale_outputs(self, y: Float[Array | np.ndarray, "*batch out"]) -> Any:
        """Return scaled outputs in physical units; any leading axes."""
        y = y * self.output_scale + self.output_shift
        if not self.is_positive.any():
            return y
        lib = jnp if isinstance(y, jax.Array) else np
        safe = np.where(self.knees > 0, self.knees, 1.0)
        y = lib.where(self.knees > 0, safe * lib.expm1(lib.minimum(y, _HIGHEST)), y)
        return lib.where(self.is_positive, lib.maximum(y, 0.0), y)

    def slope_at(self, y: Float[np.ndarray, "*batch out"]) -> Any:
        """Return by how much scaled outputs change with those in physical units, at these values of the latter."""
        safe = np.where(self.knees > 0, self.knees + np.maximum(y, 0.0), 1.0)
        return 1.0 / (safe * self.output_scale)

    def to_dict(self) -> dict[str, float | list[float]]:
        """Return plain numbers and lists, for JSON."""
        return {f.name: np.asarray(getattr(self, f.name)).tolist() for f in dataclasses.fields(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Scaling":
        """Build a scaling from the result of `to_dict`."""
        names = {f.name for f in dataclasses.fields(cls)}
        if not names - set(_OPTIONAL) <= set(values) <= names:
            wrong = sorted(names.symmetric_difference(values))
            raise DataError(f"a stored scaling must have {sorted(names)}; missing or unknown: {wrong}; refit it")
        fields: dict[str, Any] = {name: numbers(value, name) for name, value in values.items() if name != "from_zero"}
        if fields["time_scale"].ndim:
            raise DataError(f"time_scale of a scaling must be one number; found {values['time_scale']}; change it")
        time_scale = float(fields.pop("time_scale"))
        return cls(time_scale=time_scale, from_zero=bool(values["from_zero"]), **fields)


def warped(values: np.ndarray, knees: np.ndarray) -> np.ndarray:
    """Return columns with a knee k above 0 on the scale log(1 + y / k), and the others as they are."""
    safe = np.where(knees > 0, knees, 1.0)
    return np.where(knees > 0, np.log1p(np.maximum(values, 0.0) / safe), values)


def _moments_of_columns(values: np.ndarray, observed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the shift and the scale of each column over its observed cells."""
    pairs = [moments(values[..., i][observed[..., i]]) for i in range(values.shape[-1])]
    shifts, scales = np.array(pairs).reshape(-1, 2).T
    return shifts, scales


def moments(values: np.ndarray) -> tuple[float, float]:
    """Return mean and standard deviation, the latter replaced by 1 where values differ by rounding only.

    All sums run over numbers of order 1, so columns of 1e-200 or 1e200 neither underflow nor overflow.
    """
    if values.size == 0:
        return 0.0, 1.0
    if is_constant(values):
        return float(values[0]), 1.0
    peak = float(np.abs(values).max())
    relative = values / peak
    mean = relative.mean()
    spread = np.abs(relative - mean).max()
    deviation = spread * np.sqrt(np.mean(((relative - mean) / spread) ** 2))
    return float(mean * peak), float(deviation * peak)
