"""Small folders of images to make galleries of."""

from pathlib import Path

import tiny_datasets


def more(root: Path, *names: str, each: int = 2) -> Path:
    for number, name in enumerate(names):
        for i in range(each):
            tiny_datasets.image(root / name / f"{i}.png", seed=1000 + 10 * number + i, size=(20, 20))
    return root
