"""What could be read in two ways, for a person to settle."""

from typing import NamedTuple


class Doubt(NamedTuple):
    """A reading that may be wrong: what it is about, how it was read, how else it could be, and what settles it."""

    about: str
    taken: str
    other: str
    option: str

    def line(self) -> str:
        """Return the doubt in one line."""
        return f"{self.about}: {self.taken}; if {self.other}, use {self.option}"
