"""The roles of the columns of a table: given, found by their names, or read off their numbers."""

from langenode.data.columns.guessing import guess_columns
from langenode.data.columns.labels import can_be_made, own_labels, separators
from langenode.data.columns.melted import without_quantities
from langenode.data.columns.record import Columns, Guess
from langenode.data.doubts import Doubt

__all__ = [
    "Columns",
    "Doubt",
    "Guess",
    "can_be_made",
    "guess_columns",
    "own_labels",
    "separators",
    "without_quantities",
]
