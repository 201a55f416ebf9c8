"""Physical units written in column names: "T [°C]", "Current(A)", "elapsed time/s", "heater_W"."""

import re

_PREFIXED = "s m g A V W Pa N J Hz mol M L l K Ω ohm F H T bar eV Wh Ah VA S Bq Gy cal"
_PREFIXES = ("", "p", "n", "u", "µ", "μ", "m", "c", "d", "h", "k", "M", "G")
_PLAIN = """
    sec secs second seconds msec usec min mins minute minutes h hr hrs hour hours d day days wk wks week weeks mo month
    months y yr yrs year years °C degC C °F degF F deg ° rad % pct percent rpm ppm ppb psi atm mmHg torr Nm kmh mph IU
    AU a.u. au
"""
_SYMBOLS = frozenset(f"{prefix}{unit}" for prefix in _PREFIXES for unit in _PREFIXED.split()) | set(_PLAIN.split())
_TIMES = """
    s ms us µs μs ns ks sec secs second seconds msec usec min mins minute minutes h hr hrs hour hours d day days wk wks
    week weeks mo month months y yr yrs year years
"""
_BRACKETS = re.compile(r"\[([^\[\]]*)\]|\(([^()]*)\)|\{([^{}]*)\}")
# A capital alone is a unit after a word (heater_W, current_A) and a component after a letter (x_A).
_SHORTEST_BEFORE_CAPITAL = 3


def split_unit(name: str) -> tuple[str, str | None]:
    """Return a column name without its unit, and the unit: ("T", "°C") for "T [°C]"; None where it has none."""
    name = name[:200].strip()
    for found in _BRACKETS.finditer(name):
        inside = next(group for group in found.groups() if group is not None).strip()
        if is_unit(inside):
            return (name[: found.start()] + name[found.end() :]).strip(" _"), inside
    stem, mark, last = name.partition(" / ")
    if mark and is_unit(last.strip()):  # c / mol/L
        return stem.strip(" _"), last.strip()
    for mark in ("/", " in ", "_", " "):
        stem, _, last = name.rpartition(mark)
        if not stem.strip(" _") or not is_unit(last):
            continue
        if mark in ("_", " ") and last.isupper() and len(last) == 1 and len(stem) < _SHORTEST_BEFORE_CAPITAL:
            continue
        return stem.strip(" _"), last
    return name, None


def is_unit(text: str) -> bool:
    """Whether a text reads as a unit: known symbols, perhaps with powers, joined by / · * or blanks."""
    if text in _SYMBOLS:
        return True
    if not 0 < len(text) <= 24:
        return False
    parts = [re.sub(r"[\^\d²³⁻¹+-]+$", "", part) for part in re.split(r"[/·⋅*\s]+", text.strip())]
    known = [part for part in parts if part]
    return bool(known) and all(part in _SYMBOLS for part in known)


def is_time_unit(unit: str | None) -> bool:
    """Whether a unit is one of time."""
    return unit in _TIMES.split()
