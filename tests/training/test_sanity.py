import logging
from dataclasses import replace

import pytest
import torch

from iaa.config import Config, Network, Optimizer
from iaa.training.sanity import NotFinite, Sanity

LABELS = torch.tensor([0, 0, 1, 1])


def test_embeddings_that_are_not_finite_stop_the_run_and_say_why():
    sanity = Sanity(Config(precision="fp16", optimizer=Optimizer(lr=3.0), network=Network(weights="w.pth")))
    z = torch.randn(4, 3)
    z[1, 2] = torch.nan
    message = r"epoch 2, step 7: embeddings contain NaN .* learning rate \(3,.*bf16, or w.pth holds such"
    with pytest.raises(NotFinite, match=message):
        sanity.check_embeddings(z, LABELS, 2, 7)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_so_does_a_loss(value):
    with pytest.raises(NotFinite, match=r"epoch 0, step 3: the loss is (nan|inf); likely the learning rate"):
        Sanity(Config()).check_loss(value, 0, 3)


def test_collapse_is_warned_of_once(caplog):
    sanity = Sanity(Config())
    for step in range(3):
        sanity.check_embeddings(torch.ones(4, 3) + 0.01 * torch.randn(4, 3), LABELS, 0, step)
    assert caplog.text.count("have collapsed") == 1
    assert "mean similarity is 1.000" in caplog.text


def test_batches_without_positives_are_warned_of_once_for_losses_that_need_them(caplog):
    caplog.set_level(logging.WARNING)
    for config, times in ((Config(), 1), (replace(Config(), loss="proxy_nca"), 0)):
        caplog.clear()
        sanity = Sanity(config)
        for step in range(2):
            sanity.check_embeddings(torch.randn(4, 3), torch.arange(4), 0, step)
        assert caplog.text.count("no class occurs twice") == times


def test_healthy_batches_say_nothing(caplog):
    Sanity(Config()).check_embeddings(torch.randn(4, 3), LABELS, 0, 0)
    assert not caplog.text
