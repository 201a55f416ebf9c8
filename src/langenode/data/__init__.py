"""Trajectories: the record every stage works on, how it is built, split, scaled and stored.

A `Dataset` says three things without which no target has a meaning: which trajectories are replicates of one
*condition* (same times and inputs), which *unit* (specimen) each came from, and which cells were observed.
"""

from langenode.data.checks import DataError
from langenode.data.dataset import Dataset
from langenode.data.files import load_data, save_data
from langenode.data.scaling import Scaling
from langenode.data.views import Batch, Cases, Replicates

__all__ = ["Batch", "Cases", "DataError", "Dataset", "Replicates", "Scaling", "load_data", "save_data"]
