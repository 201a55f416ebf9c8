"""The report of a fit that has no run folder: the same page, from memory."""

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langenode.config import to_toml
from langenode.experiments.base import Drawing, Results
from langenode.fitting.provenance import provenance_of
from langenode.reports.pages import figure
from langenode.reports.run_page import Content, render_content
from langenode.storage.folder import plain

if TYPE_CHECKING:
    from langenode.fitting.fit import Fit


def fit_report(fit: "Fit", results: Results, drawings: Mapping[str, Drawing]) -> str:
    """One self-contained HTML page."""
    seconds = {} if fit.seconds is None else {"fit": fit.seconds}
    return render_content(
        Content(
            name=None,
            config_text=to_toml(fit.config),
            config=fit.config.model_dump(mode="json"),
            metrics=plain(dict(results.metrics)),
            provenance=provenance_of(fit.config) | {"command": None, "seconds": seconds},
            figures=[figure(entry, content) for entry, content in drawn(drawings)],
        )
    )


def drawn(drawings: Mapping[str, Drawing]) -> list[tuple[dict[str, Any], bytes]]:
    """Figures as entries of an index and the content of their PNG files."""
    found = []
    for name, drawing in drawings.items():
        buffer = io.BytesIO()
        drawing.figure.savefig(buffer, format="png")
        words = {key: value for key, value in drawing._asdict().items() if key != "figure"}
        found.append(({"name": name, "file": f"{name}.png", **words}, buffer.getvalue()))
    return found
