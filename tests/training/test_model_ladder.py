import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import iaa
import tiny_runs
from iaa.config import Images, Network, Split
from iaa.export.export_run import export_safetensors
from iaa.models import build
from iaa.training.defaults import OFFLINE_NETWORK, faster_in_bf16, resolve
from iaa.training.rungs import Rung


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A folder whose classes differ by colour, and weights to start from."""
    base = tmp_path_factory.mktemp("ladder")
    generator = np.random.default_rng(0)
    for label in range(12):
        color = generator.integers(0, 256, 3)
        for number in range(6):
            path = base / "data" / f"c{label:02}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            noise = generator.normal(0, 40, (20, 20, 3))
            Image.fromarray((color + noise).clip(0, 255).astype(np.uint8)).save(path)
    torch.manual_seed(1)
    network = build("convnet", dim=None)
    save_file(
        {key: value.contiguous() for key, value in network.backbone.state_dict().items()},
        base / "w.safetensors",
    )
    return base


def config(start, out, **fields):
    chosen = {
        "network": Network(weights=str(start / "w.safetensors"), dim=8),
        "images": Images(size=16, workers=0),
        "split": Split(test_share=0.25),
        "model": "convnet",
        "epochs": 1,
    }
    return tiny_runs.tiny(start / "data", out, **{**chosen, **fields})


@pytest.fixture(scope="module")
def run(start, tmp_path_factory):
    return iaa.train(config(start, tmp_path_factory.mktemp("runs")), quiet=True)


def test_every_rung_is_scored_and_the_best_on_held_out_classes_is_the_model(run):
    assert f"({run.metrics['ladder']['chosen']})" in str(run)
    ladder = run.metrics["ladder"]
    assert [rung["name"] for rung in ladder["rungs"]] == ["frozen", "whitening", "head + IAA"]
    own_size = "frozen (48 px)"  # convnet was made for that, and the rungs have 16 px
    assert list(run.metrics["table"]) == [own_size, "frozen", "whitening", "head + IAA"]
    assert run.metrics["table"][own_size] != run.metrics["table"]["frozen"]
    means = {rung["name"]: np.mean([fold["MAP@R"] for fold in rung["held_out"]]) for rung in ladder["rungs"]}
    assert means[ladder["chosen"]] == max(means.values())
    assert run.metrics["test"] == run.metrics["table"][ladder["chosen"]]
    assert ladder["chosen"].split(" ")[0] in ladder["reason"].lower()


def test_the_model_embeds_images_as_it_was_scored(run):
    data = run.embeddings("test")
    paths = [f"{data.meta['root']}/{name}" for name in data.ids]
    torch.testing.assert_close(run.model.embed(paths), data.z, rtol=1e-4, atol=1e-5)
    assert run.config.network.freeze_backbone
    assert run.config.network.head in ("none", "whitening", "linear")
    assert run.statistics.count.sum() == run.metrics["train"]["samples"]


def test_features_are_computed_once(start, run, monkeypatch, tmp_path):
    def refuse(*args, **options):
        raise AssertionError("features were computed again")

    monkeypatch.setattr("iaa.training.features.embed_images", refuse)
    again = replace(config(start, run.path.parent), effort="quick")
    names = [rung["name"] for rung in iaa.train(again, quiet=True).metrics["ladder"]["rungs"]]
    assert names == ["frozen", "whitening"]
    with pytest.raises(AssertionError, match="computed again"):
        iaa.train(config(start, tmp_path), quiet=True)


def test_fine_tuning_is_the_next_rung_and_kept_only_if_it_is_better(start, run):
    tuned = iaa.train(replace(config(start, run.path.parent), effort="high"), quiet=True)
    rung = tuned.metrics["ladder"]["rungs"][-1]
    assert rung["name"] == "fine-tuned + IAA"
    assert len(rung["held_out"]) == 1
    judged = iaa.Run(tuned / "rungs" / "fine-tuned-judged").classes
    head = iaa.Run(tuned / "rungs" / "head-iaa-0").classes
    assert (set(judged.train), set(judged.val)) == (set(head.train), set(head.test))  # the same fold
    assert (tuned.metrics["ladder"]["chosen"] == rung["name"]) == (not rung["left_out"])
    assert tuned.model.embed([str(next((start / "data").glob("*/*.png")))]).shape[1] == tuned.model.dim


def test_an_interrupted_ladder_continues(start, run, monkeypatch):
    monkeypatch.setattr("iaa.training.model_ladder._finish", lambda *args: None)
    stopped = iaa.train(config(start, run.path.parent), quiet=True)
    assert not stopped.finished
    monkeypatch.undo()
    monkeypatch.setattr("iaa.training.features.embed_images", None)
    assert iaa.train(resume=stopped, quiet=True).metrics["table"] == run.metrics["table"]


def test_unreadable_images_of_any_part_stop_it_or_are_left_out(start, tmp_path, caplog, monkeypatch):
    data = tiny_runs.images(tmp_path / "data", classes=8)
    broken, torn = sorted(data.glob("*/*.png"))[-1], sorted(data.glob("*/*.png"))[0]
    wanted = replace(config(start, tmp_path), data=f"folder:{data}", effort="quick")
    torn.write_bytes(
        b"".join([torn.read_bytes()[:60], b"x" * 40, torn.read_bytes()[100:]])
    )  # ends as it should
    with pytest.raises(ValueError, match=rf"{torn.name}: .*--images.on-bad-image skip"):
        iaa.train(wanted, quiet=True)
    broken.write_text("not an image")
    with monkeypatch.context() as patch:
        patch.setattr("iaa.training.model_ladder.cached_features", None)  # found before the pass
        with pytest.raises(ValueError, match=rf"{broken.name}: .*--images.on-bad-image skip"):
            iaa.train(wanted, quiet=True)
    skipping = replace(wanted, images=replace(wanted.images, on_bad_image="skip"))
    run = iaa.train(skipping, quiet=True)
    assert run.finished
    assert str(broken) in caplog.text
    assert str(torn) in caplog.text


def test_a_missing_package_is_noticed_before_features_are_computed(start, run, tmp_path, monkeypatch):
    monkeypatch.setattr("iaa.training.model_ladder.cached_features", None)
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    with pytest.raises(ImportError, match=r"lightning_fabric is not installed: pip install 'iaa\[train\]'"):
        iaa.train(config(start, tmp_path), quiet=True)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    assert iaa.train(replace(config(start, run.path.parent), effort="quick"), quiet=True).finished


def test_a_wrong_loss_is_noticed_before_features_are_computed(start, tmp_path):
    with pytest.raises(ValueError, match="proxy_anchor"):
        iaa.train(config(start, tmp_path, loss="proxy_ancor"), quiet=True)
    assert not list(tmp_path.iterdir())


def test_too_few_classes_are_refused(start, tmp_path):
    data = tiny_runs.images(tmp_path / "data", classes=5)
    wanted = replace(config(start, tmp_path), data=f"folder:{data}")
    with pytest.raises(ValueError, match=r"3 training classes; comparing heads needs 4"):
        iaa.train(wanted, quiet=True)


def test_a_rung_that_cannot_be_made_is_left_out_with_its_reason(start, run, monkeypatch):
    def refuse(self, z, labels):
        raise ValueError("z must vary within classes")

    monkeypatch.setattr("iaa.training.rungs.Whitening.fit", refuse)
    kept = iaa.train(replace(config(start, run.path.parent), effort="quick"), quiet=True)
    assert kept.metrics["ladder"]["rungs"][1]["left_out"] == "z must vary within classes"
    assert kept.metrics["ladder"]["chosen"] == "frozen"


def test_classes_of_one_image_are_refused_in_one_line(start, tmp_path):
    data = tiny_runs.images(tmp_path / "data", classes=8, each=2)
    wanted = replace(config(start, tmp_path), data=f"folder:{data}", effort="quick")
    with pytest.raises(ValueError, match="training classes have one image each"):
        iaa.train(replace(wanted, split=replace(wanted.split, per_class=1)), quiet=True)


@pytest.mark.parametrize("head", ["whitening", "none"])
def test_a_head_can_be_named(start, tmp_path, head):
    wanted = config(start, tmp_path)
    run = iaa.train(replace(wanted, network=replace(wanted.network, head=head)), quiet=True)
    assert "ladder" not in run.metrics
    data = run.embeddings("test")
    paths = [f"{data.meta['root']}/{name}" for name in data.ids]
    torch.testing.assert_close(run.model.embed(paths), data.z, rtol=1e-4, atol=1e-5)
    if head == "whitening":
        features = iaa.load(run).network
        whitening = features.head
        assert isinstance(whitening, iaa.Whitening)
        assert whitening.weight.shape == (8, features.features)


def test_whitening_vectors_needs_no_training(run, tmp_path):
    features = next((run.path.parent / ".features").glob("*-train.safetensors"))
    data, file = iaa.Embeddings.load(features), tmp_path / "x.safetensors"
    replace(data, split=["test"] * len(data)).save(file)
    white = iaa.train(
        iaa.Config(
            data=f"embeddings:{file}",
            network=Network(head="whitening"),
            run=replace(run.config.run, out=str(tmp_path), name="w"),
        ),
        quiet=True,
    )
    train = white.data.dataset.part("train")
    expected = iaa.Whitening().fit(data.z[torch.from_numpy(train.rows)], torch.from_numpy(train.labels))
    torch.testing.assert_close(white.model.embed(data.z), expected.transform(data.z), rtol=1e-4, atol=1e-4)


def test_defaults_follow_the_data(monkeypatch):
    def unreachable(name, **options):
        raise OSError("no network")

    monkeypatch.setattr("iaa.training.defaults.models.build", unreachable)
    emoji = resolve(iaa.Config())
    assert (emoji.model, emoji.network.head, emoji.network.dim) == ("convnet", "linear", 128)
    own = resolve(iaa.Config(data="folder:photos"))
    assert (own.model, own.network.head) == (OFFLINE_NETWORK, "auto")
    scratch = resolve(iaa.Config(data="folder:photos", network=Network(pretrained=False)))
    assert (scratch.model, scratch.network.head) == ("convnet", "linear")
    given = resolve(iaa.Config(data="folder:photos", network=Network(weights="w.safetensors")))
    assert given.model == "timm/tiny_vit_5m_224.dist_in22k"
    assert resolve(own) == own
    vectors = resolve(iaa.Config(data="embeddings:x.safetensors"))
    assert (vectors.network.head, vectors.network.dim) == ("linear", 128)


def test_bf16_is_recommended_only_where_it_is_faster(monkeypatch):
    vit = iaa.Config(model="timm/tiny_vit_5m_224.dist_in22k", device="cpu")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    assert faster_in_bf16(vit)
    assert not faster_in_bf16(replace(vit, model="lite0"))
    assert not faster_in_bf16(replace(vit, device="cuda"))
    assert not faster_in_bf16(replace(vit, network=Network(freeze_backbone=True)))
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False})
    assert not faster_in_bf16(vit)


def test_the_mean_of_a_rung_is_over_its_folds():
    rung = Rung("x", Network(), lambda data, name: None, held_out=[{"MAP@R": 1.0}, {"MAP@R": 4.0}])
    assert (rung.mean("MAP@R"), rung.mean("MAP@R", 1)) == (2.5, 1.0)


def test_the_configuration_names_the_chosen_head(run):
    saved = json.loads((run / "config.json").read_text())
    assert saved["network"]["head"] != "auto"
    assert saved["model"] == "convnet"


@pytest.mark.parametrize("name", ["frozen", "whitening", "head + IAA"])
def test_the_model_card_says_what_was_frozen_and_what_was_trained(start, run, monkeypatch, name):
    def choose(rungs):
        return next(rung for rung in rungs if rung.name == name)

    monkeypatch.setattr("iaa.training.model_ladder._choose", choose)
    chosen = iaa.train(replace(config(start, run.path.parent), epochs=iaa.Config().epochs), quiet=True)
    out = run.path.parent / f"card-{name[:4]}"
    export_safetensors(chosen.model, out)
    card = (out / "README.md").read_text()
    assert "backbone frozen" in card
    assert ("| training | none |" in card) == (name != "head + IAA")
    assert ("| loss | norm_softmax |" in card) == (name == "head + IAA")
    assert ("| epochs | 10 on features of the frozen network |" in card) == (name == "head + IAA")


def test_constant_features_leave_the_other_rungs_out(start, tmp_path):
    for label in range(8):
        for number in range(3):
            path = tmp_path / "data" / f"c{label}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (20, 20), (9, 9, 9)).save(path)
    wanted = replace(config(start, tmp_path), data=f"folder:{tmp_path / 'data'}")
    ladder = iaa.train(wanted, quiet=True).metrics["ladder"]
    assert ladder["chosen"] == "frozen"
    assert all(rung["left_out"] for rung in ladder["rungs"][1:])


def test_a_folder_of_one_class_and_weights_that_are_not_there_are_one_line(start, tmp_path):
    data = tiny_runs.images(tmp_path / "data", classes=1)
    wanted = replace(config(start, tmp_path), data=f"folder:{data}")
    with pytest.raises(ValueError, match="class") as error:
        iaa.train(wanted, quiet=True)
    assert "\n" not in str(error.value)
    network = replace(wanted.network, weights="nowhere.safetensors")
    with pytest.raises(OSError, match=r"nowhere\.safetensors"):
        iaa.train(replace(config(start, tmp_path), network=network), quiet=True)
