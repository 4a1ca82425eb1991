"""The page about how parameters were chosen, from tuning.json."""

import json
from collections.abc import Iterator
from typing import Any

from markdown_tables import grid
from measurement import HERE
from tuning import MARGINS, USUAL, margins_of


def choices() -> Iterator[str]:
    """From tuning.json, in two or three tables."""
    tuned = json.loads((HERE / "tuning.json").read_text())
    rows, changes, names = [], [], list[str]()
    for bench, losses in tuned.items():
        for loss, study in losses.items():
            row = [bench, loss]
            for kind, chosen in (("baseline", "baseline_chosen"), ("iaa", "chosen")):
                tried = study.get(kind, {})
                best = max((trial["mean"] for trial in tried.values()), default=float("nan"))
                row += [_short(study[chosen]), str(len(tried)), f"{best:.2f}" if tried else ""]
            rows.append(row)
            if "alternatives" in study:
                names = [*study["alternatives"]]
                gains = (f"{trial['mean'] - best:+.2f}" for trial in study["alternatives"].values())
                changes.append([bench, loss, *gains])
    if not rows:
        return
    head = ["data", "loss"]
    head += [
        f"{kind}{column}" for kind in ("baseline", "IAA") for column in (" chosen", ", trials", ", MAP@R")
    ]
    yield from grid(head, rows)
    yield "## The same margin for both\n"
    yield "Trials in which both used the same margin; IAA at its chosen strength, before own copies.\n"
    yield from grid(["data", "loss", "margin", "baseline", "IAA", "gain"], [*_margins(tuned)])
    if changes:
        yield "## Single changes\n"
        yield "Changes of that MAP@R when one option of the chosen IAA changes. None of them was adopted.\n"
        yield from grid(["data", "loss", *names], changes)


def _margins(tuned: dict[str, Any]) -> Iterator[list[str]]:
    """Baseline and IAA at every margin that both have tried."""
    for bench, losses in tuned.items():
        for loss in MARGINS:
            name, values = margins_of(bench, loss)
            if "iaa" not in (study := losses.get(loss, {})):
                continue
            begun = {"baseline": USUAL[name], "iaa": study["baseline_chosen"]["loss_options"][name]}
            first = {
                "baseline": f"rate-{study['chosen']['optimizer.lr']:g}",
                "iaa": f"strength-{study['chosen']['augment.strength']:g}",
            }
            for value in values:
                trials = {
                    kind: first[kind] if value == begun[kind] else f"{further}margin-{value:g}"
                    for kind, further in (("baseline", ""), ("iaa", "iaa-"))
                }
                if all(trial in study[kind] for kind, trial in trials.items()):
                    plain, boosted = (study[kind][trial]["mean"] for kind, trial in trials.items())
                    gain = f"{boosted - plain:+.2f}"
                    yield [bench, loss, f"{name} {value:g}", f"{plain:.2f}", f"{boosted:.2f}", gain]


def _short(fields: dict[str, Any]) -> str:
    flat = {key: value for key, value in fields.items() if not isinstance(value, dict)}
    flat |= fields.get("loss_options", {})
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in flat.items())
