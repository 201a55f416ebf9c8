"""What was asked: strict TOML and overrides into frozen records.

Belongs here: every option with its meaning, layers and their order, hints for misspelt keys. Does not belong here: what
options are made into (`fitting`), and the options of a method, which its own file brings.
"""

from langenode.config.layers import (
    ConfigError,
    merge,
    merge_all,
    parse_overrides,
    read_toml,
    resolve,
    shortened,
    to_toml,
)
from langenode.config.records import (
    LARGEST_SEED,
    AtLeastTwo,
    Config,
    Count,
    DrawnOptions,
    HierarchicalConfig,
    MethodOptions,
    MLEConfig,
    ModelConfig,
    NoiseConfig,
    OutputScale,
    PopulationConfig,
    Positive,
    PredictConfig,
    PriorConfig,
    Section,
    TargetName,
    TemperedConfig,
    TrainedOptions,
    TrainingConfig,
)

__all__ = [
    "LARGEST_SEED",
    "AtLeastTwo",
    "Config",
    "ConfigError",
    "Count",
    "DrawnOptions",
    "HierarchicalConfig",
    "MLEConfig",
    "MethodOptions",
    "ModelConfig",
    "NoiseConfig",
    "OutputScale",
    "PopulationConfig",
    "Positive",
    "PredictConfig",
    "PriorConfig",
    "Section",
    "TargetName",
    "TemperedConfig",
    "TrainedOptions",
    "TrainingConfig",
    "merge",
    "merge_all",
    "parse_overrides",
    "read_toml",
    "resolve",
    "shortened",
    "to_toml",
]
