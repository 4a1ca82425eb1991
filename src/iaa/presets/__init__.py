"""Training runs by name: a preset for every row of the paper's main tables, with the paper's numbers."""

import difflib
import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from iaa.config import Augment, BatchOptions, Config, Images, Network, Optimizer, load_config
from iaa.presets.paper_tables import Numbers, cells

NETWORKS = {"bn-inception": "bn_inception", "resnet50": "resnet50"}
LOSSES = {"ms": "multi_similarity", "xbm": "contrastive"}
MEMORY = {"cub": 5_000, "cars": 5_000, "sop": 50_000, "inshop": 20_000, "vehicleid": 50_000}
"""Originals that the memory of XBM holds: most of a training set, as its authors found best."""
SMALL = ("cub", "cars")
FREE = (
    *("seed", "device", "devices", "precision", "run", "augment", "root", "split.size"),
    *("images.workers", "images.cache", "images.on_bad_image", "network.channels_last", "network.compile"),
)
"""Fields that may differ from a preset's while its numbers are still expected."""


@dataclass(frozen=True)
class Preset:
    """A run by name, and the paper's numbers for it without and with IAA if its tables have any."""

    name: str
    tables: tuple[str, ...] = ()
    baseline: Numbers | None = None
    boosted: Numbers | None = None
    quoted: bool = False
    """Whether the paper quotes the baseline from others, who trained by other recipes."""

    @property
    def config(self) -> Config:
        """The run; it is made when it is asked for, because most commands only need the names."""
        return _config(self.name, copies=0 if self.quoted and self.boosted is None else 3)


@dataclass(frozen=True)
class Expected:
    """What the paper reports for a run, and the fields by which the run departs from the paper's recipe."""

    preset: str
    tables: tuple[str, ...]
    numbers: Numbers
    departures: tuple[str, ...]


def paper_config(data: str, row: str) -> Config:
    """The recipe of Section VI-B for a dataset and a row of a table, such as ``ms-resnet50``."""
    loss, model = row, "googlenet"
    for ending, network in NETWORKS.items():
        if row.endswith(f"-{ending}"):
            loss, model = row.removesuffix(f"-{ending}"), network
    return Config(
        data=data,
        model=model,
        loss=LOSSES.get(loss, loss.replace("-", "_")),
        memory=MEMORY[data] if loss == "xbm" else 0,
        epochs=100,
        images=Images(size=224),
        network=Network(dim=512, head="linear", freeze_bn=True),
        batch=BatchOptions(classes=32 if data in SMALL else 64, per_class=4),
        augment=Augment(
            copies=3,
            strength=0.8 if data in SMALL else 0.6,
            neighbors=25,
            mean_width=1.0,
            cov_width=1.0,
            global_share=0.1,
            falloff=0.1,
            few=40,
            own_copies=False,
            refresh="pass",
            refresh_every=4,
        ),
        optimizer=Optimizer(
            name="adam",
            lr=1e-4,
            head_factor=10.0,
            weight_decay=4e-4,
            schedule="steps",
            drop_at=(40, 60),
            drop_by=0.2,
        ),
    )


@functools.cache
def _config(name: str, *, copies: int) -> Config:
    if name == "emoji":
        return Config()
    config = paper_config(*name.split("-", 1))
    return replace(config, augment=replace(config.augment, copies=copies))


def _all() -> dict[str, Preset]:
    presets = {"emoji": Preset("emoji")}
    rows = [(cell, False) for cell in cells()] + [(cell, True) for cell in cells(quoted=True)]
    for cell, quoted in rows:
        name = f"{cell.data}-{cell.row}"
        preset = presets.get(name) or Preset(name)
        arm = "boosted" if cell.boosted else "baseline"
        numbers = {**(getattr(preset, arm) or {})}
        numbers[cell.test] = numbers.get(cell.test, {}) | cell.values
        changes: dict[str, Any] = {arm: numbers, "tables": (*dict.fromkeys([*preset.tables, cell.table]),)}
        presets[name] = replace(preset, quoted=preset.quoted or quoted, **changes)
    return presets


PRESETS: dict[str, Preset] = _all()


def find(name: str) -> Preset:
    """A preset by name.

    >>> find("cars-ms").boosted["test"]["R@1"]
    84.2
    """
    if name not in PRESETS:
        near = " or ".join(map(repr, difflib.get_close_matches(name, PRESETS, n=3)))
        hint = f"did you mean {near}? " if near else ""
        raise ValueError(
            f"no preset, configuration or run {name!r}: {hint}`iaa train --help` lists all presets"
        )
    return PRESETS[name]


def start(arguments: Sequence[str]) -> tuple[Config, list[str]]:
    """The configuration that a command line starts from (a preset, ``config.json`` or run), and the rest.

    >>> config, rest = start(["cars-ms", "--augment.copies", "0"])
    >>> print(config.data, rest)
    cars ['--augment.copies', '0']
    """
    if not arguments or arguments[0].startswith("-"):
        return Config(), list(arguments)
    first, *rest = arguments
    if first not in PRESETS and Path(first).exists():
        return load_config(first), rest
    return find(first).config, rest


def paper_row(config: Config) -> Expected | None:
    """The paper's numbers for a run, the baseline's if it has no copies; None if the paper has no such row.

    >>> paper_row(find("cub-circle").config).numbers
    {'test': {'R@1': 60.9}}
    """
    for preset in PRESETS.values():
        numbers = preset.boosted if config.augment.copies else preset.baseline
        same = all(
            getattr(config, key) == getattr(preset.config, key) for key in ("data", "model", "loss", "memory")
        )
        if same and numbers:
            wanted = {test: dict(row) for test, row in numbers.items() if config.split.size in (None, test)}
            quoted = " (quoted)" if preset.quoted and not config.augment.copies else ""
            tables = tuple(f"{table}{quoted}" for table in preset.tables)
            return Expected(preset.name, tables, wanted, departures(config, preset.config))
    return None


def departures(config: Config, recipe: Config, *, free: Sequence[str] = FREE) -> tuple[str, ...]:
    """Every field that differs, except the free ones: ``epochs 10, not 100``.

    IAA's own fields are free only for a baseline.
    """
    ours, theirs = flat_fields(config), flat_fields(recipe)
    allowed = [key for key in free if not (key == "augment" and config.augment.copies)]
    return tuple(
        f"{key} {ours[key]}, not {theirs[key]}"
        for key in theirs
        if ours[key] != theirs[key] and not any(key == name or key.startswith(f"{name}.") for name in allowed)
    )


def flat_fields(config: Config) -> dict[str, Any]:
    """Every field of a configuration as ``group.field``.

    >>> flat_fields(Config())["optimizer.lr"]
    0.001
    """
    flat: dict[str, Any] = {}
    for name, value in asdict(config).items():
        nested = isinstance(value, dict) and name != "loss_options"
        flat |= {f"{name}.{field}": inner for field, inner in value.items()} if nested else {name: value}
    return flat


def line(name: str) -> str:
    """One line on a preset.

    >>> line("sop-ms-resnet50")
    'multi_similarity on sop, resnet50: R@1 82.8 with IAA (Table IV, Table VII)'
    """
    preset = find(name)
    config, tables = preset.config, ", ".join(preset.tables)
    memory = f" with a memory of {config.memory}" if config.memory else ""
    what = f"{config.loss}{memory} on {config.data}, {config.model}"
    numbers = preset.boosted or preset.baseline
    if numbers is None:
        return f"{what}: the default, minutes on a laptop, not of the paper"
    test = "medium" if "medium" in numbers else "test"
    if preset.boosted is None:
        metric, value = next(iter(numbers[test].items()))
        return f"{what}: {metric} {value} without IAA, quoted ({tables})"
    before = f"{preset.baseline[test]['R@1']} -> " if preset.baseline and not preset.quoted else ""
    return f"{what}: R@1 {before}{numbers[test]['R@1']} with IAA ({tables})"


def describe(name: str) -> str:
    """The long form: table, commands, expected numbers."""
    preset = find(name)
    root = "" if preset.config.data == "emoji" else " --root FOLDER"
    lines = [f"{name}: {line(name)}", f"- iaa train {name}{root}"]
    other = ("3", "with IAA") if preset.config.augment.copies == 0 else ("0", "the baseline")
    lines += [f"- iaa train {name}{root} --augment.copies {other[0]}    ({other[1]})"]
    before = "baseline as quoted from others" if preset.quoted else "baseline"
    for arm, numbers in ((before, preset.baseline), ("with IAA", preset.boosted)):
        for test, row in (numbers or {}).items():
            scores = ", ".join(f"{metric} {value}" for metric, value in row.items())
            lines.append(f"- paper, {arm}{'' if test == 'test' else f' ({test})'}: {scores}")
    return "\n".join(lines)


def presets_help(arguments: Sequence[str]) -> str:
    """For ``--help``: the preset that was named, or the names of all, a line for each dataset.

    Lines begin with a dash, since tyro refills other text.
    """
    if arguments and arguments[0] in PRESETS:
        return describe(arguments[0])
    rows: dict[str, list[str]] = {}
    for name in PRESETS:
        data, _, row = name.partition("-")
        rows.setdefault(data, []).append(row)
    lines = [f"- {data}-{{{','.join(names)}}}" if any(names) else f"- {data}" for data, names in rows.items()]
    return "\n".join(["Presets; the name of one with --help shows the paper's numbers for it:", *lines])
