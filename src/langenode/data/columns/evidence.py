"""What the numbers of a column say about its role: prescribed from outside (an input), or a response (an output).

An input has the *form* of something prescribed: it moves in steps, follows the same path in several trajectories, or is
smooth where other columns are noisy. And it *leads*: the changes of another column depend on its present value,

    (y_{k+1} - y_k) / (t_{k+1} - t_k) = a + b y_k + b' (y_k - y_{k-1}) / (t_k - t_{k-1}) + c u_k + d u_k^2 + error,

by an F test of c = d = 0, while its own changes do not depend on theirs. A change at the same moment says nothing about
who drives whom, so only the value at the beginning of a step is looked at. The rate before is there because a smooth
path continues by itself.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from langenode.data.tables import Groups

_MOST_ROWS = 20_000
# Steps must be so many that a regression with five coefficients means something.
_FEWEST_STEPS = 12
# More than this share of unchanged values, and jumps of more than one quantum, make a path of steps.
_STILL = 0.5
_FEW_LEVELS = 4
# A column is settled where this share of at least so many trajectories does not change.
_SETTLED, _FEWEST_SETTLED = 0.7, 5
# A column is smooth where its noise is this small a part of its spread, and some other column's is this much larger.
_SMOOTH, _NOISIER = 0.01, 5.0
# A lead counts if chance gives one like it in fewer than one table of a thousand, and it explains this much.
_CHANCE, _LEAST_SHARE = 1e-3, 0.03


class Form(NamedTuple):
    """How a column moves: `kind` is steps, settled, repeated, smooth, quantised or noisy; `words` say it."""

    kind: str
    words: str

    @property
    def is_prescribed(self) -> bool:
        """Whether a response hardly ever moves like this."""
        return self.kind in ("steps", "settled", "repeated")


class Paths(NamedTuple):
    """The columns that vary within trajectories, in order of trajectory and time, and where a trajectory begins."""

    times: np.ndarray  # (row,)
    columns: Mapping[str, np.ndarray]
    starts: np.ndarray  # (traj,)

    @classmethod
    def of(cls, columns: Mapping[str, np.ndarray], times: np.ndarray, groups: Groups) -> "Paths":
        """Arrange columns of a table by trajectory, each in units of its largest number; infinite ones are missing.

        Of a long table the first trajectories are enough.
        """
        kept = groups.order[:_MOST_ROWS]
        starts = groups.starts[groups.starts < len(kept)]
        return cls(_relative(times[kept]), {name: _relative(values[kept]) for name, values in columns.items()}, starts)

    def within(self) -> np.ndarray:
        """Whether the step from a row to the next stays within a trajectory, (row - 1,)."""
        within = np.ones(max(len(self.times) - 1, 0), dtype=bool)
        within[self.starts[1:] - 1] = False
        return within


def _relative(values: np.ndarray) -> np.ndarray:
    """Return numbers in units of the largest, so that no square of one overflows."""
    finite = np.where(np.isfinite(values), values, np.nan)
    peak = np.abs(finite[~np.isnan(finite)]).max(initial=0.0)
    return finite / peak if peak > 0 else finite


def forms(paths: Paths) -> dict[str, Form]:
    """Return how every column moves; smoothness is judged against the noisiest column."""
    noise = {name: _noise(paths, values) for name, values in paths.columns.items()}
    loudest = max(noise.values(), default=0.0)
    num_paths = {name: _distinct_paths(paths, values) for name, values in paths.columns.items()}
    most = max(num_paths.values(), default=1)
    found = {}
    for name, values in paths.columns.items():
        found[name] = _stepwise(paths, values)
        if _is_settled(paths, values):
            found[name] = Form("settled", "it is constant within most trajectories")
        elif 2 * num_paths[name] <= most and found[name].kind != "steps":
            found[name] = Form("repeated", f"it follows the same path in {len(paths.starts)} trajectories")
            if num_paths[name] > 1:
                words = f"it follows only {num_paths[name]} different paths in {len(paths.starts)} trajectories"
                found[name] = Form("repeated", words)
        elif found[name].kind == "noisy" and noise[name] < _SMOOTH and noise[name] * _NOISIER < loudest:
            found[name] = Form("smooth", "it is smooth where others are noisy")
    return found


def lead(paths: Paths, cause: str, effect: str) -> float:
    """Return which share of the effect's changes the cause's value explains; 0 where chance could do as much."""
    within, dt = paths.within(), np.diff(paths.times)
    with np.errstate(all="ignore"):
        rates = np.where(within & (dt > 0), np.diff(paths.columns[effect]) / dt, np.nan)
    before, rate = rates[:-1], rates[1:]
    u, y = paths.columns[cause][1:-1], paths.columns[effect][1:-1]
    usable = np.isfinite(before) & np.isfinite(rate) & np.isfinite(u)
    num = int(usable.sum())
    if num < _FEWEST_STEPS:
        return 0.0
    rate, before, y, u = (_standard(values[usable]) for values in (rate, before, y, u))
    plain = np.stack([np.ones(num), y, before], axis=1)
    full = np.column_stack([plain, u, u**2])
    without, with_cause = _squares(plain, rate), _squares(full, rate)
    if not without > 1e-12 * num:
        return 0.0
    share = 1.0 - with_cause / without
    return share if share >= _LEAST_SHARE and _chance_of(share, 2, num - 5) < _CHANCE else 0.0


def _chance_of(share: float, num_added: int, num_left: int) -> float:
    """Return how often chance explains a larger share: the tail of the F distribution, by its relation to the beta."""
    from scipy.special import betainc

    return float(betainc(num_left / 2, num_added / 2, 1.0 - share)) if num_left > 0 else 1.0


def _squares(design: np.ndarray, values: np.ndarray) -> float:
    coefficients = np.linalg.lstsq(design, values, rcond=None)[0]
    return float(((values - design @ coefficients) ** 2).sum())


def _standard(values: np.ndarray) -> np.ndarray:
    """Centre and scale by quantiles, and clip: a single wild number must not decide."""
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
    scale = max(high - low, float(np.std(values)) * 1e-3)
    return np.clip((values - middle) / scale, -5.0, 5.0) if scale > 0 else np.zeros_like(values)


def _stepwise(paths: Paths, values: np.ndarray) -> Form:
    """Return whether a column moves in steps, or by quanta of a coarse reading, or neither."""
    seen = values[np.isfinite(values)]
    levels = np.unique(seen)
    jumps = np.abs(np.diff(values)[paths.within()])
    jumps = jumps[np.isfinite(jumps)]
    if jumps.size < _FEWEST_STEPS or (jumps == 0).mean() < _STILL or len(levels) < 2:
        return Form("noisy", "it varies all the time")
    quantum = np.diff(levels).min()
    is_large = jumps[jumps > 0] > 1.5 * quantum
    if len(levels) <= _FEW_LEVELS:
        return Form("steps", f"it moves in steps between {len(levels)} values")
    if is_large.mean() >= 0.3:
        return Form("steps", "it moves in steps")
    return Form("quantised", "it moves by single steps of its resolution")


def _is_settled(paths: Paths, values: np.ndarray) -> bool:
    """Whether a column is constant within nearly all trajectories that have several rows, and differs between them."""
    parts = [part[np.isfinite(part)] for part in np.split(values, paths.starts[1:])]
    parts = [part for part in parts if len(part) > 1]
    if len(parts) < _FEWEST_SETTLED:
        return False
    share = float(np.mean([np.ptp(part) == 0 for part in parts]))
    return bool(share >= _SETTLED and np.ptp([part[0] for part in parts]) > 0)


def _distinct_paths(paths: Paths, values: np.ndarray) -> int:
    """Return how many different paths there are; trajectories of unequal times are compared by their values alone."""
    parts = np.split(values, paths.starts[1:])
    return len({(part + 0.0).tobytes() for part in parts})


def _noise(paths: Paths, values: np.ndarray) -> float:
    """Return the noise of a column as a part of its spread.

    A reading is compared with the cubic through two neighbours on either side, which leaves the noise, enlarged by a
    known factor, and hardly anything of a path that the readings resolve.
    """
    t, inside = paths.times, paths.within()
    k = np.arange(2, max(len(t) - 2, 2))
    k = k[inside[k - 2] & inside[k - 1] & inside[k] & inside[k + 1]]
    seen = values[np.isfinite(values)]
    spread = float(np.std(seen)) if seen.size else 0.0
    if len(k) < _FEWEST_STEPS // 2 or not spread > 0:
        return 0.0
    places = (-2, -1, 1, 2)
    with np.errstate(all="ignore"):
        weights = np.stack(
            [np.prod([(t[k] - t[k + j]) / (t[k + i] - t[k + j]) for j in places if j != i], axis=0) for i in places]
        )
        error = values[k] - sum(w * values[k + i] for w, i in zip(weights, places, strict=True))
        error = error / np.sqrt(1.0 + (weights**2).sum(0))
    error = error[np.isfinite(error)]
    return float(1.4826 * np.median(np.abs(error))) / spread if error.size else 0.0
