import torch

from iaa.retrieval.ranking import drop_self, rank_within_class


def test_rank_within_class_counts_earlier_rows_of_the_class():
    labels = torch.randint(0, 7, (200,), generator=torch.Generator().manual_seed(0))
    expected = [sum(other == label for other in labels[:row]) for row, label in enumerate(labels)]
    assert rank_within_class(labels).tolist() == expected
    assert rank_within_class(labels[:0]).tolist() == []


def test_drop_self_takes_out_one_entry_and_keeps_the_order():
    index, value = torch.tensor([[4, 2, 7], [1, 3, 5]]), torch.tensor([[0.9, 0.8, 0.7], [0.6, 0.5, 0.4]])
    kept, similarity = drop_self(index, value, torch.tensor([[2], [9]]))
    assert kept.tolist() == [[4, 7], [1, 3]]
    torch.testing.assert_close(similarity, torch.tensor([[0.9, 0.7], [0.6, 0.5]]))
