"""Draw framework.svg, the schematic of docs/reference/method.md: `python docs/images/framework.py`."""

from pathlib import Path

import matplotlib as mpl

from langenode import plots

if __name__ == "__main__":
    # The same bytes at every call: no date, and names of parts that do not change.
    with mpl.rc_context({"svg.hashsalt": "langenode"}):
        path = Path(__file__).with_suffix(".svg")
        plots.framework().savefig(path, format="svg", metadata={"Date": None})
