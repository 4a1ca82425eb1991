"""``iaa export``: a finished run as a stand-alone ONNX file, or as weights with a model card."""

from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from iaa.cli.run_paths import check_model
from iaa.errors import need


def command(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    to: Literal["onnx", "safetensors"] = "onnx",
    out: Path | None = None,
    vectors: bool = False,
) -> int:
    """Export a finished run for use elsewhere.

    To onnx: one file that works without this package. Pixels go in as bytes, resized and cropped as its
    metadata says (examples/onnx_search.py shows how), and are normalised inside; embeddings come out, any
    number at once. The file is kept only if onnxruntime gives the same embeddings as PyTorch.

    To safetensors: a folder with weights, configuration and a model card, for `iaa.load(FOLDER)`.

    Args:
        run: The run directory.
        to: The format to write.
        out: The file or folder to write; without it, model.onnx or safetensors/ in the run directory.
        vectors: Export only the head of a model trained on vectors, even if the network before it is known.
    """
    console = Console(stderr=True)
    if out is None and str(run).startswith("hf:"):
        raise ValueError("--out must say where to write what is exported of a model on the hub")
    if to == "safetensors":
        if vectors:
            raise ValueError("--vectors is for onnx: safetensors always holds what was trained")
        if out is not None and out.suffix in (".safetensors", ".onnx"):
            raise ValueError(f"--out must name a folder for safetensors, got {out}")
        from iaa.export.export_run import export_safetensors
        from iaa.inference import load

        check_model(run)
        with console.status("measuring intervals"):
            files = export_safetensors(load(run, device="cpu"), out or run / "safetensors")
        print(f"wrote {files[0].parent}: " + ", ".join(file.name for file in files))
        return 0
    target = out or run / "model.onnx"
    if target.suffix != ".onnx":
        raise ValueError(f"--out must name a .onnx file, got {target}")
    if target.is_dir():
        raise ValueError(f"--out must name a .onnx file, got the folder {target}")
    check_model(run)
    for package in ("onnx", "onnxscript", "onnxruntime"):
        need(package, extra="export")
    from iaa.export.export_run import export_onnx
    from iaa.inference import load

    with console.status("exporting"):
        model = load(run, device="cpu")
        agreement = export_onnx(model, target, vectors=vectors)
    size = target.stat().st_size / 2**20
    print(f"wrote {target}: {size:.1f} MB, {model.dim} numbers per embedding, any batch size")
    print(f"checked with onnxruntime against PyTorch: {agreement}")
    if model.network is not None and not vectors:
        print("it normalises pixels but does not resize or crop: examples/onnx_search.py shows how")
    return 0
