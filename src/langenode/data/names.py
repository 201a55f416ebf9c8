"""What column names usually mean: the vocabulary by which columns are guessed. Accents and case do not matter."""

import re
import unicodedata

from langenode.data.units import is_time_unit, split_unit


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_TIMES = _words("""
    time t times timestamp time_stamp datetime date_time elapsed tau seconds second secs sec milliseconds minutes mins
    hours hour hrs days weeks months years zeit zeitpunkt zeitstempel uhrzeit temps tiempo tempo tijd tid tidspunkt aika
    czas cas ido zaman timp vreme vrijeme laikas aeg waktu sekunden minuten stunden tage heures jours horas dias ore
    giorni время час χρονος 时间 時間 时刻 시간 minute ts epoch unixtime unix_time
""")
_STEPS = _words("""
    date day week month year age step steps frame cycle cycles iteration tick datum tag woche monat jahr jour annee mois
    dia ano anno fecha
""")
_TIME_WORDS = frozenset(("time", "times", "timestamp", "zeit"))
_TIME_SPANS = frozenset(("constant", "step", "delta", "interval"))
# A second column of one of these names that increases along every trajectory is the time once more.
_CALENDAR = (*_STEPS[:7], "datum", "jahr")
_TRAJECTORIES = _words("""
    trajectory traj series time_series run experiment exp trial test sim simulation curve replicate rep replica
    realization realisation case batch sequence seq path sample subject id ident identifier file source versuch messung
    essai ensayo lauf reihe
""")
_UNITS = _words("""
    unit specimen device individual patient subject animal mouse rat plant cell machine engine battery sensor person
    participant plot coupon tree chick seed country region city probe cow mare rabbit dog pig fish bird child boy girl
    student donor lot wafer tray pot leaf well tank reactor colony family household company stock station site sujet
    sujeto proband tier pflanze baum subj pid ptid
""")
_CONDITIONS = _words("condition cond protocol group regime scenario arm schedule program programme")
# As text these label a condition; as numbers they are amounts, which a model needs as an input.
_AMOUNTS = ("loading", "treatment")
# Names of what usually drives a process, and of what drives it unless a column of the first kind is there.
_DRIVES = _words("""
    u input force forcing load loading control dose drive excitation stimulus actuation setpoint set_point command
    throttle treatment feed feed_rate irradiance rainfall precipitation heater heating cooling valve pump fan pwm duty
    duty_cycle strain_rate infusion infusion_rate kraft stellgrosse heizung
""")
_WEAK_DRIVES = _words("strain current strom voltage spannung torque power leistung temperature temp temperatur")
# Words for what surrounds a process, which it hardly acts on.
_SURROUNDINGS = frozenset(_words("amb ambient air outdoor outside outdoors weather environment umgebung aussen"))
# What a letter stands for, by its unit: I [A] is a current, U [V] a voltage and no control.
_QUANTITY_OF_UNIT = {
    **dict.fromkeys(("A", "mA", "kA"), "current"),
    **dict.fromkeys(("V", "mV", "kV"), "voltage"),
    **dict.fromkeys(("°C", "degC", "C", "K", "°F", "degF"), "temperature"),
    **dict.fromkeys(("W", "kW", "mW", "MW"), "power"),
    **dict.fromkeys(("N", "kN", "mN", "MN"), "force"),
    "Nm": "torque",
}
_POSITIVE = frozenset(
    _words("""
    conc concentration weight mass size height length width area volume count counts number population density dv amount
    biomass yield cells abundance age distance circumference diameter pressure intensity titer titre viability glucose
""")
)
_SIGNED = frozenset(
    _words("""
    x y z v t temp temperature temperatur voltage current spannung strom position displacement velocity speed angle
    deflection strain stress signal phase difference delta error change log
""")
)
_COMPONENT = r"_?(\d{1,3}|[xyz]{1,2})"
_INPUT_NAME = re.compile(rf"({'|'.join(_DRIVES + _WEAK_DRIVES)})({_COMPONENT})?")
_INPUT_AFFIX = re.compile(
    r"(in|inputs?|applied|imposed|prescribed|commanded|ctrl|cmd|control)_.+|.+_(in|inputs?|setpoint|cmd|on|power)"
)
_ROW_NUMBER = re.compile(
    r"|index|idx|row|rows|row_?(number|num|nr|no|id|index|names?)|rn|unnamed_\d+|index_level_\d+|level_\d+|no|nr"
)
_COUNTER = re.compile(r"n|num|number|sample|obs|observation|point|record|line|entry|step|frame|id|occasion|visit")
_CATEGORIES = _words("""
    diet group type class variety material formulation treatment treat arm batch site race sex gender species genotype
    strain_name line cohort centre center sorte typ klasse gruppe material_id block medium brand model category cat
    ethnicity smoke phase_id method
""")
_UNIT_WORDS = frozenset(
    _words("""
    s sec secs second seconds ms us ns min mins minutes h hr hrs hour hours d days n kn mn pa kpa mpa gpa bar mbar psi c
    k degc f degf v mv kv a ma mm cm m um nm km kg g mg ug ml l hz khz rpm w kw j pct percent mol mmol deg rad
""")
)
# What numbers the parts of a record or the visits to a subject; the last are counted even without a word for number.
_PARTS = frozenset(_words("cycle step stage segment sweep loop block phase period zyklus schritt cycle_step"))
_VISITS = frozenset(_words("visit visite occasion besuch termin observation obs entry record frame"))
_REPEATS = frozenset(_words("rep replicate replica repeat repetition wiederholung run trial sample realization lauf"))
_FLAGS = re.compile(r"(.+_)?(blq|bql|bloq|lloq|below_loq|below_lod|cens|censored|censoring|qc|flag|flags)(_.+)?")
_IDENTIFIERS = frozenset(("id", "no", "nr", "num", "number", "name", "label", "index", "idx", "key", "code"))
OWN_LABELS = ("trajectory", "condition", "unit")
INPUT_PREFIXES = ("x:", "u:")
OUTPUT_PREFIX = "y:"
INITIAL_PREFIX = "h0:"


def base_name(name: str) -> str:
    """Return the name in lower case, words joined by _, without units: "Time [s]" and "t_s" give time and t."""
    text = split_unit(name)[0]
    text = re.sub(r"\[[^\[\]]*\]|\([^()]*\)|\{[^{}]*\}", " ", text).split("/")[0]
    text = unicodedata.normalize("NFKD", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)).lower()
    text = "".join(letter for letter in text if not unicodedata.combining(letter)).replace("ß", "ss")
    words = [word for word in re.split(r"[\W_]+", text) if word]
    while len(words) > 1 and words[-1] in _UNIT_WORDS:
        words.pop()
    return unicodedata.normalize("NFC", "_".join(words))


def time_rank(name: str) -> int | None:
    """Return how much a name looks like the time: lower is closer, None not at all."""
    base, words = base_name(name), base_name(name).split("_")
    unit = split_unit(name)[1]
    if name == "time":
        return 0
    if unit is not None and not is_time_unit(unit):  # t [°C] is a temperature.
        return None
    if name.strip().startswith("T") and base == "t" and unit is None:  # Usually a temperature.
        return 400
    if base in _TIMES:
        return 1 + _TIMES.index(base)
    if _TIME_WORDS & set(words) and not _TIME_SPANS & set(words):
        return 100
    return 200 + _STEPS.index(base) if base in _STEPS else None


def may_be_date_name(name: str) -> bool:
    """Whether text of this name may hold dates or times: it is named like the time, or has a word for a date."""
    return time_rank(name) is not None or bool({"date", "datum", "fecha"} & set(base_name(name).split("_")))


def is_second_time_name(name: str) -> bool:
    """Whether a column of this name, beside the time, may be the time once more."""
    rank = time_rank(name)
    return rank is not None and (rank < 200 or base_name(name) in _CALENDAR)


def trajectory_rank(name: str) -> int | None:
    """Return how much a name looks like the trajectory's, as `time_rank` does."""
    return _rank(name, _TRAJECTORIES)


def unit_rank(name: str) -> int | None:
    """Return how much a name looks like the unit's (specimen's), as `time_rank` does."""
    return _rank(name, _UNITS)


def is_label_name(name: str) -> bool:
    """Whether a column of this name labels trajectories or specimens."""
    return trajectory_rank(name) is not None or unit_rank(name) is not None


def condition_rank(name: str, is_text: bool) -> int | None:
    """Return how much a name looks like the condition's, as `time_rank` does."""
    return _rank(name, _CONDITIONS + _AMOUNTS if is_text else _CONDITIONS)


def is_category_name(name: str) -> bool:
    """Whether numbers of this name are usually codes of a category, not amounts."""
    return _rank(name, _CATEGORIES) is not None or condition_rank(name, is_text=True) is not None


def drive_rank(name: str) -> int | None:
    """Return how much a name looks like that of what drives a process: 0 surely; None not at all.

    From 1 on it is one of the quantities that drive some processes and respond in others, the likelier drives first.
    """
    base, unit = base_name(name), split_unit(name)[1]
    if name.startswith(INPUT_PREFIXES) or _INPUT_AFFIX.fullmatch(base):
        return 0
    if unit is not None and len(base) == 1:
        base = _QUANTITY_OF_UNIT.get(unit, "")
    found = _INPUT_NAME.fullmatch(base)
    if found is None:
        return 1 + len(_WEAK_DRIVES) if _SURROUNDINGS & set(base.split("_")) else None
    return 0 if found[1] in _DRIVES else 1 + _WEAK_DRIVES.index(found[1])


def is_input_name(name: str) -> bool:
    """Whether a column of this name usually drives the others."""
    return drive_rank(name) is not None


def is_signed_name(name: str) -> bool:
    """Whether a quantity of this name or unit is often negative, though its readings may not be."""
    unit = split_unit(name)[1]
    if unit in ("°C", "degC", "C", "°F", "degF", "V", "mV", "A", "mA", "°", "deg", "rad"):
        return True
    return bool(set(base_name(name).split("_")) & _SIGNED)


def is_positive_name(name: str) -> bool:
    """Whether a quantity of this name cannot be negative."""
    return bool(set(base_name(name).split("_")) & _POSITIVE)


def is_initial_name(name: str) -> bool:
    """Whether a column of this name is part of the start."""
    return name.startswith(INITIAL_PREFIX) or bool(re.fullmatch(r"h0(_\d+)?|initial(_state)?(_\d+)?", base_name(name)))


def is_row_number_name(name: str) -> bool:
    """Whether a column of this name is a row number that programs add."""
    return bool(_ROW_NUMBER.fullmatch(base_name(name)))


def is_counter_name(name: str) -> bool:
    """Whether a column of this name may count rows."""
    return bool(_COUNTER.fullmatch(base_name(name)))


def is_part_name(name: str) -> bool:
    """Whether whole numbers of this name number the parts of a record, such as `Cycle_Index` or `Step No`."""
    words = base_name(name).split("_")
    return len(words) > 1 and words[-1] in _IDENTIFIERS and "_".join(words[:-1]) in _PARTS


def is_visit_name(name: str) -> bool:
    """Whether whole numbers of this name count the times at which a unit was seen, perhaps with gaps."""
    words = base_name(name).split("_")
    words = words[:-1] if len(words) > 1 and words[-1] in _IDENTIFIERS else words
    return "_".join(words) in _VISITS


def is_repeat_name(name: str) -> bool:
    """Whether a column of this name numbers repetitions, which have nothing else in common."""
    words = base_name(name).split("_")
    words = words[:-1] if len(words) > 1 and words[-1] in _IDENTIFIERS else words
    return "_".join(words) in _REPEATS


def is_flag_name(name: str) -> bool:
    """Whether a column of this name says of a reading whether it can be relied on."""
    return bool(_FLAGS.fullmatch(base_name(name)))


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
