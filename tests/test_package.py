import ast
import inspect
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import iaa

HEAVY = [
    "pytorch_metric_learning",
    "timm",
    "torchvision",
    "faiss",
    "matplotlib",
    "scipy",
    "sklearn",
    "pandas",
]
TRAINING = [
    "iaa.train",
    "iaa.training",
    "iaa.boosting",
    "iaa.losses",
    "pytorch_metric_learning",
    "lightning_fabric",
]


def loaded(code: str, names: list[str]) -> list[str]:
    """Which of the modules a fresh interpreter has loaded after running the code."""
    line = f"import sys\n{code}\nprint([name for name in {names!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[str] = eval(done.stdout.strip().splitlines()[-1])
    return found


def test_import_is_light():
    assert loaded("import iaa", HEAVY) == []


@pytest.mark.parametrize(
    "words",
    [
        ["embed", "folder:{data}", "--model", "{run}", "--out", "{tmp}/z.safetensors", "--workers", "0"],
        ["evaluate", "{run}"],
        ["search", "{run}", "{image}", "--gallery", "folder:{data}"],
        ["export", "{run}", "--to", "safetensors", "--out", "{tmp}/bundle"],
    ],
    ids=lambda words: words[0],
)
def test_commands_that_use_a_model_import_no_training_code(words, trained, tmp_path):
    data = iaa.Run(trained).config.data.partition(":")[2]
    names = {"data": data, "run": trained, "tmp": tmp_path, "image": f"{data}/c0/0.png"}
    arguments = [word.format(**names) for word in words]
    code = f"from iaa.cli import main\nassert main({arguments!r}) == 0"
    assert loaded(code, TRAINING) == []


@pytest.mark.parametrize(
    "code",
    [
        "import iaa\nmodel = iaa.load({run!r})\nmodel.embed([{image!r}])",
        "import iaa\nrun = iaa.Run({run!r})\nrun.network(), run.metrics, run.embeddings(), run.statistics",
        "import iaa.serve.app, iaa.serve.server, iaa.serve.service",
        "from iaa.cli import cmd_embed, cmd_evaluate, cmd_export, cmd_search, cmd_serve",
    ],
    ids=["load", "run", "serve", "commands"],
)
def test_inference_imports_no_training_code(code, trained):
    image = iaa.Run(trained).config.data.partition(":")[2] + "/c0/0.png"
    assert loaded(code.format(run=str(trained), image=image), TRAINING) == []


@pytest.mark.parametrize(
    "before",
    ["", "import iaa.train", "from iaa.train import train", "iaa.train", "import iaa.training.loop"],
)
def test_train_is_callable_whatever_was_imported(before):
    code = f"""import iaa
{before}
import inspect
assert list(inspect.signature(iaa.train).parameters)[:2] == ["config", "resume"]
try:
    iaa.train()
except ValueError as error:
    assert "either a configuration or a run" in str(error)
else:
    raise SystemExit("not called")
from iaa.train import train
assert callable(train) and train.__name__ == "train"
"""
    assert loaded(code, []) == []


@pytest.mark.parametrize("before", ["", "import iaa.report", "import iaa.report.page"])
def test_report_is_callable_whatever_was_imported(before):
    code = f"""import iaa
{before}
try:
    iaa.report("nowhere")
except (OSError, ImportError) as error:
    print(error)
else:
    raise SystemExit("not called")
"""
    assert loaded(code, []) == []


@pytest.mark.parametrize("name", iaa.__all__)
def test_public_names_are_there(name):
    assert getattr(iaa, name).__doc__
    assert name in dir(iaa)


def test_public_functions_show_their_arguments():
    assert "resume" in inspect.signature(iaa.train).parameters
    assert "out" in inspect.signature(iaa.report).parameters
    assert "ks" in inspect.signature(iaa.evaluate).parameters


def test_unknown_names_are_no_names():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = iaa.nothing


def test_no_two_modules_share_a_basename_and_no_two_public_classes_a_name():
    root = Path(__file__).parents[1]
    sources = [path for path in (root / "src").rglob("*.py") if not path.stem.startswith("__")]
    modules = Counter(path.stem for path in [*sources, *(root / "benchmarks").glob("*.py")])
    classes = Counter(
        node.name
        for path in (root / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, number in (modules + classes).items() if number > 1] == []
