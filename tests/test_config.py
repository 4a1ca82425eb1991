import json
from dataclasses import fields, is_dataclass, replace

import pytest

from iaa.config import (
    Augment,
    BatchOptions,
    Config,
    Images,
    Network,
    Optimizer,
    RunOptions,
    Split,
    load_config,
)


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
        ("{", "is not valid JSON"),
        ("[]", "must hold a JSON object"),
        ('{"epoch": 3}', "got 'epoch' .did you mean 'epochs'"),
        ('{"augment": {"copy": 3}}', "a field of augment in .*did you mean 'copies'"),
        ('{"optimizer": {"name": "adm"}}', "did you mean 'adam'"),
        ('{"epochs": "x"}', "^epochs in the configuration must be a whole number, got 'x'$"),
        ('{"epochs": true}', "epochs in .* must be a whole number, got True"),
        ('{"epochs": 2.0}', "must be a whole number, got 2.0"),
        ('{"data": null}', "data in .* must be text, got None"),
        ('{"model": 3}', "model in .* must be text, got 3"),
        ('{"batch": {"classes": "3"}}', "classes in batch in .* must be a whole number, got '3'"),
        ('{"images": {"size": "48"}}', "size in images in .* must be a whole number or null, got '48'"),
        ('{"network": {"pretrained": 1}}', "must be true or false, got 1"),
        ('{"network": {"hidden": [7, "a"]}}', "must be a list of whole numbers, got .7, 'a'."),
        ('{"optimizer": {"lr": false}}', "lr in optimizer in .* must be a number, got False"),
        ('{"loss_options": {"margin": [1]}}', "must be an object whose values are each true or false or a"),
    ],
)
def test_mistakes_in_a_file_are_named(text, message):
    with pytest.raises(ValueError, match=message):
        Config.from_json(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch": BatchOptions(classes=1)}, "classes >= 2"),
        ({"devices": 3}, r"batch.classes \(32\) must be a multiple of devices \(3\)"),
        ({"run": RunOptions(select="best")}, "needs split.val_classes"),
        ({"augment": Augment(copies=-1)}, "augment.copies must be at least 0, got -1"),
        ({"images": Images(size=0)}, "images.size must be at least 1, got 0"),
        ({"network": Network(dim=0)}, "network.dim must be at least 1, got 0"),
        ({"optimizer": Optimizer(lr=0)}, "optimizer.lr must be more than 0, got 0"),
        ({"optimizer": Optimizer(lr=float("nan"))}, "optimizer.lr must be more than 0, got nan"),
        ({"optimizer": Optimizer(average=1)}, r"optimizer.average must lie in \[0, 1\), got 1"),
        ({"optimizer": Optimizer(average=-0.1)}, r"optimizer.average must lie in \[0, 1\), got -0.1"),
        ({"split": Split(test_share=20)}, "split.test_share is a share of the classes"),
        ({"split": Split(val_classes=-0.1)}, "split.val_classes is a share of the classes"),
    ],
)
def test_what_cannot_be_run_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(Config(), **changes)


@pytest.mark.usefixtures("unchecked")
def test_choices_are_checked_in_python_too():
    with pytest.raises(ValueError, match="effort must be one of 'quick', 'normal', 'high'; got 'quik'"):
        Config(effort="quik")
    with pytest.raises(ValueError, match=r"augment.covariance must be one of 'diagonal', .*; got 'diag'"):
        Config(augment=Augment(covariance="diag"))


def test_whole_numbers_and_nothing_are_good_where_they_may_stand():
    text = '{"root": null, "images": {"size": null}, "augment": {"few": 40}, "loss_options": {"margin": 1}}'
    config = Config.from_json(text)
    assert (config.root, config.images.size, config.augment.few) == (None, None, 40)
    assert config.loss_options == {"margin": 1}


def test_a_folder_that_is_not_a_run_is_reported_as_such(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=f"^{tmp_path} is not a run directory: it has no config.json$"
    ):
        load_config(tmp_path)


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
