import json

import pytest
import torch

from iaa.report.findings import read_run
from iaa.retrieval.embeddings import Embeddings


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
    times = {"seconds": 1.0, "statistics_seconds": 0.1, "images_per_second": 9.0}
    whole = json.dumps({"epoch": 0, "loss": 2.0, **times})
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
