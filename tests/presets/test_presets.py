import dataclasses
import re

import pytest

from iaa import losses
from iaa.config import Augment, BatchOptions, Config, Images, Network, Optimizer, Split
from iaa.presets import FREE, PRESETS, describe, find, line, paper_row, presets_help, start
from iaa.presets.paper_tables import cells
from iaa.training.defaults import compares_heads, resolve

THREE = ("triplet", "contrastive", "ms")
SIX = ("triplet-distance", "margin", "circle", "norm-softmax", "proxy-nca", "soft-triple")
SEVEN = ("circle", "triplet", "proxy-nca", "margin", "fast-ap", "ms", "snr")
FIVE = ("cub", "cars", "sop", "inshop", "vehicleid")


def test_every_row_of_the_main_tables_has_a_preset():
    rows = {f"{data}-{loss}" for data in FIVE for loss in THREE}
    rows |= {f"{data}-ms-{network}" for data in FIVE for network in ("bn-inception", "resnet50")}
    rows |= {f"{data}-{loss}" for data in ("cub", "cars") for loss in SIX}
    quoted = {f"{data}-xbm-bn-inception" for data in FIVE}
    quoted |= {f"{data}-proxy-anchor-bn-inception" for data in FIVE[:4]}
    quoted |= {f"{data}-{loss}-bn-inception" for data in FIVE[:3] for loss in SEVEN}
    quoted |= {f"{data}-fast-ap-resnet50" for data in FIVE[2:]}
    assert set(PRESETS) == rows | quoted | {"emoji"}


def test_rows_that_the_paper_quotes_are_baselines():
    preset = find("cub-xbm-bn-inception")
    assert (preset.config.loss, preset.config.memory, preset.config.augment.copies) == (
        "contrastive",
        5000,
        0,
    )
    row = paper_row(preset.config)
    assert row.numbers == {"test": {"R@1": 65.8, "R@2": 75.9, "R@4": 84.0}}
    assert row.tables == ("Table IV (quoted)",)
    without = dataclasses.replace(preset.config, memory=0)
    assert paper_row(without) is None
    assert (
        line("cub-snr-bn-inception") == "snr on cub, bn_inception: MAP@R 25.8 without IAA, quoted (Table VII)"
    )
    assert "--augment.copies 3    (with IAA)" in describe("cub-snr-bn-inception")
    both = find("cub-ms-bn-inception")
    assert both.config.augment.copies == 3
    assert both.baseline == {"test": {"MAP@R": 24.7, "RP": 35.4}}
    assert both.boosted["test"]["R@1"] == 66.5
    assert "baseline as quoted from others: MAP@R 24.7" in describe("cub-ms-bn-inception")


def test_the_recipe_is_that_of_section_vi_b():
    assert find("sop-ms").config == Config(
        data="sop",
        model="googlenet",
        loss="multi_similarity",
        epochs=100,
        images=Images(size=224),
        network=Network(dim=512, head="linear", freeze_bn=True),
        batch=BatchOptions(classes=64, per_class=4),
        augment=Augment(strength=0.6, own_copies=False),
        optimizer=Optimizer("adam", 1e-4, 10.0, 4e-4, "steps", (40, 60), 0.2),
    )
    small = find("cars-circle").config
    assert small.batch.classes * small.batch.per_class == 128
    assert small.augment.strength == 0.8
    assert find("cub-ms-bn-inception").config.model == "bn_inception"


@pytest.mark.parametrize("name", PRESETS)
def test_losses_are_known_and_configurations_survive_json(name):
    config = find(name).config
    assert losses.build(config.loss, num_classes=3, dim=4).loss is not None
    assert Config.from_json(config.to_json()) == config


def test_numbers_of_several_tables_come_together():
    preset = find("cars-ms")
    assert preset.tables == ("Table III", "Table VI")
    assert preset.boosted == {"test": {"R@1": 84.2, "R@2": 90.4, "R@4": 94.3, "MAP@R": 27.6, "RP": 37.7}}
    assert preset.baseline == {"test": {"R@1": 77.0, "R@2": 84.3, "R@4": 89.9, "MAP@R": 22.0, "RP": 32.7}}
    vehicles = find("vehicleid-ms-resnet50")
    assert vehicles.boosted == {
        "small": {"R@1": 95.7, "R@5": 97.9},
        "medium": {"R@1": 94.3, "R@5": 97.0},
        "large": {"R@1": 93.6, "R@5": 96.9},
    }
    assert vehicles.baseline is None


def test_recalls_grow_with_k_and_with_iaa():
    found = {}
    for cell in cells():
        recalls = [value for metric, value in cell.values.items() if metric.startswith("R@")]
        assert recalls == sorted(recalls)
        found[cell.table, cell.row, cell.data, cell.test, cell.boosted] = cell.values
    for (*key, boosted), values in found.items():
        if not boosted:
            better = found[*key, True]
            assert all(better[metric] > value for metric, value in values.items())


def test_the_paper_is_asked_for_the_arm_that_runs():
    config = find("cub-triplet").config
    assert paper_row(config).numbers["test"]["R@1"] == 58.9
    baseline = dataclasses.replace(
        config, augment=dataclasses.replace(config.augment, copies=0, strength=0.1)
    )
    row = paper_row(baseline)
    assert row.numbers["test"]["R@1"] == 54.4
    assert row.departures == ()


def test_departures_from_the_recipe_are_named():
    config = find("cub-triplet").config
    free = dataclasses.replace(config, seed=7, root="/data/cub", precision="bf16")
    assert paper_row(free).departures == ()
    other = dataclasses.replace(config, epochs=3, augment=dataclasses.replace(config.augment, neighbors=5))
    assert paper_row(other).departures == ("epochs 3, not 100", "augment.neighbors 5, not 25")


@pytest.mark.parametrize("name", FREE)
def test_free_fields_are_fields(name):
    value = Config()
    for part in name.split("."):
        value = getattr(value, part)


def test_the_paper_has_no_row_for_ones_own_data():
    assert paper_row(Config()) is None
    assert paper_row(dataclasses.replace(find("cub-ms").config, model="lite0")) is None
    baseline = find("sop-ms-resnet50").config
    assert paper_row(dataclasses.replace(baseline, augment=Augment(copies=0))) is None


def test_vehicleid_of_one_size():
    config = dataclasses.replace(find("vehicleid-ms-resnet50").config, split=Split(size="large"))
    assert paper_row(config).numbers == {"large": {"R@1": 93.6, "R@5": 96.9}}


def test_a_command_line_starts_from_a_preset_a_file_or_nothing(tmp_path):
    assert start([]) == (Config(), [])
    assert start(["--epochs", "3"]) == (Config(), ["--epochs", "3"])
    assert start(["cub-ms", "--epochs", "3"]) == (find("cub-ms").config, ["--epochs", "3"])
    (tmp_path / "config.json").write_text(Config(seed=5).to_json())
    assert start([str(tmp_path)]) == (Config(seed=5), [])
    assert start([str(tmp_path / "config.json")]) == (Config(seed=5), [])
    with pytest.raises(ValueError, match=r"no preset, configuration or run .car-ms.: did you mean .cars-ms."):
        start(["car-ms"])


def test_descriptions_name_table_command_and_numbers():
    text = describe("cars-ms")
    for expected in (
        "Table III, Table VI",
        "iaa train cars-ms --root FOLDER",
        "--augment.copies 0",
        "R@1 84.2",
    ):
        assert expected in text
    assert "(medium): R@1 94.3" in describe("vehicleid-ms-resnet50")
    assert line("cub-circle") == "circle on cub, googlenet: R@1 60.5 -> 60.9 with IAA (Table X)"


def test_help_lists_all_presets_or_describes_the_one_that_is_named():
    _, *lines = presets_help(["--help"]).splitlines()
    names = [re.split(r"[{,}]", text.removeprefix("- ")) for text in lines]  # as a shell expands braces
    assert {data + row for data, *rows in names for row in (rows[:-1] or [""])} == set(PRESETS)
    assert len(lines) == len({preset.config.data for preset in PRESETS.values()})
    assert presets_help(["cub-ms", "--help"]) == describe("cub-ms")


def test_presets_of_the_paper_train_one_network_and_compare_no_heads():
    rows = [name for name in PRESETS if name != "emoji"]
    assert not [name for name in rows if compares_heads(resolve(find(name).config))]
