from iaa import progress


def test_bars_are_silent_where_stderr_is_not_a_terminal(capfd):
    with progress.counting(3, done=1, rate="images/s") as bar:
        bar.advance(2)
        bar.show("scoring")
    with progress.progress("drawing") as tick:
        tick(0.5)
    assert capfd.readouterr() == ("", "")


def test_in_a_terminal_they_count_and_say_what_is_done(monkeypatch, capfd):
    console = progress.Console
    monkeypatch.setattr(progress, "Console", lambda **k: console(force_terminal=True, width=100, **k))
    with progress.counting(8, done=4, rate="images/s") as bar:
        bar.advance(2)
    with progress.progress("drawing") as tick:
        tick(1.0)
    error = capfd.readouterr().err
    assert "6/8" in error
    assert "images/s" in error
    assert "drawing" in error
    with progress.counting(8, quiet=True) as bar:
        bar.advance(2)
    assert "images" not in capfd.readouterr().err


def test_the_time_left_knows_the_pace_of_every_kind_of_work(monkeypatch):
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    left = progress.TimeLeft({"step": 10, "image": 100}, {"step": 4.0, "image": 1.0})
    assert left.seconds == float("inf")
    now = 20.0
    left.done("image", 10)
    assert left.seconds == 90 * 2 + 10 * 8  # steps as guessed: four times an image
    assert left.share == 20 / 280
    now = 120.0
    left.done("step", 5)
    assert left.seconds == 90 * 2 + 5 * 20
    now = 220.0
    left.done("step", 5)
    left.done("image", 95)  # more than was expected
    assert left.seconds == 0
    assert left.share == 1
