import json

import pytest

from iaa.analysis.training_log import POINTS, log_columns, mining


def write(folder, lines):
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def step(epoch, number, **values):
    shares = {"synthetic_positives": 0.5, "synthetic_negatives": 0.25}
    return {"epoch": epoch, "step": number, "loss": 1.0, **shares, **values}


def test_means_over_the_steps_of_each_epoch(tmp_path):
    lines = [step(0, 0, positives=10, negatives=4), step(0, 1, positives=20, negatives=8, loss=3.0)]
    lines += [{"epoch": 0, "loss": 2.0, "images": 64}]
    lines += [step(1, 0, positives=6, negatives=2, synthetic_negatives=0.75)]
    write(tmp_path, lines)
    result = mining(tmp_path)
    assert result.epochs == (1, 2)
    assert result.positives == (15, 6)
    assert result.negatives == (6, 2)
    assert result.synthetic_negatives == (0.25, 0.75)
    assert result.loss == (2, 1)
    assert result.chooses
    assert result.name == tmp_path.name


def test_losses_without_pairs(tmp_path):
    write(tmp_path, [step(0, 0)])
    assert mining(tmp_path).chooses
    nothing = {"positives": 0, "negatives": 0, "synthetic_positives": 0.0, "synthetic_negatives": 0.0}
    write(tmp_path, [step(0, 0, **nothing)])
    assert not mining(tmp_path).chooses


def test_a_line_still_being_written_is_left_out(tmp_path):
    write(tmp_path, [step(0, 0)])
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write('{"epoch": 0, "st')
    assert mining(tmp_path).epochs == (1,)


def test_what_is_no_log(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no log\.jsonl in"):
        mining(tmp_path)
    (tmp_path / "log.jsonl").write_text("")
    with pytest.raises(ValueError, match="no training step yet"):
        mining(tmp_path)
    (tmp_path / "log.jsonl").write_text("nonsense\n")
    with pytest.raises(ValueError, match=r"line 1 of .* is not valid JSON"):
        mining(tmp_path)


def end(epoch, loss, **more):
    return {
        "epoch": epoch,
        "loss": loss,
        "seconds": 1.0,
        "statistics_seconds": 0.1,
        "images_per_second": 9.0,
        **more,
    }


def test_the_second_attempt_at_an_epoch_counts():
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
