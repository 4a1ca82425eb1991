"""The results pages say what the kept files say."""

import json
import tarfile

import pytest
import results
import results_ladder
import results_pages
import studies


def comparison(difference: float) -> dict[str, object]:
    def scores(base: float) -> dict[str, object]:
        values = [base - 0.5, base, base + 0.5]
        gained = [value + difference + noise for value, noise in zip(values, (-0.1, 0, 0.1), strict=True)]
        one = {"mean": base, "deviation": 0.5, "values": values}
        return {"baseline": one, "iaa": {**one, "mean": base + difference, "values": gained}}

    summary = {"test": {"R@1": scores(60.0), "MAP@R": scores(30.0)}}
    untrained = {"vectors as given": {"test": {"R@1": 51.25}}}
    return {"summary": summary, "seeds": [0, 1, 2], "untrained": untrained}


def test_the_main_table_shows_losses_as_well_as_gains(tmp_path):
    (tmp_path / "cub-head-triplet.json").write_text(json.dumps(comparison(-1.5)))
    (tmp_path / "cub-head-triplet.md").write_text("# Heads\n\n| a | b |\n")
    shown = results_pages.pages(tmp_path)["results/losses.md"]
    row = next(line for line in shown.splitlines() if line.startswith("| cub-head | triplet |"))
    cells = [cell.strip() for cell in row.replace("\u00a0", " ").strip("|").split("|")]
    assert cells[2:8] == ["3", "51.25", "60.00 ± 0.50", "58.50 ± 0.50", "-1.50", "0.001"]
    assert "- cub-head: [triplet](cub-head-triplet.md)" in shown


def test_gains_and_losses_are_counted(tmp_path):
    for loss, difference in (("triplet", -1.5), ("circle", 2.0), ("margin", 1.0)):
        (tmp_path / f"cub-head-{loss}.json").write_text(json.dumps(comparison(difference)))
    shown = results_pages.pages(tmp_path)["results/losses.md"]
    assert "Of 3 comparisons, R@1 rose in 2 and fell in 1, MAP@R rose in 2 and fell in 1 (p < 0.05)" in shown


def test_generators_are_compared_with_the_baseline_and_the_paper(tmp_path):
    assert "results/generators.md" not in results_pages.pages(tmp_path)  # nothing has been compared
    arms = {"baseline": 60.0, "iaa": 61.0, "symmetry": 59.5}
    scores = {arm: {"mean": mean, "deviation": 0.5} for arm, mean in arms.items()}
    for arm in ("iaa", "symmetry"):
        scores[arm]["against_baseline"] = {"difference": arms[arm] - 60.0, "p_t": 0.0123}
    study = {"arms": list(arms), "seeds": [0, 1], "summary": {"test": {"R@1": scores, "MAP@R": scores}}}
    (tmp_path / "generators-cub-head-triplet.json").write_text(json.dumps(study))
    shown = results_pages.pages(tmp_path)["results/generators.md"].replace("\u00a0", " ")
    assert "## cub-head, triplet, 2 seeds" in shown
    gain = "59.50 ± 0.50 | -0.50 | 0.012"
    assert f"| symmetry | {gain} | {gain} | 55.0 |" in shown
    assert "| baseline | 60.00 ± 0.50 |  |  | 60.00 ± 0.50 |  |  | 54.4 |" in shown


def test_a_ladder_has_a_column_for_each_rung_that_was_measured(tmp_path):
    def rows(*recalls: float) -> list[dict[str, float]]:
        return [{"R@1": recall, "MAP@R": recall / 2} for recall in recalls]

    ladders = {
        "emoji/lite0/all": {"rungs": {"frozen": rows(40.0)}},
        "cub/tinyvit/3": {"rungs": {"frozen": rows(70.0)}},
        "cub/lite0/all": {"rungs": {"frozen": rows(52.0), "head": rows(53.0, 55.0)}},
    }
    (tmp_path / "ladder.json").write_text(json.dumps({"ladders": ladders}))
    lines = [*results_ladder.ladder(tmp_path / "ladder.json")]
    assert lines[0] == "| R@1 / MAP@R | network | frozen | head | seeds |"
    assert lines[2:5] == [
        "| CUB | Lite0 | 52.0 / 26.0 | 54.0 / 27.0 | 2 |",
        "| CUB, 3 images per class | TinyViT-5M | 70.0 / 35.0 |  | 1 |",
        "| Emoji | Lite0 | 40.0 / 20.0 |  | 1 |",
    ]


def test_a_pretrained_network_and_not_raw_pixels_stands_for_untrained():
    rows = {"pixels (16 x 16)": {"test": {"R@1": 4.2}}, "pretrained lite0": {"test": {"R@1": 35.6}}}
    assert results_pages._untrained({"untrained": rows}, metrics=("R@1",)) == "35.6"


def test_an_ablation_of_a_head_is_not_shown_among_whole_networks(tmp_path):
    (tmp_path / "cub-head-copies.md").write_text("# Number of synthetics\n\n| a |\n\n- a note\n")
    shown = results_pages.pages(tmp_path)["results/ablations.md"]
    assert "### copies: Number of synthetics\n\n| a |\n\n[Notes" in shown
    assert f"## {results_pages.TITLES['cub-head']}" in shown
    assert f"## {results_pages.TITLES['cub']}" not in shown
    assert "a note" not in shown  # it stays in the file that the page links to


def test_the_committed_pages_are_what_the_script_writes():
    for path, text in results_pages.pages().items():
        assert (results_pages.DOCS / path).read_text() == text, path
    readme = results_pages.README.read_text()
    assert readme == results_pages.readme(readme)
    table = readme.partition(results_pages.MARKS[0])[2].partition(results_pages.MARKS[1])[0]
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert 3 <= len(rows) <= 10  # at most eight rows below the two of the head


def test_tuned_fields_become_options(tmp_path, monkeypatch):
    chosen = {"optimizer.lr": 0.0003, "augment.strength": 0.4}
    chosen["loss_options"] = {"margin": 0.1}
    tuned = {"chosen": chosen, "baseline_chosen": {"optimizer.lr": 0.0003, "loss_options": {"margin": 0.4}}}
    (tmp_path / "tuning.json").write_text(json.dumps({"cub-head": {"triplet": tuned}}))
    monkeypatch.setattr(results, "HERE", tmp_path)
    words = results.studies()["cub-head-triplet"].words
    assert words[0] == "compare"
    assert words[words.index("--optimizer.lr") + 1] == "0.0003"
    assert words[words.index("--augment.strength") + 1] == "0.4"
    assert words[words.index("--loss-options") + 1 :][:2] == ("margin", "0.1")
    assert words[words.index("--arm") + 1] == "baseline: loss_options={'margin': 0.4}"
    assert "emoji-triplet" not in results.studies()  # not tuned, not run


def test_studies_can_be_named_where_the_photos_are_not(tmp_path, monkeypatch):
    chosen = {"optimizer.lr": 0.0001, "augment.strength": 0.4}
    tuned = {"chosen": chosen, "baseline_chosen": {"optimizer.lr": 0.0001}}
    (tmp_path / "tuning.json").write_text(json.dumps({"cub": {"triplet": tuned}}))
    monkeypatch.setattr(results, "HERE", tmp_path)
    monkeypatch.chdir(tmp_path)
    words = results.studies()["cub-triplet"].words
    assert words[words.index("--root") + 1] == "runs/results/cub"
    longer = results.studies()["cub-long-triplet"].words  # by the choices made for the shorter training
    assert longer[longer.index("--augment.strength") + 1] == "0.4"
    assert longer[longer.index("--epochs") + 1] == "8"


def test_photos_are_unpacked_or_linked_and_asked_for_where_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUB", raising=False)
    with pytest.raises(SystemExit, match="no CUB_200_2011 in runs/results/cub: give --cub"):
        studies.photos(None)
    (tmp_path / "birds" / "CUB_200_2011").mkdir(parents=True)
    (tmp_path / "birds" / "CUB_200_2011" / "images.txt").write_text("1 a.jpg")
    with tarfile.open(tmp_path / "birds.tar", "w") as packed:
        packed.add(tmp_path / "birds" / "CUB_200_2011", "CUB_200_2011")
    for given in ("birds", "birds.tar"):
        studies.photos(given)
        assert (studies.PHOTOS / "CUB_200_2011" / "images.txt").read_text() == "1 a.jpg"
        if given == "birds":
            (tmp_path / "birds").rename(tmp_path / "elsewhere")  # the link leads nowhere now
