"""Array aliases, and the names of the axes used in every shape annotation.

`sample`     a draw of the weights
`condition`  trajectories with the same inputs and distribution of the start
`traj`       a trajectory
`member`     a replicate of a condition: its unit where units are given
`time`, `in`, `out`, `state`   of a trajectory
`dim`        the stochastic weights, flattened
"""

from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

__all__ = ["Array", "Bool", "Float", "Int", "PRNGKeyArray"]
