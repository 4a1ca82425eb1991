"""The work that is counted before a run is the work that the run does."""

from dataclasses import replace

import pytest
from safetensors.torch import save_file

import tiny_runs
from iaa import models
from iaa.config import Augment, Images, Network, RunOptions, Split
from iaa.embed import embed_batches
from iaa.train import train
from iaa.training.setup import assemble, launch
from iaa.training.workload import workload


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny_runs.images(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    file = tmp_path_factory.mktemp("weights") / "w.safetensors"
    state = models.build("convnet", dim=None).backbone.state_dict()
    save_file({key: value.contiguous() for key, value in state.items()}, file)
    return str(file)


@pytest.mark.parametrize(
    ("fields", "purposes"),
    [
        ({}, {"statistics", "tests"}),
        ({"augment": Augment(copies=0)}, {"tests"}),
        ({"augment": Augment(samples=2, neighbors=3)}, {"statistics", "tests"}),
        ({"split": Split(test_share=0.2, val_classes=0.3)}, {"statistics", "validation", "tests"}),
        ({"network": Network(dim=8, head="linear", head_start="whitening")}, {"head", "statistics", "tests"}),
        ({"network": Network(dim=8, head="whitening")}, {"head", "tests"}),
        ({"untrained": True}, {"statistics", "raw features", "tests"}),
        ({"untrained": True, "weights": True}, {"statistics", "raw features", "own size", "tests"}),
        ({"untrained": True, "weights": True, "size": 48}, {"statistics", "raw features", "tests"}),
        ({"select": "best", "validate_every": 2}, {"statistics", "validation", "tests"}),
    ],
)
def test_the_run_does_what_was_counted(data, weights, tmp_path, monkeypatch, fields, purposes):
    options = RunOptions(out=str(tmp_path), name="run", untrained=False, logger="none")
    fields = dict(fields)
    for name in ("untrained", "select", "validate_every"):
        if name in fields:
            options = replace(options, **{name: fields.pop(name)})
    if options.select == "best":
        fields["split"] = Split(test_share=0.2, val_classes=0.3)
    if fields.pop("weights", False):
        fields["network"] = Network(dim=8, head="linear", weights=weights)
    images = Images(size=fields.pop("size", 16), workers=0)  # the network was made for 48
    config = tiny_runs.tiny(data, tmp_path, run=options, images=images, **fields)
    expected = workload(assemble(config, launch(config)))
    assert {purpose for purpose, images in expected.images.items() if images} == purposes
    embedded = 0

    def counted(network, batches, **options):
        nonlocal embedded
        z, labels, rows = embed_batches(network, batches, **options)
        embedded += len(z)
        return z, labels, rows

    monkeypatch.setattr("iaa.training.scoring.embed_batches", counted)
    run = train(config, quiet=True)
    assert len(tiny_runs.steps(run)) == expected.steps if config.trains else expected.steps == 0
    if "trained, last epoch" not in run.metrics["table"] and options.select == "best":
        embedded += len(run.embeddings("test"))  # the last was the best
    assert embedded == sum(expected.images.values())


def test_what_is_left_of_an_interrupted_run(data, tmp_path):
    config = tiny_runs.tiny(data, tmp_path, epochs=5)  # statistics before epochs 0, 2 and 4
    task = assemble(config, launch(config))
    whole = workload(task)
    steps = len(task.sampler)
    assert workload(task, epoch=2).steps == 3 * steps
    assert workload(task, epoch=2).images["statistics"] == whole.images["statistics"] * 2 / 3
    assert workload(task, epoch=2, step=1).images["statistics"] == whole.images["statistics"] / 3
    assert workload(task, epoch=2, step=1).steps == 3 * steps - 1
