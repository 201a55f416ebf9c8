"""Adam and L-BFGS for a function of one array of weights that returns its value and its gradient.

They run outside compiled code and call one compiled program, the function: a loop that is compiled as a whole, with a
line search in it, takes several times as long to compile, for most data longer than the search itself.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from langenode._types import Float

# Memory of the gradient's mean and of its square, and what is added to the root of the latter.
ADAM = (0.9, 0.999, 1e-8)
# What the rate of Adam falls to, of the first.
FINAL_RATE = 0.05
# Pairs of steps and changes of the gradient that L-BFGS remembers.
MEMORY = 10
# Of the fall that the slope promises, the least that a step must reach; and the most of the slope that may be left.
LEAST_FALL, MOST_SLOPE = 1e-4, 0.9
MOST_TRIALS = 25

Function = Callable[[Float[np.ndarray, " weight"]], tuple[float, Float[np.ndarray, " weight"]]]
OnDone = Callable[[int], None]


class Descent(NamedTuple):
    """The weights at the end, and values on the way: before every step of Adam; of L-BFGS also after the last."""

    weights: Float[np.ndarray, " weight"]
    values: Float[np.ndarray, " step"]


# Numbers that leave the range are found by their values, not by NumPy's warnings.
quiet = np.errstate(over="ignore", invalid="ignore", divide="ignore")


@quiet
def adam(
    function: Function, start: Float[np.ndarray, " weight"], rate: float, num_steps: int, on_done: OnDone
) -> Descent:
    """Take steps of Adam (Kingma and Ba 2015) on a cosine schedule, with gradients of at most length one."""
    weights, mean, square, values = start, np.zeros_like(start), np.zeros_like(start), np.empty(num_steps)
    for step in range(num_steps):
        values[step], slope = function(weights)
        slope = slope / max(float(np.linalg.norm(slope)), 1.0)
        mean = ADAM[0] * mean + (1.0 - ADAM[0]) * slope
        square = ADAM[1] * square + (1.0 - ADAM[1]) * slope**2
        size = np.sqrt(square / (1.0 - ADAM[1] ** (step + 1))) + ADAM[2]
        fall = 0.5 * (1.0 + math.cos(math.pi * step / num_steps))
        current = rate * (FINAL_RATE + (1.0 - FINAL_RATE) * fall)
        weights = weights - current * mean / (1.0 - ADAM[0] ** (step + 1)) / size
        on_done(step + 1)
    return Descent(weights, values)


@quiet
def l_bfgs(function: Function, start: Float[np.ndarray, " weight"], num_steps: int, on_done: OnDone) -> Descent:
    """Take at most that many steps of L-BFGS (Nocedal and Wright 2006, chapter 7), each of which lowers the value."""
    weights, (value, slope) = start, function(start)
    values, pairs = [value], deque(maxlen=MEMORY)
    for step in range(num_steps if math.isfinite(value) else 0):
        direction = -_times_inverse_hessian(slope, pairs)
        if not slope @ direction < 0.0:  # at a minimum, or no gradient there
            break
        first = 1.0 if pairs else min(1.0, 1.0 / float(np.linalg.norm(slope)))
        found = _along(function, weights, direction, value, float(slope @ direction), first)
        if found is None:
            break
        length, new_value, new_slope = found
        change, turn = length * direction, new_slope - slope
        if change @ turn > 1e-12 * float(np.linalg.norm(change)) * float(np.linalg.norm(turn)):
            pairs.append((change, turn))
        weights, value, slope = weights + change, new_value, new_slope
        values.append(value)
        on_done(step + 1)
    return Descent(weights, np.array(values))


def _times_inverse_hessian(slope: np.ndarray, pairs: deque) -> np.ndarray:
    """Return the gradient times the inverse Hessian that the remembered pairs describe, by two loops over them."""
    vector, shares = slope.copy(), []
    for change, turn in reversed(pairs):
        shares.append((change @ vector) / (change @ turn))
        vector -= shares[-1] * turn
    if pairs:
        change, turn = pairs[-1]
        vector *= (change @ turn) / (turn @ turn)
    for (change, turn), share in zip(pairs, reversed(shares), strict=True):
        vector += (share - (turn @ vector) / (change @ turn)) * change
    return vector


def _along(
    function: Function, weights: np.ndarray, direction: np.ndarray, value: float, slope: float, first: float
) -> tuple[float, float, np.ndarray] | None:
    """Find a length of the step that meets the weak Wolfe conditions, by bisection; None where no length is lower.

    With them the change of the gradient along the step is positive, as L-BFGS needs it.
    """
    low, high, length, best = 0.0, math.inf, first, None
    for _ in range(MOST_TRIALS):
        new, gradient = function(weights + length * direction)
        is_finite = math.isfinite(new) and bool(np.all(np.isfinite(gradient)))
        if is_finite and new < value and (best is None or new < best[1]):
            best = (length, new, gradient)
        if not is_finite or new > value + LEAST_FALL * length * slope:
            high = length
        elif gradient @ direction < MOST_SLOPE * slope:
            low = length
        else:
            return length, new, gradient
        length = 0.5 * (low + high) if math.isfinite(high) else 2.0 * low
    return best
