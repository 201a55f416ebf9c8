"""Deep ensembles."""

from typing import Any

from langenode.config import Count, DrawnOptions
from langenode.fitting.methods.base import Drawn


class Options(DrawnOptions):
    """Point estimates."""

    num_members: Count = 64
    """random starts, and draws"""


def draw(density: Any, options: Options, *, key: Any, budget: float | None) -> Any:
    """The modes that the starts lead to."""
    from langenode.samplers import ensemble

    del budget
    return ensemble(density, num_members=options.num_members, key=key)


METHOD = Drawn(name="ensemble", summary="Point estimates from many random starts.", options=Options, draw=draw)
