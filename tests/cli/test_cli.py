"""The command line as a whole: start-up, help, version, completion, and answers to usual mistakes."""

import shutil
import subprocess
import sys

import pytest

import iaa
from iaa import cli
from iaa.cli import VERBS, main
from iaa.cli.completion import completion_script

HEAVY = ("torch", "numpy", "scipy", "matplotlib", "pytorch_metric_learning", "PIL")


def imported_after(arguments: list[str]) -> tuple[int, list[str], str]:
    """Exit code, heavy modules and output of a command line in a fresh interpreter."""
    code = f"""
import sys
from iaa.cli import main
try:
    code = main({arguments!r})
except SystemExit as end:
    code = end.code
print("\\nMODULES", code, *[name for name in {HEAVY!r} if name in sys.modules])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    text, _, last = run.stdout.rstrip().rpartition("\nMODULES ")
    number, *modules = last.split()
    return int(number), modules, text + run.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_command_comes_without_torch(verb):
    code, modules, text = imported_after([verb, "--help"])
    assert (code, modules) == (0, [])
    assert "usage: iaa" in text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["--print-completion", "bash"], 0),
        (["analyze", "atlas", "--help"], 0),
        (["ablate", "few-samples", "--help"], 0),
        (["trian"], 2),
        (["train", "--augment.copy", "2"], 2),
        (["compare", "--seeds", "many"], 2),
        (["evaluate", "runs/nowhere"], 2),
        (["report", "runs/nowhere"], 2),
    ],
)
def test_quick_answers_come_without_torch(arguments, expected):
    code, modules, _ = imported_after(arguments)
    assert (code, modules) == (expected, [])


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"iaa {iaa.__version__}\n"


def test_completion_names_commands_options_and_presets():
    script = completion_script("bash")
    assert completion_script("zsh").endswith(script)
    for word in ("train compare", "--optimizer.lr", "--run.no-untrained", "cars-ms", "few-samples"):
        assert word in script
    with pytest.raises(ValueError, match="the shell must be one of 'bash', 'zsh'"):
        completion_script("fish")


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["iaa", "ev"], ["evaluate"]),
        (["iaa", "analyze", "corr"], ["correlation"]),
        (["iaa", "analyze", "atlas", "--len"], ["--lenders"]),
        (["iaa", "train", "--optimizer.l"], ["--optimizer.lr"]),
        (["iaa", "train", "cars-ms", "--dry"], ["--dry-run"]),
        (["iaa", "serve", "x", "--no-o"], ["--no-open"]),
        (["iaa", "embed", "x", "--mod"], ["--model"]),
        (["iaa", "ablate", "few-s"], ["few-samples"]),
        (["iaa", "embed", "x", "--on-b"], ["--on-bad-image"]),
    ],
)
def test_completion_works_in_bash(line, expected):
    words = " ".join(f"'{word}'" for word in line)
    ask = f"COMP_WORDS=({words}); COMP_CWORD={len(line) - 1}; _iaa; echo ${{COMPREPLY[@]}}"
    run = subprocess.run(
        ["bash", "-c", f"{completion_script('bash')}\n{ask}"], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == expected


def test_the_last_part_of_a_field_is_enough():
    from iaa.cli.cmd_train import TrainOptions
    from iaa.cli.config_options import parse

    arguments = ["--lr", "1e-4", "--copies=2", "--no-untrained", "--weight_decay", "0.1"]
    config = parse(TrainOptions, arguments, prog="iaa train", description="").config
    assert (config.optimizer.lr, config.optimizer.weight_decay) == (1e-4, 0.1)
    assert (config.augment.copies, config.run.untrained) == (2, False)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A working directory with photos, a table, vectors and a run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos/cat").mkdir(parents=True)
    (tmp_path / "table.csv").touch()
    (tmp_path / "vectors.npz").touch()
    (tmp_path / "photos.zip").touch()
    (tmp_path / "cat.jpg").touch()
    (tmp_path / "runs/emoji-1").mkdir(parents=True)
    (tmp_path / "runs/emoji-1/config.json").write_text("{}")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train photos", "photos is not a run directory: did you mean --data folder:photos?"),
        ("train folder:photos", "folder:photos is not a preset: did you mean --data folder:photos?"),
        ("train --data photos", "--data photos is not a dataset: did you mean --data folder:photos?"),
        ("compare --data table.csv", "did you mean --data table:table.csv?"),
        ("ablate copies vectors.npz", "did you mean --data embeddings:vectors.npz?"),
        ("train --augment.copy 2", "unknown option --augment.copy; did you mean --augment.copies?"),
        ("train --learning-rte 2", "`iaa train --help` lists all options"),
        ("compare --per-class 2", "--per-class could be --split.per-class or --batch.per-class: name one"),
        ("evaluate runs/x", "no such run or embeddings file: runs/x; you have runs/emoji-1"),
        ("evaluate nothing.safetensors", "nothing.safetensors; you have runs/emoji-1"),
        ("report runs/x", "you have runs/emoji-1"),
        ("analyze mining runs/x", "you have runs/emoji-1"),
        ("export runs/x", "you have runs/emoji-1"),
        ("search runs/x cat.jpg", "no such run or embeddings file: runs/x; you have runs/emoji-1"),
        ("search table.csv runs/emoji-1", "table.csv is neither a run directory nor an embeddings file; you"),
        ("search photos cat.jpg", "photos is not a run directory: it has no config.json; you have runs"),
        ("serve photos", "photos is not a run directory: it has no config.json; you have runs/emoji-1"),
        ("gallery export photos x.parquet", "photos is not a run directory: it has no config.json"),
        ("embed emoji --out x.safetensors --model runs/x", "you have runs/emoji-1"),
        ("train photos.zip", "photos.zip is a file, not a folder: unpack it first"),
        ("train --data photos.zip", "photos.zip is a file, not a folder: unpack it first"),
        ("train --data folder:photos.zip", "photos.zip is a file, not a folder: unpack it first"),
        ("train --data folder:cat.jpg", "cat.jpg is a file, not a folder: name the folder that holds one"),
        ("train --data folder:photo", "folder photo does not exist (did you mean photos?)"),
        ("train --data table:tabel.csv", "--data table:tabel.csv: there is no file tabel.csv"),
        ("train --data cubb", "'embeddings:FILE'; got 'cubb' (did you mean 'cub'?)"),
        ("train --data folder:photos --device cuda", "device cuda is not available here: use auto or cpu"),
        (
            "train --split.test-share 20",
            "--split.test-share is a share of the classes and must lie between 0",
        ),
        ("train --lr -1", "--optimizer.lr must be more than 0, got -1.0"),
        ("data stats photos", "photos is not a dataset: did you mean folder:photos?"),
    ],
)
def test_usual_mistakes_are_answered_in_one_line(arguments, message, capsys):
    assert main(arguments.split()) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_keyword_arguments_of_the_library_are_shown_as_options():
    message = "get it elsewhere and give it as weights=FILE, or start from scratch with pretrained=False"
    assert cli._as_options(message, "train") == (
        "get it elsewhere and give it as --network.weights FILE, or start from scratch with "
        "--network.no-pretrained"
    )
    assert "--weights FILE, or start from scratch with --no-pretrained" in cli._as_options(message, "embed")


def test_an_unforeseen_error_is_one_line_that_names_the_file(tmp_path, capsys, monkeypatch):
    file = tmp_path / "metrics.json"
    file.touch()

    def broken(path):
        return {}["missing"]

    monkeypatch.setattr("iaa.cli.cmd_evaluate._files", broken)
    assert main(["evaluate", str(file)]) == 70
    error = capsys.readouterr().err
    expected = (
        f"iaa evaluate: unexpected KeyError while working on {file}: 'missing'; add --traceback to see "
    )
    assert error == f"{expected}where it happened\n"
    assert main(["evaluate", str(file), "--traceback"]) == 70
    error = capsys.readouterr().err
    assert "Traceback (most recent call last)" in error
    assert "--traceback" not in error.splitlines()[-1]


def test_data_of_the_command_line_are_those_of_the_library():
    from iaa.cli.config_options import BENCHMARKS as NAMES
    from iaa.data.loading import BENCHMARKS

    assert set(NAMES) == {*BENCHMARKS, "emoji"}
