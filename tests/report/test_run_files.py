import json

import pytest
import torch

from iaa.analysis.cost import Cost, StepCost
from iaa.analysis.serialize import plain
from iaa.report.run_files import POINTS, log_columns, read_cost, read_run
from iaa.retrieval.embeddings import Embeddings


def end(epoch, loss, **more):
    return {
        "epoch": epoch,
        "loss": loss,
        "seconds": 1.0,
        "statistics_seconds": 0.1,
        "images_per_second": 9.0,
        **more,
    }


def test_the_last_word_on_an_epoch_counts():
    step = {"epoch": 0, "step": 0}
    rows = [{**step, "loss": 9.0}, end(0, 9.0), {**step, "loss": 5.0}, end(0, 5.0, val={"R@1": 1.0})]
    log = log_columns("run", rows)
    assert (log.losses, log.step_losses, log.epochs) == ([5.0], [5.0], [1])
    assert log.validation == [(1, {"R@1": 1.0})]


def test_many_steps_are_averaged():
    many = [{"epoch": 0, "step": step, "loss": float(step)} for step in range(4 * POINTS)]
    log = log_columns("run", [*many, end(0, 1.0)])
    assert len(log.step_losses) == POINTS
    assert log.step_losses[:2] == [1.5, 5.5]
    assert 0 < log.step_epochs[0] < log.step_epochs[-1] < 1


def test_a_log_without_a_whole_epoch_is_none():
    assert log_columns("run", [{"epoch": 0, "step": 0, "loss": 1.0}]) is None


def test_costs_are_read_as_they_were_written(tmp_path):
    cost = Cost((StepCost(0, 10.0, 9.0, 11.0, 0.0, 50.0, 0.0),), 0.1, 1.0, 10.0, 5, ("emoji", "2 threads"))
    (tmp_path / "cost.json").write_text(json.dumps(plain(cost)))
    assert read_cost(tmp_path / "cost.json") == cost
    (tmp_path / "cost.json").write_text('{"steps": []}')
    with pytest.raises(ValueError, match="is not what `iaa analyze cost --out` writes: 'what'"):
        read_cost(tmp_path / "cost.json")


def test_an_unfinished_run_says_how_to_continue(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match="continue it with `iaa train --resume"):
        read_run(tmp_path)
    with pytest.raises(FileNotFoundError, match="no run and no embeddings file at nowhere"):
        read_run("nowhere")


@pytest.fixture
def run(tmp_path):
    data = Embeddings(torch.eye(4), torch.tensor([0, 0, 1, 1]), [*"abcd"], split=["test"] * 4)
    data.save(tmp_path / "embeddings.safetensors")
    return tmp_path


def test_a_log_cut_short_is_read_as_far_as_it_goes(run):
    whole = json.dumps(end(0, 2.0))
    (run / "log.jsonl").write_text(f'{whole}\n{{"epoch": 1, "st')
    assert read_run(run).log.losses == [2.0]
    (run / "log.jsonl").write_text(f"{whole}\nnull\n")
    with pytest.raises(ValueError, match=r"line 2 of .*log.jsonl is not a row of a run's log: null"):
        read_run(run)


@pytest.mark.parametrize("text", ['{"epoch": 1', "[]", "{}"])
def test_damaged_metrics_are_named(run, text):
    (run / "metrics.json").write_text(text)
    with pytest.raises(ValueError, match=r"metrics\.json (is|must hold)"):
        read_run(run)
