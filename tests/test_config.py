import json
from dataclasses import fields, is_dataclass, replace

import pytest

from iaa.config import Augment, Batch, Config, Optimizer, Run, Split, load_config


def test_json_and_back():
    config = Config(
        data="cub",
        loss_options={"margin": 0.1},
        augment=Augment(copies=0),
        optimizer=Optimizer(drop_at=(3, 5)),
        split=Split(val_classes=0.1),
    )
    assert Config.from_json(config.to_json()) == config
    assert hash(config.optimizer) == hash(Config.from_json(config.to_json()).optimizer)  # tuples stay tuples


def test_what_is_not_given_keeps_its_default(tmp_path):
    (tmp_path / "config.json").write_text('{"augment": {"copies": 1}}')
    assert load_config(tmp_path) == Config(augment=Augment(copies=1))
    with pytest.raises(FileNotFoundError, match="no configuration at"):
        load_config(tmp_path / "elsewhere.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON"),
        ("[]", "must hold an object"),
        ('{"epoch": 3}', "got 'epoch' .did you mean 'epochs'"),
        ('{"augment": {"copy": 3}}', "a field of augment in .*did you mean 'copies'"),
        ('{"optimizer": {"name": "adm"}}', "did you mean 'adam'"),
    ],
)
def test_mistakes_in_a_file_are_named(text, message):
    with pytest.raises(ValueError, match=message):
        Config.from_json(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch": Batch(classes=1)}, "classes >= 2"),
        ({"devices": 3}, r"batch.classes \(32\) must be a multiple of devices \(3\)"),
        ({"run": Run(select="best")}, "needs split.val_classes"),
    ],
)
def test_what_cannot_be_run_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(Config(), **changes)


def test_every_option_of_the_method_can_be_set():
    import inspect

    from iaa import IAA

    options = set(inspect.signature(IAA).parameters) - {"num_classes", "dim"}
    assert options <= {one.name for one in fields(Augment)}
    assert all(is_dataclass(value) for value in vars(Config()).values() if not json_like(value))


def json_like(value: object) -> bool:
    try:
        return bool(json.dumps(value))
    except TypeError:
        return False
