"""The estimate is the sum of all work at the pace that was measured: a fake clock says what each costs."""

from collections import Counter
from dataclasses import replace

import pytest

import tiny_runs
from iaa.config import Augment, Network, Optimizer, RunOptions, Split
from iaa.training import time_estimate
from iaa.training.model_ladder import open_ladder
from iaa.training.setup import assemble, launch
from iaa.training.time_estimate import IF_BETTER, Pace, ladder_seconds, run_seconds
from iaa.training.workload import workload


@pytest.fixture
def paces(monkeypatch):
    """A batch of training takes 100 seconds, an image 1, whatever computes once 10,000."""
    monkeypatch.setattr(time_estimate, "_pace", lambda batches, work: Pace(100.0, 1.0))
    monkeypatch.setattr(time_estimate, "_timed", lambda work: 10_000.0)


def test_every_part_of_a_run_is_counted(tmp_path, paces):
    config = tiny_runs.tiny(
        tiny_runs.images(tmp_path / "data"),
        tmp_path,
        network=Network(dim=8, head="linear", head_start="whitening"),
        split=Split(test_share=0.2, val_classes=0.3),
        run=RunOptions(out=str(tmp_path), name="run", logger="none"),
    )
    task = assemble(config, launch(config))
    work, seconds = workload(task), run_seconds(task)
    assert seconds["training"] == 100 * work.steps
    once = 2 * 10_000 + 10_000  # two estimates, one whitening
    assert seconds["class statistics"] == once + work.images["head"] + work.images["statistics"]
    assert seconds["validation"] == work.images["validation"] + 3 * 10_000
    tests = work.images["tests"] + work.images["raw features"]
    assert seconds["scores"] == tests + 3 * 10_000  # raw, untrained, trained


def test_every_part_of_the_ladder_is_counted(tmp_path, paces, monkeypatch):
    monkeypatch.setattr(time_estimate, "run_seconds", lambda task: {"training": 1000.0, "scores": 1.0})
    config = tiny_runs.tiny(tiny_runs.images(tmp_path / "data"), tmp_path)
    seconds = {}
    for effort in ("quick", "normal", "high"):
        wanted = replace(config, effort=effort)
        seconds[effort] = ladder_seconds(wanted, *open_ladder(wanted))
    images = 60 + 12  # those of the test once more, at the size the network was made for
    scores = 2 * 3 + 2 + 1  # two rungs on the held-out classes of three folds and on the test, the size above
    parts = {"features": images, "heads": 40_000, "scores": scores * 10_000}
    assert seconds["quick"] == parts
    own_size = replace(config, effort="quick", images=replace(config.images, size=48))
    assert ladder_seconds(own_size, *open_ladder(own_size)) == {**parts, "features": 60, "scores": 80_000}
    assert seconds["normal"]["scores"] == (scores + 3 + 1) * 10_000
    assert seconds["normal"]["heads"] == 40_000 + 1001 * (1 + 3 * 0.75)  # and three quarters in each fold
    assert seconds["high"] == {**seconds["normal"], "fine-tuning": 1001, IF_BETTER: 1001}


def test_a_step_is_that_of_training(tmp_path, monkeypatch):
    config = tiny_runs.tiny(
        tiny_runs.images(tmp_path / "data"),
        tmp_path,
        augment=Augment(refresh="stream", neighbors=3),
        optimizer=Optimizer(clip=1.0, average=0.9),
    )
    task = assemble(config, launch(config))
    counts = Counter()

    def count(owner, name):
        work = getattr(owner, name)

        def counted(*args, **options):
            counts[name] += 1
            return work(*args, **options)

        monkeypatch.setattr(owner, name, counted)

    parts = {
        "backward": task.fabric,
        "clip_gradients": task.fabric,
        "step": task.optimizer,
        "forward": task.criterion,
        "update": task.criterion.augment,
    }
    for name, owner in parts.items():
        count(owner, name)
    run_seconds(task)
    assert counts["step"] > 0
    assert set(counts.values()) == {counts["step"]}
    assert counts.keys() == parts.keys()
    assert task.average.steps == counts["step"]


def test_a_slow_loader_makes_the_estimate_longer(tmp_path, monkeypatch):
    now = 0.0
    monkeypatch.setattr(time_estimate.time, "monotonic", lambda: now)
    config = tiny_runs.tiny(tiny_runs.images(tmp_path / "data"), tmp_path)
    task = assemble(config, launch(config))

    def slow(batches):
        nonlocal now
        for batch in batches:
            now += 7.0
            yield batch

    task.batches = list(slow(task.batches))
    assert sum(run_seconds(task).values()) == 0

    class Slow:
        def __init__(self, batches):
            self.batches = batches

        def __iter__(self):
            return slow(self.batches)

    task.batches = Slow(task.batches)
    assert run_seconds(task)["training"] == pytest.approx(7 * workload(task).steps)
