import importlib.metadata
import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning import miners
from safetensors.torch import load_file, save_file

import iaa
import tiny_datasets
import tiny_runs
from iaa import models
from iaa.config import Augment, BatchOptions, Images, Network, Optimizer, RunOptions, Split, load_config
from iaa.data_source import open_data
from iaa.run_records import trained_network
from iaa.runs import KEPT_WEIGHTS
from iaa.train import train
from iaa.training.defaults import resolve
from iaa.training.schedules import rate_factor


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny_runs.images(tmp_path_factory.mktemp("data"))


def test_a_run_leaves_everything(data, tmp_path):
    config = tiny_runs.tiny(
        data, tmp_path, run=RunOptions(out=str(tmp_path), name="run-1", logger="tensorboard")
    )
    folder = train(config, quiet=True)
    assert load_config(folder) == resolve(config)
    written = json.loads((folder / "surroundings.json").read_text())
    assert written["seed"] == 0
    assert written["versions"]["torch"] == importlib.metadata.version("torch")
    assert list((folder / "tensorboard").iterdir())
    metrics = json.loads((folder / "metrics.json").read_text())
    assert list(metrics["table"]) == ["pixels (16 x 16)", "untrained convnet", "trained"]
    found = iaa.Embeddings.load(folder / "embeddings.safetensors")
    assert len(found) == 2 * 6
    assert found.ids[0].endswith(".png")
    assert iaa.score(found.z, found.labels) == pytest.approx(metrics["test"]["test"])
    assert models.build("convnet", dim=8, size=16, weights=folder / "model.safetensors").loaded.missing == ()
    augment = iaa.IAA(8, 8)
    augment.load_state_dict(load_file(folder / "statistics.safetensors"))
    assert augment.count.tolist() == [6.0] * 8
    epochs = [row for row in tiny_runs.lines(folder) if "step" not in row]
    assert [row["epoch"] for row in epochs] == [0, 1, 2]
    assert [row["statistics_seconds"] > 0 for row in epochs] == [True, False, True]


def test_no_run_is_overwritten_and_equal_seeds_give_equal_runs(data, tmp_path):
    first, second = (train(tiny_runs.tiny(data, tmp_path, epochs=2), quiet=True) for _ in range(2))
    assert (first.name, second.name) == ("run-1", "run-1-1")
    weights = [load_file(folder / "model.safetensors") for folder in (first, second)]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    other = train(tiny_runs.tiny(data, tmp_path, epochs=2, seed=1), quiet=True)
    assert not torch.equal(load_file(other / "model.safetensors")["head.weight"], weights[0]["head.weight"])


def test_any_generator_begins_when_configured_and_fades(data, tmp_path, monkeypatch):
    strengths = []
    original = iaa.IAA.forward
    monkeypatch.setattr(
        iaa.IAA, "forward", lambda self, *a, **k: strengths.append(self.strength) or original(self, *a, **k)
    )
    augment = Augment(start_epoch=1, strength=0.8, strength_decay=0.5, neighbors=3)
    folder = train(tiny_runs.tiny(data, tmp_path, augment=augment), quiet=True)
    shares = {row["epoch"]: row["synthetic_negatives"] for row in tiny_runs.steps(folder)}
    assert shares[0] == 0
    assert shares[1] > 0.3
    assert sorted(set(strengths), reverse=True) == pytest.approx([0.6, 0.4])


@pytest.mark.parametrize(
    ("loss", "own_copies", "counted"),
    [("triplet", None, True), ("triplet", False, False), ("contrastive", None, False)],
)
def test_own_copies_are_positives_of_the_triplet_loss_unless_configured_otherwise(
    data, tmp_path, loss, own_copies, counted
):
    augment = Augment(copies=3, neighbors=3, own_copies=own_copies)
    folder = train(tiny_runs.tiny(data, tmp_path, loss=loss, epochs=1, augment=augment), quiet=True)
    shares = [row["synthetic_positives"] for row in tiny_runs.steps(folder)]
    assert all(share > 0.76 if counted else share == pytest.approx(0.75) for share in shares)


def test_the_best_epoch_is_chosen_by_held_out_classes(data, tmp_path):
    config = tiny_runs.tiny(
        data,
        tmp_path,
        split=Split(test_share=0.2, val_classes=0.25),
        optimizer=Optimizer(lr=0.5),  # so that the first epoch is likely the best
        run=RunOptions(out=str(tmp_path), name="run-1", select="best", untrained=False, logger="none"),
    )
    folder = train(config, quiet=True)
    val = [row["val"]["MAP@R"] for row in tiny_runs.lines(folder) if "val" in row]
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["epoch"] == val.index(max(val))
    assert metrics["validation"]["MAP@R"] == max(val)
    assert ("trained, last epoch" in metrics["table"]) == (metrics["epoch"] != 2)
    best, chosen = (load_file(folder / f"{name}.safetensors") for name in ("best", "model"))
    assert all(torch.equal(best[key], chosen[key]) for key in best)
    assert metrics["train"] == {"samples": 36, "classes": 6, "tested_as_well": 0}


@pytest.mark.parametrize("hidden", [(), (16,)])
def test_a_head_on_vectors_of_any_kind(tmp_path, hidden):
    labels = torch.arange(30).repeat_interleave(6)
    signal = torch.randn(30, 8)[labels]
    z = torch.cat([signal + 0.5 * torch.randn(180, 8), 2 * torch.randn(180, 16)], dim=1)
    iaa.Embeddings(z, labels, ids=[f"text {row}" for row in range(180)]).save(tmp_path / "vectors.npz")
    config = tiny_runs.tiny(
        tmp_path,
        tmp_path,
        data=f"embeddings:{tmp_path / 'vectors.npz'}",
        network=Network(dim=16, hidden=hidden),
        epochs=15,
        batch=BatchOptions(classes=8, per_class=4),
        run=RunOptions(out=str(tmp_path), logger="none"),
        optimizer=Optimizer(lr=1e-2),
    )
    folder = train(config, quiet=True)
    metrics = json.loads((folder / "metrics.json").read_text())
    before, after = (metrics["table"][name]["test"]["MAP@R"] for name in ("vectors as given", "trained"))
    assert after > before + 10
    assert folder.name == "embeddings-multi_similarity-1"
    assert iaa.Embeddings.load(folder / "embeddings.safetensors").ids[0].startswith("text ")


def test_a_rate_that_is_far_too_high_ends_with_a_message(data, tmp_path):
    config = tiny_runs.tiny(data, tmp_path, optimizer=Optimizer(name="sgd", lr=1e30))
    with pytest.raises(ValueError, match=r"epoch \d, step \d: .*likely the learning rate \(1e\+30"):
        train(config, quiet=True)


@pytest.mark.parametrize("part", ["train", "test"])
def test_unreadable_images_of_any_part_are_found_before_training(tmp_path, monkeypatch, part):
    root = tiny_runs.images(tmp_path / "data")
    config = tiny_runs.tiny(root, tmp_path)
    broken = open_data(config).dataset.part(part).paths[-1]
    Path(broken).write_text("no image")
    monkeypatch.setattr("iaa.train._algorithm_1", None)
    with pytest.raises(ValueError, match=rf"cannot read image {broken}: .*--images.on-bad-image skip"):
        train(config, quiet=True)


def test_unreadable_images_are_left_out_on_request_and_listed(tmp_path, caplog):
    root = tiny_runs.images(tmp_path / "data")
    images = sorted(root.glob("*/*.png"))
    for path in images[::7]:
        path.write_text("no image")
    torn = images[1]
    torn.write_bytes(torn.read_bytes()[:60] + b"x" * 40 + torn.read_bytes()[100:])  # only decoding finds it
    config = tiny_runs.tiny(root, tmp_path, images=Images(size=16, workers=0, on_bad_image="skip"), epochs=1)
    run = train(config, quiet=True)
    for path in (*images[::7], torn):
        assert caplog.text.count(f"left out: cannot read image {path}") == 1
    left_out = {path.parent.name + "/" + path.name for path in (*images[::7], torn)}
    assert not left_out & set(iaa.Embeddings.load(run / "embeddings.safetensors").ids)
    for path in images[::7]:
        tiny_datasets.image(path, seed=0, size=(20, 20))
    with pytest.raises(ValueError, match=rf"cannot read image {torn}: .*--images.on-bad-image skip"):
        train(tiny_runs.tiny(root, tmp_path), quiet=True)


def test_a_pretrained_network_is_also_measured_at_its_own_size(tmp_path):
    root = tiny_runs.images(tmp_path / "data")
    weights = tmp_path / "w.safetensors"
    state = models.build("convnet", dim=None).backbone.state_dict()
    save_file({key: value.contiguous() for key, value in state.items()}, weights)
    config = tiny_runs.tiny(
        root,
        tmp_path,
        epochs=1,
        network=Network(dim=8, head="linear", weights=str(weights)),
        run=RunOptions(out=str(tmp_path), name="run-1", logger="none"),
    )
    table = train(config, quiet=True).metrics["table"]
    assert list(table) == [
        "pixels (16 x 16)",
        "pretrained convnet (16 px)",
        "pretrained convnet (48 px)",
        "trained",
    ]
    assert table["pretrained convnet (16 px)"] != table["pretrained convnet (48 px)"]


def test_mixed_precision_and_streams(data, tmp_path):
    augment = Augment(refresh="stream", neighbors=3)
    folder = train(tiny_runs.tiny(data, tmp_path, precision="bf16", augment=augment), quiet=True)
    rows = [row for row in tiny_runs.lines(folder) if "step" not in row]
    assert all(0 < row["statistics_seconds"] < row["seconds"] for row in rows)
    assert tiny_runs.steps(folder)[0]["synthetic_negatives"] > 0


def test_batches_of_single_images_are_warned_about(data, tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    train(tiny_runs.tiny(data, tmp_path, batch=BatchOptions(classes=4, per_class=1), epochs=1), quiet=True)
    assert caplog.text.count("no class occurs twice") == 1


def test_rates():
    steps = Optimizer(schedule="steps", drop_at=(40, 60), drop_by=0.2)
    assert [rate_factor(steps, epoch, 100) for epoch in (0, 39.9, 40, 60)] == pytest.approx([1, 1, 0.2, 0.04])
    cosine = Optimizer(schedule="cosine", warmup_epochs=2)
    assert [rate_factor(cosine, epoch, 20) for epoch in (1, 10, 20)] == pytest.approx([0.5, 0.5, 0], abs=1e-9)
    assert rate_factor(Optimizer(schedule="constant"), 7, 10) == 1


def test_either_a_configuration_or_a_run(tmp_path):
    with pytest.raises(ValueError, match="give either"):
        train()
    with pytest.raises(FileNotFoundError, match="is not a run directory"):
        train(resume=tmp_path)


def test_few_test_images_are_scored_as_far_as_they_go(tmp_path):
    root = tiny_runs.images(tmp_path / "images", classes=6, each=3)
    folder = train(tiny_runs.tiny(root, tmp_path / "out", epochs=1, split=Split(test_share=0.34)), quiet=True)
    (found,) = json.loads((folder / "metrics.json").read_text())["test"].values()
    assert {"R@1", "R@4", "MAP@R"} <= set(found)
    assert "R@8" not in found  # six images: five neighbours


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "proxy_anchor", "loss_options": {"margin": 0.2}},
        {"loss": "FastAPLoss"},
        {"loss": "contrastive", "miner": "batch_hard", "memory": 48},
        {"loss": "triplet", "miner": "none", "augment": Augment(generator="symmetry")},
        {"loss": "multi_similarity", "augment": Augment(generator="mixup", refresh="stream")},
        {"loss": "contrastive", "augment": Augment(generator="proxy", neighbors=3)},
    ],
    ids=["proxies", "fastap", "memory", "symmetry", "mixup", "proxy"],
)
def test_losses_miners_memories_and_generators_by_name(data, tmp_path, options):
    folder = train(tiny_runs.tiny(data, tmp_path, epochs=2, **options), quiet=True)
    rows = [row for row in tiny_runs.lines(folder) if "step" in row]
    assert all(row["loss"] >= 0 for row in rows)
    assert load_config(folder).loss == options["loss"]


def test_a_loss_of_ones_own(data, tmp_path):
    class Pull(torch.nn.Module):
        def forward(self, z, labels):
            self.seen = max(getattr(self, "seen", 0), len(z))
            return (z[:, None] - z).square().sum(2)[labels[:, None] == labels].mean()

    loss = Pull()
    config = tiny_runs.tiny(data, tmp_path, epochs=1, augment=Augment(copies=2, neighbors=3))
    folder = train(config, quiet=True, loss=loss)
    assert loss.seen == 3 * config.batch.classes * config.batch.per_class
    assert load_config(folder).loss == "Pull"
    pair = pml.ContrastiveLoss(), miners.BatchHardMiner()
    assert load_config(train(config, quiet=True, loss=pair)).loss == "ContrastiveLoss"


def test_wrong_names_are_reported_before_anything_is_read(data, tmp_path):
    for options, message in (
        ({"loss": "proxy_ancor"}, "did you mean 'proxy_anchor'"),
        ({"miner": "batch_hart"}, "did you mean 'batch_hard'"),
        ({"miner": "batch_hard", "miner_options": {"size": 3}}, "miner_options do not fit batch_hard"),
        ({"miner_options": {"epsilon": 0.2}}, "miner_options need a miner"),
        (
            {"loss": "proxy_anchor", "loss_options": {"depth": 3}},
            "loss_options of proxy_anchor must be one of",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            train(tiny_runs.tiny(tmp_path / "nowhere", tmp_path, **options), quiet=True)


def test_weights_of_every_few_epochs_are_kept(data, tmp_path):
    config = tiny_runs.tiny(data, tmp_path, epochs=3)
    run = iaa.train(replace(config, run=replace(config.run, keep_every=2)), quiet=True)
    assert [path.name for path in sorted(run.path.glob("weights-*"))] == ["weights-002.safetensors"]
    network = trained_network(run.config, run / KEPT_WEIGHTS.format(2))
    assert network.dim == run.network().dim
    assert not torch.equal(network.state_dict()["head.weight"], run.network().state_dict()["head.weight"])


@pytest.mark.usefixtures("unchecked")
def test_what_is_not_a_configuration_is_refused_with_an_example():
    with pytest.raises(
        TypeError, match=r"must be an iaa.Config, such as iaa.train\(iaa.Config\(.*got 'folder:x'"
    ):
        train("folder:x")
