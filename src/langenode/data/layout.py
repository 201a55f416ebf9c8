"""Where the table in a text file begins, and what separates its cells: instruments write lines above it."""

import re
from collections.abc import Sequence
from typing import NamedTuple

_DELIMITERS = (",", ";", "\t")
_SEPARATOR = re.compile(r"sep=[,;\t]\n")
_NUMBER = re.compile(r"\s*[+-]?\d*[.,]?\d+([eE][+-]?\d+)?\s*")
# Number of lines among which the header is searched for, and number of lines below it that must have as many cells.
_MOST_ABOVE, _MOST_ALIKE = 100, 5


class Layout(NamedTuple):
    """The text from the header on, the number of lines above it, and the separator of cells."""

    text: str
    above: int
    delimiter: str


def find_layout(text: str) -> Layout:
    """Find the header: the first line that is no comment and has as many cells as those below it.

    Lines above it are left out if they begin with `#` or have other numbers of cells than the table. Where there is no
    such header, the first line is taken as one, and the fault found later. Cells are separated by the most frequent of
    comma, semicolon and tab in the header, or by blanks where it has none.
    """
    separator = _SEPARATOR.match(text)
    if separator is not None:  # Spreadsheets write and read such a line.
        found = find_layout(text[separator.end() :])
        return found._replace(above=found.above + 1)
    lines = text.split("\n", _MOST_ABOVE + 2 * _MOST_ALIKE)
    filled = [place for place, line in enumerate(lines[: _MOST_ABOVE + _MOST_ALIKE]) if line.strip()]
    uncommented = [place for place in filled if not lines[place].lstrip().startswith("#")]
    if not uncommented:
        return _from(text, 0)
    first = uncommented[0]
    if first > filled[0] and _is_header(lines, filled[filled.index(first) - 1 :]) and _has_number(lines[first]):
        # The names may be a comment themselves.
        return _from(text, filled[filled.index(first) - 1])
    able = [
        place
        for rank, place in enumerate(uncommented)
        if _is_header(lines, uncommented[rank:]) and (place == first or not _has_number(lines[place]))
    ]
    # Where blank lines part the lines above from the table, the header is below them.
    adjoining = [place for place in able if place + 1 in uncommented]
    return _from(text, next(iter(adjoining or able), first))


def cells_of(line: str, delimiter: str) -> list[str]:
    """Return the cells of a line, without regard to quotes that contain separators."""
    return re.sub(r'"[^"]*"', "", line).split(delimiter)


def _from(text: str, above: int) -> Layout:
    """Return the text from a line on; cells that blanks separate are separated by tabs."""
    parts = text.split("\n", above)
    rest = parts[above]
    header = rest.lstrip().partition("\n")[0]
    delimiter = _delimiter(header)
    if delimiter in header or len(header.split()) < 2 or '"' in rest:
        return Layout(rest, above, delimiter)
    if any(mark in rest for mark in _DELIMITERS):
        return Layout(rest, above, delimiter)
    return Layout("\n".join("\t".join(line.split()) for line in rest.split("\n")), above, "\t")


def _delimiter(header: str) -> str:
    """Return the most frequent of the three separators in the header, outside quotes."""
    header = re.sub(r'"[^"]*"', "", header)
    return max(_DELIMITERS, key=header.count)


def _is_header(lines: Sequence[str], places: Sequence[int]) -> bool:
    """Whether the first of some lines has several cells, and those just below it as many."""
    delimiter = _delimiter(lines[places[0]])
    num = len(cells_of(lines[places[0]], delimiter))
    below = [lines[place] for place in places[1 : 1 + _MOST_ALIKE]]
    return num > 1 and bool(below) and all(len(cells_of(line, delimiter)) == num for line in below)


def _has_number(line: str) -> bool:
    return any(_NUMBER.fullmatch(cell) for cell in cells_of(line, _delimiter(line)))
