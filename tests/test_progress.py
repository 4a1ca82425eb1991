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
