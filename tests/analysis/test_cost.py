import json
import time

import pytest
import torch

from iaa.analysis.cost import Cost, StepCost, measure, peak_bytes, read_cost
from iaa.analysis.serialize import plain


def test_the_peak_is_what_was_held_at_once():
    def work() -> None:
        first = torch.empty(2**20, dtype=torch.uint8)  # 1 MiB
        del first
        second, third = (torch.empty(2**21, dtype=torch.uint8) for _ in range(2))  # 4 MiB together
        del second, third

    assert peak_bytes(work) / 2**20 == pytest.approx(4, abs=0.01)
    assert peak_bytes(lambda: None) == 0


def test_contenders_take_turns_and_are_held_against_the_first():
    seen: list[int] = []

    def step(copies: int) -> torch.Tensor:
        seen.append(copies)
        time.sleep(0.002 * (1 + copies))
        return torch.empty(1000 * (1 + copies))

    result = measure(
        step,
        lambda: time.sleep(0.01),
        lambda: time.sleep(0.01),
        copies=(0, 2),
        rounds=3,
        steps_per_epoch=10,
        pass_share=0.5,
        what=["sleep"],
    )
    assert seen[-6:] == [0, 2, 2, 0, 0, 2]
    none, two = result.steps
    assert (none.more_time, none.more_memory) == (0, 0)
    assert two.milliseconds > none.milliseconds
    assert two.low <= two.milliseconds <= two.high
    assert two.more_memory == pytest.approx(200, abs=5)
    assert result.pass_seconds > 0.02  # half of it took 0.01
    assert result.statistics_seconds >= 0.01
    assert result.epoch_seconds == pytest.approx(10 * two.milliseconds / 1000)
    assert result.what == ("sleep",)


def test_costs_are_read_as_they_were_written(tmp_path):
    cost = Cost((StepCost(0, 10.0, 9.0, 11.0, 0.0, 50.0, 0.0),), 0.1, 1.0, 10.0, 5, ("emoji", "2 threads"))
    (tmp_path / "cost.json").write_text(json.dumps(plain(cost)))
    assert read_cost(tmp_path / "cost.json") == cost
    (tmp_path / "cost.json").write_text('{"steps": []}')
    with pytest.raises(ValueError, match="is not what `iaa analyze cost --out` writes: 'what'"):
        read_cost(tmp_path / "cost.json")
