import subprocess
import sys

import pytest

from iaa import torchvision_compat


def test_models_and_transforms_work_next_to_any_torch():
    script = (
        "from iaa.torchvision_compat import torchvision; tv = torchvision(); assert torchvision() is tv;"
        "import torchvision.models; from torchvision.transforms import v2; v2.Resize(8)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_any_other_failure_of_the_import_is_passed_on(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("another fault")

    monkeypatch.setattr(torchvision_compat, "need", fail)
    with pytest.raises(RuntimeError, match="another fault"):
        torchvision_compat.torchvision()


def test_importing_iaa_leaves_torchvision_alone():
    script = "import sys, iaa, iaa.torchvision_compat; assert not {'torchvision', 'PIL'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
