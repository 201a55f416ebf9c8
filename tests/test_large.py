"""Very many trajectories: what is stored once, what is shared, and how many of them each part of a fit looks at."""

import dataclasses
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from datasets import ARRAYS, assert_same, crossed, grid_data, ragged
from langenode.data import Dataset, in_parts, load_data, refine, sizes_for, some_of, with_observed_start
from langenode.data.building import number_conditions
from langenode.data.refining import _refined_grid
from langenode.data.tables import Table, joined_texts
from langenode.data.texts import Texts
from langenode.experiments import own
from langenode.fitting import build, plan, points
from langenode.fitting.progress import Reporter
from langenode.inference.likelihood import inferred_noise
from langenode.inference.partition import Partition
from langenode.inference.point_fit import PointFit
from langenode.inference.priors import GaussianPrior
from langenode.inference.references import laplace_reference
from langenode.posteriors import cast
from langenode.scores import verdict

WORDS = ["b", "", "a", "b", "10", "a", "2.5", "b"]


def relaxations(num, num_times=5, seed=0):
    """Noisy relaxations, each with a constant force of its own."""
    rng = np.random.default_rng(seed)
    times, force, start = np.linspace(0.0, 1.0, num_times), rng.normal(size=(num, 1)), rng.normal(size=(num, 1))
    outputs = force + (start - force) * np.exp(-2.0 * times) + 0.01 * rng.normal(size=(num, num_times))
    return Dataset.from_arrays(times, outputs, inputs=np.repeat(force[:, None], num_times, axis=1))


# Text


def test_texts_are_a_sequence_of_their_cells():
    texts = Texts.of(WORDS, np.arange(len(WORDS)))
    assert texts.levels == ("b", "", "a", "10", "2.5")  # in order of appearance
    assert list(texts) == WORDS == texts and len(texts) == len(WORDS)
    assert texts[3] == "b" and texts[2:4] == ["a", "b"] and texts.index("10") == 4
    assert "" in texts and "c" not in texts
    rows = np.array([5, 2, 6])
    assert texts.take(rows) == ["a", "a", "2.5"] and texts.take(rows).levels == ("a", "2.5")
    assert texts.map([len(text) for text in texts.levels]).tolist() == [len(word) for word in WORDS]
    with pytest.raises(ValueError):
        texts.index("c")


def test_equal_texts_of_several_dictionaries_have_one_number():
    texts = Texts.of(["unused", "x", "y", "x"], np.array([3, 2, 1, 2]))
    assert texts.levels == ("x", "y") and texts.codes.tolist() == [0, 1, 0, 1]


def test_a_table_of_texts_is_that_of_its_cells():
    columns = {
        "mixed": WORDS,
        "numbers": ["1", "", "2e3", "1", "-4", "NA", "7", "1"],
        "labels": ["s1", "s2", "s1", "s3", "s2", "s1", "s3", "s3"],
        "stamps": [f"2024-05-0{1 + i % 3}" for i in range(8)],
    }
    plain = Table(columns, np.arange(1, 9))
    coded = Table({name: Texts.of(cells, np.arange(8)) for name, cells in columns.items()}, np.arange(1, 9))
    for name in columns:
        assert plain.kind(name) == coded.kind(name) and plain.is_faulty(name) == coded.is_faulty(name)
        np.testing.assert_array_equal(np.asarray(plain.stamps(name)), np.asarray(coded.stamps(name)))
    np.testing.assert_array_equal(plain.numbers("numbers"), coded.numbers("numbers"))
    ours, theirs = coded.groups("labels"), plain.groups("labels")
    assert ours.labels == theirs.labels == ("s1", "s2", "s3")
    for one, other in zip(ours[1:], theirs[1:], strict=True):
        np.testing.assert_array_equal(one, other)
    assert ours.order.tolist() == [0, 2, 5, 1, 4, 3, 6, 7]
    pairs = joined_texts(coded.labels("labels"), coded.labels("stamps"))
    assert pairs == [f"{a}/{b}" for a, b in zip(columns["labels"], columns["stamps"], strict=True)]


@pytest.mark.parametrize("kind", ["text", "whole"])
def test_parquet_is_read_as_text_is(tmp_path, kind):
    """Trajectories of several lengths, interleaved, with missing readings, in several row groups."""
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    rng = np.random.default_rng(3)
    number = np.repeat(np.arange(6), rng.integers(5, 9, 6))
    time = np.concatenate([np.sort(rng.uniform(0, 9, (number == i).sum())) for i in range(6)])
    order = np.argsort(time, kind="stable")
    label = {"text": np.char.add("run ", number.astype(str)), "whole": number + 7}[kind]
    values = np.where(rng.random(len(time)) < 0.2, np.nan, rng.normal(size=len(time)))
    frame = pd.DataFrame({"run": label, "time": time, "dose": 1.0 * number, "y": values}).iloc[order]
    frame.to_csv(tmp_path / "a.csv", index=False)
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), tmp_path / "a.parquet", row_group_size=7)
    text, binary = load_data(tmp_path / "a.csv"), load_data(tmp_path / "a.parquet")
    assert text.num_trajectories == 6 and text.labels == binary.labels
    assert_same(text, binary)


# Copies


def test_data_sets_share_arrays_that_nobody_writes_to():
    data = crossed()
    other = dataclasses.replace(data, units={})
    assert all(getattr(other, name) is getattr(data, name) for name in ARRAYS)
    part = data.select([3, 1])
    assert dataclasses.replace(part, units={}).outputs is part.outputs
    mine = np.zeros((2, 3))
    mine.setflags(write=False)
    shared = Dataset.from_arrays(np.arange(3.0), np.broadcast_to(mine[:1], (2, 3)))
    assert not np.shares_memory(shared.outputs, mine)  # a view of somebody's memory is copied
    given = np.zeros((2, 3))
    taken = Dataset.from_arrays(np.arange(3.0), given)
    given[0, 0] = 5.0
    assert taken.outputs[0, 0, 0] == 0.0


def test_conditions_are_numbered_in_order_of_appearance():
    times = np.tile(np.arange(3.0), (4, 1))
    inputs = np.array([1.0, -0.0, 1.0, 0.0])[:, None, None] * np.ones((1, 3, 1))
    assert number_conditions(times, inputs).tolist() == [0, 1, 0, 1]


def test_refined_grids_are_those_of_linspace():
    times = np.array([0.0, 0.1, 0.7, 0.71, 2.0])
    pieces = np.maximum(1, np.ceil(np.diff(times) / 0.13 - 1e-6)).astype(int)
    parts = [np.linspace(a, b, n, endpoint=False) for a, b, n in zip(times[:-1], times[1:], pieces, strict=True)]
    assert np.array_equal(_refined_grid(times, 0.13), np.concatenate([*parts, times[-1:]]))


def test_data_without_long_intervals_are_not_copied():
    data = ragged().select([0, 1])
    found = refine(data, 5.0)
    assert found.data is data and found.rows.tolist() == [[0, 1, 2, 3], [0, 1, 1, 1]]
    assert refine(data, 1.0).data.num_times == 4 and refine(data, 1.0).rows.tolist() == [[0, 1, 2, 3], [0, 2, 2, 2]]


# Parts of a fit


def test_parts_are_all_of_the_data(monkeypatch):
    monkeypatch.setattr("langenode.data.large.MOST_AT_ONCE", 3)
    data = grid_data(7)
    found = list(in_parts(data))
    assert [place for place, _ in found] == [slice(0, 3), slice(3, 6), slice(6, 7)]
    assert np.array_equal(np.concatenate([part.outputs for _, part in found]), data.outputs)


def test_some_trajectories_stand_for_all():
    data = grid_data(50)
    assert some_of(data, None, seed=0) is data and some_of(data, 50, seed=0) is data
    some = some_of(data, 9, seed=0)
    assert some.num_trajectories == 9 and np.all(np.diff(some.outputs[:, 0, 0]) > 0)  # in their order, none twice
    assert_same(some, some_of(data, 9, seed=0))
    assert not np.array_equal(some.outputs, some_of(data, 9, seed=1).outputs)


def test_sizes_are_by_readings():
    assert sizes_for(grid_data(1000)) is None
    assert sizes_for(grid_data(1001)) == (128, 1000, 1000)
    assert sizes_for(grid_data(1001, num_times=250)) == (128, 100, 100)


def test_two_thousand_trajectories_go_through_the_point_estimate_by_some(monkeypatch):
    data = relaxations(2000)
    config = plan.plan_data(data, {"target": "posterior"})[1]
    assert isinstance(config, own.OwnConfig)
    assert config.training.batch_trajectories == 128
    assert config.mle.most_trajectories == config.data.most_held_out == 1000
    settings = {"mle": {"most_trajectories": 100}, "data": {"most_held_out": 60}, "model": {"kind": "state"}}
    config = plan.plan_data(data, {**settings, "target": "posterior"})[1]
    splits = own.divide(own.for_training(data, config), config)
    assert [part.num_trajectories for part in splits] == [1880, 60, 60]
    prepared = build.prepare(config, splits.train, splits.validation)
    assert prepared.train.num_trajectories == 1880 and prepared.at_once.num_trajectories == 100
    seen = []

    def fitted(model, train, **options):
        seen.append(train.num_trajectories)
        return PointFit(model, np.zeros(1))

    monkeypatch.setattr(points, "fit_mle", fitted)
    said = io.StringIO()
    points.choose_model(own.EXPERIMENT, config, prepared, reporter=Reporter(said))
    assert set(seen) == {100}
    assert "from 100 of 1880 training trajectories" in said.getvalue()


def test_few_trajectories_are_all_looked_at():
    data = relaxations(60)
    config = plan.plan_data(data, {"target": "posterior"})[1]
    assert isinstance(config, own.OwnConfig)
    assert config.training.batch_trajectories is None and config.mle.most_trajectories is None
    assert config.data.most_held_out is None
    prepared = build.prepare(config, own.for_training(data, config), None)
    assert prepared.at_once is prepared.train


def test_a_split_that_was_asked_for_is_kept():
    config = plan.plan_data(relaxations(1200), {"target": "posterior", "data": {"split": [0.5, 0.25, 0.25]}})[1]
    assert isinstance(config, own.OwnConfig) and config.data.most_held_out is None
    parts = own.divide(own.for_training(relaxations(1200), config), config)
    assert [part.num_trajectories for part in parts] == [600, 300, 300]


def test_a_reference_of_parts_is_that_of_the_whole(monkeypatch):
    data = with_observed_start(relaxations(7))
    config = plan.plan_data(relaxations(60), {"target": "posterior", "model": {"kind": "state"}})[1]
    model = cast(build.untrained(own.EXPERIMENT, config), jnp.float64)
    partition = Partition.of(model, "last_layer")
    zeros = jnp.zeros(partition.dim)
    arguments = (model, partition, data, GaussianPrior(zeros, zeros + 1.0), inferred_noise())
    whole = laplace_reference(*arguments, num_iterations=3)
    monkeypatch.setattr("langenode.data.large.MOST_AT_ONCE", 3)
    parts = laplace_reference(*arguments, num_iterations=3)
    # Columns of the root are found up to rotations, their products are not.
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        one, other = (np.asarray(part) @ np.asarray(part).T if part.ndim == 2 else part for part in (one, other))
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)


def test_draws_that_were_not_checked_are_a_reservation():
    found = verdict.judge({"posterior": {"unchecked": "all 2000 training trajectories would be needed"}})
    assert found["level"] == "caution" and "all 2000 training trajectories" in found["text"]
