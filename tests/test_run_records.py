import subprocess

import torch

from iaa import run_records


def test_a_run_is_dirty_only_if_the_package_is(tmp_path, monkeypatch):
    package = tmp_path / "src" / "iaa"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(run_records, "__file__", str(package / "run_records.py"))
    clean = run_records._commit()
    (tmp_path / "page.md").write_text("written by a run")
    assert clean
    assert run_records._commit() == clean
    (package / "__init__.py").write_text("changed")
    assert run_records._commit() == f"{clean}-dirty"


def test_threads_are_recorded():
    assert run_records.environment(seed=3)["threads"] == torch.get_num_threads()
    assert run_records.environment(seed=3)["seed"] == 3
