"""Every method on every experiment that it can serve, with small settings; and clear refusals of the rest."""

# pyright: reportAttributeAccessIssue=false
import json

import numpy as np
import pytest

from langenode.config import ConfigError
from langenode.fitting.facade import load_fit
from langenode.fitting.methods import methods
from small_fits import cases, configured, fitted

DRAWN = [name for name, method in methods().items() if method.is_drawn]


@pytest.fixture(autouse=True)
def in_a_folder_with_a_table(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.getbasetemp()
    monkeypatch.chdir(folder)
    if not (folder / "table.csv").exists():
        rows = [f"{i},{t:.2f},{(1 + 0.1 * i) * np.exp(-t):.4f}" for i in range(8) for t in np.linspace(0, 1, 5)]
        (folder / "table.csv").write_text("\n".join(["id,t,x", *rows]) + "\n")


@pytest.mark.filterwarnings("ignore:.*not to be trusted")  # so few draws and steps
@pytest.mark.parametrize(("experiment", "method"), list(cases()))
def test_every_method_serves_every_experiment(experiment, method, tmp_path):
    """Draws are finite, predictions too, and a file gives both back."""
    fit, test = fitted(experiment, method)
    outputs = fit.predict_prepared(test)[0].outputs
    assert np.all(np.isfinite(outputs))
    fit.save(tmp_path / "fit.langenode")
    again = load_fit(tmp_path / "fit.langenode")
    np.testing.assert_array_equal(outputs, again.predict_prepared(test)[0].outputs)
    assert again.problem.partition.names == fit.problem.partition.names
    assert again.diagnostics == json.loads(json.dumps(fit.diagnostics)) and again.training == fit.training
    if fit.config.is_drawn:
        record = fit.diagnostics
        assert record["method"] == method and record["num_draws"] >= 1
        assert isinstance(record["is_trusted"], bool) and record["reason"]
        assert record.get("num_evaluations", 1) >= 1
    else:
        assert fit.diagnostics.keys() >= {"elbo", "log_evidence", "relative_ess", "k_hat"}


@pytest.mark.parametrize("method", DRAWN)
def test_methods_that_draw_need_a_likelihood(method):
    with pytest.raises(ConfigError, match=f"method {method} serves posterior and tempered.*use target='posterior'"):
        configured("ou", method, target="population")
