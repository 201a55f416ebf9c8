"""Array aliases, and the names of the axes used in every shape annotation.

`sample`     a draw of the weights
`condition`  trajectories with the same inputs and distribution of the start
`traj`       a trajectory
`member`     a replicate of a condition: its unit where units are given
`time`, `in`, `out`, `state`   of a trajectory
`dim`        the stochastic weights, flattened
"""

from collections.abc import Callable

from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt

# Called between steps of long work: how many are done, of how many (None where that is not known), of which part.
OnStep = Callable[[int, int | None, str], None]

__all__ = ["Array", "Bool", "Float", "Int", "OnStep", "PRNGKeyArray", "UInt"]
