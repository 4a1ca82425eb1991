"""What the results pages say around their tables."""

TITLES = {
    "cub-head": "CUB, a linear head on a frozen Lite0",
    "cub-head-3": "CUB, the same with three samples per class",
    "emoji": "Emoji, a small network from scratch",
    "cub": "CUB, all of Lite0, 112 px, four epochs",
    "cub-long": "CUB, all of Lite0, eight epochs",
}
RESULTS = """# Results

R@1 / MAP@R in percent on classes not seen in training, mean over seeds. Losses, learning rates and strengths
were chosen on held-out training classes. One choice saw test classes: [the small network for
emoji](decisions/data-and-models.md#backbones).
"""
LADDER = """## What each step adds

From a frozen pretrained network to fine-tuning (`benchmarks/ladder.py`).
"""
TRAINED = """## With and without IAA

Multi-similarity, the default loss, after the last epoch.
"""
LEGEND = """Untrained is the frozen network, or raw pixels where the network starts from random weights.
Baseline and IAA share seeds, and therefore first weights, batches and budget.

- [Losses](results/losses.md): every loss with and without IAA, and a control whose copies carry no noise.
- [Correction](results/correction.md): what neighbour correction adds, how much a perfect covariance could
  add, and whether similar classes vary alike.
- [Ablations](results/ablations.md): the paper's components and sweeps.
- [How parameters were chosen](results/choices.md): every trial on held-out training classes.

The files in `docs/results/` hold the scores of every seed, the command, the commit and the package versions.
`make results` (`benchmarks/results.py`) writes these pages from them and from `ceiling.json`, `hardness.json`
and `tuning.json` in `benchmarks/`. No study is left out because of its outcome.

What the names in the tables mean:

- `cub-head`: a linear head on frozen Lite0 features of CUB-200-2011, images of 160 px. `cub-head-3`: the same
  with three samples per class.
- `cub`: all of Lite0, 112 px, four epochs, which is too few. `cub-long`: eight epochs, beyond which the
  baseline gained nothing on held-out classes (multi-similarity, one seed). The learning rate was tuned for
  the multi-similarity baseline; margins and strengths come from `cub-head`, except for the triplet loss of
  `cub-long`, which has its own.
- `emoji`: a small network from scratch. `default` is what `iaa compare emoji` runs: multi-similarity with its
  usual parameters.

Everywhere else the baseline and IAA were each tuned on held-out training classes. In ablations all arms share
the options chosen for IAA, margin included, so their baseline is not the tuned one.
"""
GENERATORS_PAGE = """# Generators

Ways to make synthetic embeddings ([what each does](../generators.md)), tuned with equal care on held-out
training classes: first the generator's own parameter, then the margin of the loss, then whether own copies
are positives. `duplicates` are copies without noise, with the margin of IAA. Percent on unseen classes, mean
± standard deviation over seeds; the gain over the baseline and the p of a paired t-test. Written by
`benchmarks/generator_table.py`; the trials are in `benchmarks/generators.json`.
"""
LOSSES_PAGE = """# Losses

Baseline and IAA with nine losses. Percent on unseen classes, mean ± standard deviation over seeds, and the p
of a paired t-test over seeds. [The overview](../results.md) explains the data sets.
"""
DUPLICATES = """## Noise or just more pairs?

`duplicates` makes as many copies as IAA, without noise. The lead of IAA over them is what the noise
contributes. Their own lead over the baseline comes from the additional pairs alone, or from a margin that was
tuned for IAA.
"""
HARDNESS = """## How hard are synthetics?

Frozen Lite0 vectors of CUB's training classes, in batches as training draws them: 32 classes of four samples
and three copies of each. The table shows how often the nearest negative of a sample is synthetic (three
quarters of the candidates are) and mean distances at unit length (`benchmarks/hardness.py`).
"""
CORRECTION = """# Correction

IAA with neighbour correction against IAA without it, where classes are small enough to borrow. Percent on
unseen classes, mean ± standard deviation over seeds, and the p of a paired t-test over seeds.
[The overview](../results.md) explains the data sets.
"""
CEILING = """## How much could better covariances add?

Heads trained on three samples of every class of `cub-head`, with full covariances from three sources: the
class's own samples, the corrected estimate, and all samples of the class, which no method can know. MAP@R on
a third of the *training* classes, held out, mean of ten seeds (`benchmarks/ceiling.py`).
"""
CORRELATION = """## Do similar classes vary alike?

The paper's premise, measured with `iaa analyze correlation`.
"""
ABLATIONS = """# Ablations

The paper's components and sweeps. Percent on unseen classes, mean ± standard deviation over seeds; gains are
computed seed by seed against the arm named in the column "over". Each table links to a file with its notes,
its command and the package versions. [The overview](../results.md) explains the data sets.
"""
CHOICES = """# How parameters were chosen

MAP@R on a third of the training classes, held out. All trials are in
[tuning.json](../../benchmarks/tuning.json); [the decisions](../decisions/results.md) explain the procedure.
"""
