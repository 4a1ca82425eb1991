"""Search a folder of pictures with an exported model: onnxruntime, numpy and pillow, nothing else.

iaa export RUN --to onnx --out model.onnx
python onnx_search.py model.onnx FOLDER QUERY.jpg
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageOps


def prepare(path: Path, wanted: dict) -> np.ndarray:  # type: ignore[type-arg]
    """One picture as the model wants it: its metadata says how."""
    with Image.open(path) as picture:
        picture.draft(None, (wanted["jpeg_at_least"],) * 2)  # a large JPEG need not be decoded whole
        over = ImageOps.exif_transpose(picture).convert("RGBA")
    image = Image.alpha_composite(Image.new("RGBA", over.size, wanted["background"]), over).convert("RGB")
    short, side, resize = min(image.size), wanted["size"], wanted["resize"]
    keep = wanted["aspect"] == "keep"
    width, height = (int(resize * length / short) if keep else resize for length in image.size)
    image = image.resize((width, height), Image.Resampling[wanted["interpolation"].upper()])
    left, top = round((width - side) / 2), round((height - side) / 2)
    return np.asarray(image.crop((left, top, left + side, top + side)))


def embed(session: onnxruntime.InferenceSession, paths: list[Path], batch: int = 32) -> np.ndarray:
    """Embeddings of unit length, so that a product is the cosine similarity."""
    wanted = json.loads(session.get_modelmeta().custom_metadata_map["preprocessing"])
    found = []
    for start in range(0, len(paths), batch):
        pixels = np.stack([prepare(path, wanted) for path in paths[start : start + batch]])
        found.append(session.run(["embedding"], {"pixels": pixels})[0])
    z = np.concatenate(found)
    return np.asarray(z / np.linalg.norm(z, axis=1, keepdims=True))


def main(model: str, folder: str, query: str, top: int = 5) -> None:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    paths = sorted(
        p for p in Path(folder).rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png", ".webp")
    )
    similarity = embed(session, paths) @ embed(session, [Path(query)])[0]
    for place in np.argsort(-similarity)[:top]:
        print(f"{similarity[place]:.3f}  {paths[place]}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3])
