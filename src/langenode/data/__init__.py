"""Trajectories: the record that every stage works on; how it is built, split, scaled and stored.

A `Dataset` states three things without which no target is defined: which trajectories are replicates of one *condition*
(same times and inputs), which *unit* (specimen or subject) each came from, and which cells were observed.

Belongs here: data sets, reading a user's files, guessing columns, scaling. Does not belong here: models, and files that
a run writes for itself (`storage`).
"""

from langenode.data.checks import DataError
from langenode.data.columns import Columns, Guess, guess_columns
from langenode.data.dataset import Dataset
from langenode.data.files import load_data, read_data, save_data
from langenode.data.fitness import FEWEST_REPLICATES, check_fittable, has_replicates
from langenode.data.noise import NoiseEstimate, estimate_noise
from langenode.data.reading import Reading
from langenode.data.refining import Refined, refine
from langenode.data.scaling import Scaling
from langenode.data.starts import from_first_complete_row, separate_by_start, starts_agree, with_observed_start
from langenode.data.summary import summarise
from langenode.data.tables import Table
from langenode.data.views import Batch, Cases, Replicates

__all__ = [
    "FEWEST_REPLICATES",
    "Batch",
    "Cases",
    "Columns",
    "DataError",
    "Dataset",
    "Guess",
    "NoiseEstimate",
    "Reading",
    "Refined",
    "Replicates",
    "Scaling",
    "Table",
    "check_fittable",
    "estimate_noise",
    "from_first_complete_row",
    "guess_columns",
    "has_replicates",
    "load_data",
    "read_data",
    "refine",
    "save_data",
    "separate_by_start",
    "starts_agree",
    "summarise",
    "with_observed_start",
]
