"""What column names usually mean: the vocabulary by which columns are guessed."""

import re

_TIMES = (
    *("time", "t", "times", "timestamp", "time_stamp", "datetime", "date_time", "elapsed", "tau", "seconds", "second"),
    *("secs", "sec", "milliseconds", "minutes", "mins", "hours", "hour", "hrs", "days", "weeks", "months", "years"),
)
_STEPS = (
    "date",
    "day",
    "week",
    "month",
    "year",
    "age",
    "step",
    "steps",
    "frame",
    "cycle",
    "cycles",
    "iteration",
    "tick",
)
_TRAJECTORIES = (
    *("trajectory", "traj", "series", "time_series", "run", "experiment", "exp", "trial", "test", "sim", "simulation"),
    *("curve", "replicate", "rep", "replica", "realization", "realisation", "case", "batch", "sequence", "seq", "path"),
    *("sample", "subject", "id", "ident", "identifier", "file", "source"),
)
_UNITS = (
    *("unit", "specimen", "device", "individual", "patient", "subject", "animal", "mouse", "rat", "plant", "cell"),
    *("machine", "engine", "battery", "sensor", "person", "participant", "plot", "coupon"),
)
_CONDITIONS = (
    "condition",
    "cond",
    "protocol",
    "group",
    "regime",
    "scenario",
    "arm",
    "schedule",
    "program",
    "programme",
)
# As text these label a condition; as numbers they are amounts, which a model needs as an input.
_AMOUNTS = ("loading", "treatment")
_INPUTS = (
    *(
        "u",
        "input",
        "force",
        "forcing",
        "load",
        "loading",
        "strain",
        "strain_rate",
        "control",
        "dose",
        "drive",
        "current",
    ),
    *("voltage", "temperature", "temp", "excitation", "stimulus", "actuation", "setpoint", "set_point", "command"),
    *("throttle", "torque", "treatment", "feed", "feed_rate", "irradiance", "rainfall", "precipitation"),
)
_COMPONENT = r"_?(\d{1,3}|[xyz]{1,2})"
_INPUT_NAME = re.compile(rf"({'|'.join(_INPUTS)})({_COMPONENT})?")
_INPUT_AFFIX = re.compile(
    r"(in|inputs?|applied|imposed|prescribed|commanded|ctrl|cmd|control)_.+|.+_(in|inputs?|setpoint|cmd)"
)
_ROW_NUMBER = re.compile(
    r"|index|idx|row|rows|row_?(number|num|nr|no|id|index)|unnamed_\d+|index_level_\d+|level_\d+|no|nr"
)
_COUNTER = re.compile(r"n|num|number|sample|obs|observation|point|record|line|entry|step|frame|id")
_PHYSICAL_UNITS = frozenset(
    (
        *(
            "s",
            "sec",
            "secs",
            "second",
            "seconds",
            "ms",
            "us",
            "ns",
            "min",
            "mins",
            "minutes",
            "h",
            "hr",
            "hrs",
            "hour",
        ),
        *(
            "hours",
            "d",
            "days",
            "n",
            "kn",
            "mn",
            "pa",
            "kpa",
            "mpa",
            "gpa",
            "bar",
            "mbar",
            "psi",
            "c",
            "k",
            "degc",
            "f",
        ),
        *(
            "degf",
            "v",
            "mv",
            "kv",
            "a",
            "ma",
            "mm",
            "cm",
            "m",
            "um",
            "nm",
            "km",
            "kg",
            "g",
            "mg",
            "ug",
            "ml",
            "l",
            "hz",
        ),
        *("khz", "rpm", "w", "kw", "j", "pct", "percent", "mol", "mmol", "deg", "rad"),
    )
)
_IDENTIFIERS = frozenset(("id", "no", "nr", "num", "number", "name", "label", "index", "idx", "key", "code"))
OWN_LABELS = ("trajectory", "condition", "unit")
INPUT_PREFIXES = ("x:", "u:")
OUTPUT_PREFIX = "y:"
INITIAL_PREFIX = "h0:"


def base_name(name: str) -> str:
    """Return the name in lower case, words joined by _, without units: "Time [s]" and "t_s" give time and t."""
    text = re.sub(r"\[[^\[\]]*\]|\([^()]*\)|\{[^{}]*\}", " ", name[:200]).split("/")[0]
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()
    words = [word for word in re.split(r"[^a-z0-9]+", text) if word]
    while len(words) > 1 and words[-1] in _PHYSICAL_UNITS:
        words.pop()
    return "_".join(words)


def time_rank(name: str) -> int | None:
    """Return how much a name looks like the time: lower is closer, None not at all."""
    base, words = base_name(name), base_name(name).split("_")
    if name == "time":
        return 0
    if name.strip().startswith("T") and base == "t":  # Usually a temperature.
        return 400
    if base in _TIMES:
        return 1 + _TIMES.index(base)
    if {"time", "times", "timestamp"} & set(words) and not {"constant", "step", "delta", "interval"} & set(words):
        return 100
    return 200 + _STEPS.index(base) if base in _STEPS else None


def trajectory_rank(name: str) -> int | None:
    """Return how much a name looks like the trajectory's, as `time_rank` does."""
    return _rank(name, _TRAJECTORIES)


def unit_rank(name: str) -> int | None:
    """Return how much a name looks like the unit's (specimen's), as `time_rank` does."""
    return _rank(name, _UNITS)


def condition_rank(name: str, is_text: bool) -> int | None:
    """Return how much a name looks like the condition's, as `time_rank` does."""
    return _rank(name, _CONDITIONS + _AMOUNTS if is_text else _CONDITIONS)


def is_input_name(name: str) -> bool:
    """Whether a column of this name usually drives the others."""
    base = base_name(name)
    return name.startswith(INPUT_PREFIXES) or bool(_INPUT_NAME.fullmatch(base) or _INPUT_AFFIX.fullmatch(base))


def is_initial_name(name: str) -> bool:
    """Whether a column of this name is part of the start."""
    return name.startswith(INITIAL_PREFIX) or bool(re.fullmatch(r"h0(_\d+)?|initial(_state)?(_\d+)?", base_name(name)))


def is_row_number_name(name: str) -> bool:
    """Whether a column of this name is a row number that programs add."""
    return bool(_ROW_NUMBER.fullmatch(base_name(name)))


def is_counter_name(name: str) -> bool:
    """Whether a column of this name may count rows."""
    return bool(_COUNTER.fullmatch(base_name(name)))


def without_prefix(name: str) -> str:
    """Return the quantity's name from the column name that `save_data` gives it."""
    for prefix in (*INPUT_PREFIXES, OUTPUT_PREFIX):
        if name.startswith(prefix) and name != prefix:
            return name.removeprefix(prefix)
    return name


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Return a sorting key that puts run2 before run10."""
    parts = re.split(r"(\d+)", name.lower())
    # Very long digit strings are compared as text: converting them to numbers is slow.
    return [(0, int(part), "") if part.isdecimal() and len(part) < 100 else (1, 0, part) for part in parts if part]


def _rank(name: str, vocabulary: tuple[str, ...]) -> int | None:
    words = base_name(name).split("_")
    if len(words) > 1 and words[-1] in _IDENTIFIERS:
        words = words[:-1]
    if len(words) > 1 and words[0] == "id":
        words = words[1:]
    base = "_".join(words)
    return vocabulary.index(base) if base in vocabulary else None
