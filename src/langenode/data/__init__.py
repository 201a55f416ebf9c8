"""Trajectories: the record that every stage works on; how it is built, split, scaled and stored.

A `Dataset` states three things without which no target is defined: which trajectories are replicates of one *condition*
(same times and inputs), which *unit* (specimen or subject) each came from, and which cells were observed.

Belongs here: data sets, reading a user's files, guessing columns, scaling. Does not belong here: models, and files that
a run writes for itself (`storage`).
"""

from langenode.data.checks import DataError, StatedColumnsError
from langenode.data.columns import Columns, Doubt, Guess, guess_columns
from langenode.data.csvfiles import table_files
from langenode.data.dataset import Dataset
from langenode.data.extent import Extent
from langenode.data.files import load_data, read_data, read_whole, save_data
from langenode.data.fitness import FEWEST_REPLICATES, check_fittable, has_replicates
from langenode.data.folds import assign_folds, by_fold, num_folds, padded
from langenode.data.jumps import with_jump_rows
from langenode.data.large import MOST_AT_ONCE, in_parts, sizes_for, some_of
from langenode.data.levels import Level, find_levels, knees, may_be_logarithmic, spread_against_level
from langenode.data.modes import FALSE_ALARMS, Modes, find_modes
from langenode.data.noise import NoiseEstimate, estimate_noise
from langenode.data.outliers import Outlier, find_outliers, robust_spread
from langenode.data.reading import Reading
from langenode.data.refining import Refined, refine
from langenode.data.scaling import Scaling
from langenode.data.size_classes import class_of, extended
from langenode.data.starts import (
    all_readings,
    from_first_complete_row,
    revealed_start,
    separate_by_start,
    starts_agree,
    starts_are_exact,
    with_observed_start,
)
from langenode.data.summary import summarise
from langenode.data.tables import Table
from langenode.data.views import Batch, Cases, Replicates
from langenode.data.windows import cut_into_windows, num_windows

__all__ = [
    "FALSE_ALARMS",
    "FEWEST_REPLICATES",
    "MOST_AT_ONCE",
    "Batch",
    "Cases",
    "Columns",
    "DataError",
    "Dataset",
    "Doubt",
    "Extent",
    "Guess",
    "Level",
    "Modes",
    "NoiseEstimate",
    "Outlier",
    "Reading",
    "Refined",
    "Replicates",
    "Scaling",
    "StatedColumnsError",
    "Table",
    "all_readings",
    "assign_folds",
    "by_fold",
    "check_fittable",
    "class_of",
    "cut_into_windows",
    "estimate_noise",
    "extended",
    "find_levels",
    "find_modes",
    "find_outliers",
    "from_first_complete_row",
    "guess_columns",
    "has_replicates",
    "in_parts",
    "knees",
    "load_data",
    "may_be_logarithmic",
    "num_folds",
    "num_windows",
    "padded",
    "read_data",
    "read_whole",
    "refine",
    "revealed_start",
    "robust_spread",
    "save_data",
    "separate_by_start",
    "sizes_for",
    "some_of",
    "spread_against_level",
    "starts_agree",
    "starts_are_exact",
    "summarise",
    "table_files",
    "with_jump_rows",
    "with_observed_start",
]
