"""Search a folder of images with an exported model: onnxruntime, numpy and pillow, nothing else.

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
    """One image as the model wants it: its metadata says how."""
    with Image.open(path) as file:
        file.draft(None, (wanted["jpeg_at_least"],) * 2)  # a large JPEG need not be decoded whole
        over = ImageOps.exif_transpose(file).convert("RGBA")
    image = Image.alpha_composite(Image.new("RGBA", over.size, wanted["background"]), over).convert("RGB")
    short, side, resize = min(image.size), wanted["size"], wanted["resize"]
    keep = wanted["aspect"] == "keep"
    width, height = (int(resize * length / short) if keep else resize for length in image.size)
    image = image.resize((width, height), Image.Resampling[wanted["interpolation"].upper()])
    left, top = round((width - side) / 2), round((height - side) / 2)
    return np.asarray(image.crop((left, top, left + side, top + side)))


def embed(
    session: onnxruntime.InferenceSession, paths: list[Path], batch: int = 32
) -> tuple[np.ndarray, list[Path]]:
    """Embeddings of unit length, so that a product is the cosine similarity, and the images they are of."""
    wanted = json.loads(session.get_modelmeta().custom_metadata_map["preprocessing"])
    found, good, bad = [], [], []
    for start in range(0, len(paths), batch):
        pixels = []
        for path in paths[start : start + batch]:
            try:
                pixels.append(prepare(path, wanted))
                good.append(path)
            except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
                bad.append(f"{path} cannot be read: {error}")
        if pixels:
            found.append(session.run(["embedding"], {"pixels": np.stack(pixels)})[0])
    if not found:
        sys.exit(bad[0])
    for line in bad:
        print(f"left out: {line}", file=sys.stderr)
    z = np.concatenate(found)
    return z / np.linalg.norm(z, axis=1, keepdims=True), good


def open_model(model: str) -> onnxruntime.InferenceSession:
    try:
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a class of its own for every cause
        sys.exit(f"{model} is no ONNX file that can be opened: {' '.join(str(error).split())}")
    name = session.get_inputs()[0].name
    if name != "pixels" or "preprocessing" not in session.get_modelmeta().custom_metadata_map:
        sys.exit(f"{model} takes {name}, not images: export a run that was trained on images")
    return session


def main(model: str, folder: str, query: str, top: int = 5) -> None:
    session = open_model(model)
    paths = sorted(
        p for p in Path(folder).rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png", ".webp")
    )
    if not paths:
        sys.exit(f"{folder} holds no images" if Path(folder).is_dir() else f"there is no folder {folder}")
    (asked,), _ = embed(session, [Path(query)])
    z, paths = embed(session, paths)
    similarity = z @ asked
    for place in np.argsort(-similarity)[:top]:
        print(f"{similarity[place]:.3f}  {paths[place]}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python onnx_search.py MODEL.onnx FOLDER QUERY.jpg")
    main(sys.argv[1], sys.argv[2], sys.argv[3])
