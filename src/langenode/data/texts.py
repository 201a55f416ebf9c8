"""A column of text in which equal cells are stored once."""

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np


class Texts(Sequence[str]):
    """Cells of text as numbers of `levels`, the distinct texts in order of appearance.

    Millions of rows with a few labels take four bytes each, and what is asked of every cell is asked of the levels.
    """

    __slots__ = ("codes", "levels")

    def __init__(self, levels: tuple[str, ...], codes: np.ndarray):
        self.levels, self.codes = levels, codes

    @classmethod
    def of(cls, texts: Sequence[str], codes: np.ndarray) -> "Texts":
        """Number anew the texts that some codes stand for: equal texts have one number, unused ones have none."""
        distinct: dict[str, int] = {}
        codes = np.array([distinct.setdefault(text, len(distinct)) for text in texts], dtype=np.int32)[codes]
        first = np.full(len(distinct), len(codes), dtype=np.int64)
        first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # of one text the last assignment is the first row
        used = np.argsort(first)[: int((first < len(codes)).sum())]
        new = np.zeros(len(distinct), dtype=np.int32)
        new[used] = np.arange(len(used))
        known = tuple(distinct)
        return cls(tuple(known[level] for level in used), new[codes])

    def take(self, rows: np.ndarray) -> "Texts":
        """Return the cells of some rows."""
        return Texts.of(self.levels, self.codes[rows])

    def map(self, values: Sequence[Any] | np.ndarray, dtype: Any = None) -> np.ndarray:
        """Return an array with the value that belongs to the text of every cell, given one for each level."""
        return np.asarray(values, dtype)[self.codes]

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, index: int | np.integer) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> "Texts": ...
    def __getitem__(self, index: int | np.integer | slice) -> "str | Texts":
        if isinstance(index, slice):
            return Texts.of(self.levels, self.codes[index])
        return self.levels[self.codes[index]]

    def __iter__(self) -> Iterator[str]:
        levels = self.levels
        return (levels[code] for code in self.codes.tolist())

    def __contains__(self, text: object) -> bool:
        return text in self.levels

    def index(self, value: str, start: int = 0, stop: int | None = None) -> int:
        """Return the first row of a text."""
        rows = np.flatnonzero(self.codes[start:stop] == self.levels.index(value))
        if not rows.size:
            raise ValueError(f"{value!r} is in none of the rows")
        return start + int(rows[0])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Texts):
            return self.levels == other.levels and np.array_equal(self.codes, other.codes)
        return isinstance(other, Sequence) and list(self) == list(other)
