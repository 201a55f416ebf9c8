"""The paper's numbers and figures, section by section, and where our runs have theirs."""

from langenode.experiments.paper_results.chemistry import METHOD_FACTS, OU_FACTS, SCHLOGL_FACTS
from langenode.experiments.paper_results.figures import FIGURES
from langenode.experiments.paper_results.materials import HYPERELASTIC_FACTS, VISCOELASTIC_FACTS
from langenode.experiments.paper_results.readers import DEMONSTRATIONS, METHOD, Fact, PaperFigure, Record

FACTS: tuple[Fact, ...] = (*METHOD_FACTS, *OU_FACTS, *SCHLOGL_FACTS, *HYPERELASTIC_FACTS, *VISCOELASTIC_FACTS)

__all__ = ["DEMONSTRATIONS", "FACTS", "FIGURES", "METHOD", "Fact", "PaperFigure", "Record"]
