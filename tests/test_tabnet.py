import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose
from pytorch_tabnet import tab_network
from pytorch_tabnet.metrics import UnsupervisedLoss
from torch import nn
from torch.nn import functional

from skvfl.nn._sparsemax import entmax15, sparsemax
from skvfl.nn._tabnet import (
    Decoder,
    Encoder,
    GatedLayer,
    GhostBatchNorm,
    deal,
    negative_entropy,
    normal_linear,
    reconstruction_loss,
)

SETTINGS = {
    "n_d": 8,
    "n_a": 6,
    "n_steps": 3,
    "gamma": 1.3,
    "n_independent": 2,
    "n_shared": 2,
    "mask_type": "sparsemax",
    "virtual_batch_size": 32,
    "momentum": 0.02,
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=generator(seed), dtype=dtype)


def virtual_batches(n_rows, size):
    """Rows of each virtual batch."""
    rows, batches = torch.arange(n_rows), []
    start = 0
    for stop, number in deal(n_rows, size):
        batches += [rows[start + i : stop : number] for i in range(number)]
        start = stop
    return batches


@pytest.mark.parametrize("n_rows", [2, 3, 31, 32, 64, 65, 96, 97, 100, 128])
def test_virtual_batches_hold_every_row_once(n_rows):
    for size in (2, 3, 10, 32):
        batches = virtual_batches(n_rows, size)
        assert sorted(torch.cat(batches).tolist()) == list(range(n_rows))
        sizes = [len(batch) for batch in batches]
        assert min(sizes) > 1
        assert max(sizes) <= size + 1
        chunks = [
            len(chunk) for chunk in torch.arange(n_rows).chunk(-(-n_rows // size))
        ]
        if chunks[-1] == 1 and len(chunks) > 1:
            *chunks, last, _ = chunks
            chunks.append(last + 1)
        assert sizes == chunks


@pytest.mark.parametrize("n_columns", [1, 5])
@pytest.mark.parametrize("n_rows", [32, 96, 100, 65, 33])
def test_ghost_batch_norm_is_a_loop_over_virtual_batches(n_rows, n_columns):
    ghost = GhostBatchNorm(n_columns, 32, 0.1).double()
    nn.init.normal_(ghost.norm.weight, generator=generator(1))
    nn.init.normal_(ghost.norm.bias, generator=generator(2))
    loop = nn.BatchNorm1d(n_columns, momentum=0.1).double()
    loop.load_state_dict(ghost.norm.state_dict())
    inputs = 3 * normal(n_rows, n_columns, dtype=torch.float64) + 2
    ours, theirs = (inputs.clone().requires_grad_() for _ in range(2))
    outputs = ghost(ours)
    expected = torch.empty_like(outputs)
    for rows in virtual_batches(n_rows, 32):
        expected[rows] = loop(theirs[rows])
    assert_allclose(outputs.detach(), expected.detach(), atol=1e-9)
    weights = normal(n_rows, n_columns, seed=3, dtype=torch.float64)
    (outputs * weights).sum().backward()
    (expected * weights).sum().backward()
    assert_allclose(ours.grad, theirs.grad, atol=1e-9)
    assert_allclose(ghost.norm.weight.grad, loop.weight.grad, atol=1e-9)
    assert_allclose(ghost.norm.bias.grad, loop.bias.grad, atol=1e-9)
    assert_allclose(ghost.norm.running_mean, loop.running_mean, atol=1e-9)
    assert_allclose(ghost.norm.running_var, loop.running_var, atol=1e-9)
    ghost.eval(), loop.eval()
    assert_allclose(ghost(ours).detach(), loop(ours).detach(), atol=1e-9)


def test_a_constant_column_has_no_variance():
    ghost = GhostBatchNorm(1, 8, 0.5)
    assert_allclose(ghost(torch.full((16, 1), 3.0)).detach(), 0, atol=1e-4)
    assert ghost.norm.running_var.item() == pytest.approx(0.25)
    assert ghost.norm.running_mean.item() == pytest.approx(2.25)


@pytest.mark.parametrize("shortcut", [False, True])
@pytest.mark.parametrize("n_rows", [12, 14])
def test_gradient_of_a_gated_layer(shortcut, n_rows):
    layer = normal_linear(3, 6, generator()).double()
    gated = GatedLayer(layer, shortcut, 4, 0.1).double()
    inputs = normal(n_rows, 3, dtype=torch.float64).requires_grad_()

    def outputs(inputs, *_):
        return gated(inputs)

    norm = gated.norm.norm
    parameters = [layer.weight, norm.weight, norm.bias]
    assert torch.autograd.gradcheck(outputs, [inputs, *parameters])
    parts = gated.norm(layer(inputs)).chunk(2, dim=1)
    expected = parts[0] * parts[1].sigmoid()
    if shortcut:
        expected = (inputs + expected) * 0.5**0.5
    assert_allclose(gated(inputs).detach(), expected.detach(), atol=1e-12)


@pytest.mark.parametrize(
    ("scores", "weights"),
    [
        ([[0.0, 0.0, 0.0, 0.0]], [[0.25, 0.25, 0.25, 0.25]]),
        ([[2.0, 0.0, -1.0]], [[1.0, 0.0, 0.0]]),
        ([[0.5, 0.0, -5.0]], [[0.75, 0.25, 0.0]]),
        ([[1.25, 1.0, 0.75]], [[7 / 12, 1 / 3, 1 / 12]]),
        ([[7.0]], [[1.0]]),
    ],
)
def test_sparsemax_of_known_rows(scores, weights):
    assert_allclose(sparsemax(torch.tensor(scores)), weights, atol=1e-7)


@settings(deadline=None, max_examples=50)
@given(arrays(np.float64, (4, 7), elements=st.floats(-1e3, 1e3, allow_subnormal=False)))
def test_weights_solve_their_equations(scores):
    scores = torch.from_numpy(scores)
    weights = sparsemax(scores)
    assert_allclose(weights.sum(dim=1), 1, atol=1e-9)
    kept = weights > 0
    threshold = (scores - weights)[kept.nonzero(as_tuple=True)]
    for row, keep, values in zip(scores, kept, weights, strict=True):
        threshold = (row - values)[keep]
        assert_allclose(threshold, threshold[0].expand_as(threshold), atol=1e-9)
        assert (row[~keep] <= threshold.max() + 1e-9).all()
    weights = entmax15(scores)
    assert_allclose(weights.sum(dim=1), 1, atol=1e-9)
    for row, values in zip(scores, weights, strict=True):
        keep = values > 0
        threshold = row[keep] / 2 - values[keep].sqrt()
        assert_allclose(threshold, threshold[0].expand_as(threshold), atol=1e-9)
        assert (row[~keep] / 2 <= threshold.max() + 1e-9).all()


@pytest.mark.parametrize("function", [sparsemax, entmax15])
def test_gradients_of_weights(function):
    scores = normal(5, 9, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(function, scores)
    (by_scores,) = torch.autograd.grad(function(scores).square().sum(), scores)
    assert_allclose(by_scores.sum(dim=1), 0, atol=1e-12)


def test_initial_weights_are_tabnets():
    """Its Xavier gains cancel the widths of the outputs."""
    wide = normal_linear(256, 1024, generator())
    assert wide.weight.std().item() == pytest.approx(256**-0.25, rel=0.01)
    gated = Encoder(256, **SETTINGS | {"n_d": 256}, generator=generator())
    weight = gated.splitter.layers[0].layer.weight
    assert weight.std().item() == pytest.approx(2**0.5 * 256**-0.25, rel=0.01)


def test_steps_share_layers_and_not_norms():
    encoder = Encoder(5, **SETTINGS, generator=generator())
    first, second = encoder.transformers[:2]
    assert [
        a.layer is b.layer for a, b in zip(first.layers, second.layers, strict=True)
    ] == [
        True,
        True,
        False,
        False,
    ]
    assert all(
        a.norm is not b.norm for a, b in zip(first.layers, second.layers, strict=True)
    )


def test_reconstruction_loss_counts_hidden_cells_in_units_of_variance():
    inputs = torch.tensor([[1.0, 10.0], [3.0, 30.0]])
    hidden = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    rebuilt = torch.tensor([[2.0, 0.0], [9.0, 9.0]])
    loss = reconstruction_loss(rebuilt, inputs, hidden)
    assert loss.item() == pytest.approx((1 / 2 + 100 / 200) / 2 / 2)


def test_reconstruction_loss_of_constant_columns_is_not_negative():
    inputs = torch.tensor([[-1.0, 0.0], [-1.0, 0.0]])
    hidden = torch.ones(2, 2)
    loss = reconstruction_loss(inputs + 0.1, inputs, hidden)
    assert loss.item() == pytest.approx(0.01 / 0.01)
    assert reconstruction_loss(inputs, inputs, hidden) == 0


def test_reconstruction_loss_of_one_row():
    inputs = torch.tensor([[5.0, 1.0]])
    loss = reconstruction_loss(inputs + 0.1, inputs, torch.tensor([[1.0, 0.0]]))
    assert loss.item() == pytest.approx(0.01 / 0.01, rel=1e-5)


def test_negative_entropy():
    weights = [torch.tensor([[0.5, 0.5], [1.0, 0.0]]), torch.full((2, 2), 0.5)]
    expected = -3 / 4 * np.log(2)
    assert negative_entropy(weights).item() == pytest.approx(expected)


CLOSE = {"rtol": 1e-8, "atol": 1e-10}


class TestAgainstPytorchTabnet:
    """The same numbers for the same weights; rows are dealt in another order."""

    @pytest.fixture(autouse=True)
    def double_precision(self, monkeypatch):
        # Their square root of one half is otherwise a single-precision number.
        monkeypatch.setattr(torch, "FloatTensor", torch.DoubleTensor)

    @staticmethod
    def dealt(inputs, size):
        """Rows such that our virtual batches are consecutive rows of theirs."""
        order = torch.empty(len(inputs), dtype=torch.int64)
        order[torch.cat(virtual_batches(len(inputs), size))] = torch.arange(len(inputs))
        return order

    @staticmethod
    def copy_layers(ours, theirs):
        layers = []
        for block in (theirs.shared, theirs.specifics):
            layers += getattr(block, "glu_layers", [])
        for mine, other in zip(ours.layers, layers, strict=True):
            mine.layer.load_state_dict(other.fc.state_dict())
            mine.norm.norm.load_state_dict(other.bn.bn.state_dict())
            yield mine.layer.weight, other.fc.weight
            yield mine.norm.norm.weight, other.bn.bn.weight
            yield mine.norm.norm.running_var, other.bn.bn.running_var

    def copy_encoder(self, ours, theirs):
        steps = [theirs.initial_splitter, *theirs.feat_transformers]
        for mine, other in zip([ours.splitter, *ours.transformers], steps, strict=True):
            yield from self.copy_layers(mine, other)
        for mine, other in zip(ours.attention, theirs.att_transformers, strict=True):
            mine.layer.load_state_dict(other.fc.state_dict())
            mine.norm.norm.load_state_dict(other.bn.bn.state_dict())
            yield mine.layer.weight, other.fc.weight
            yield mine.norm.norm.bias, other.bn.bn.bias

    @pytest.mark.parametrize(
        "change",
        [
            {},
            {"mask_type": "entmax"},
            {"n_shared": 0},
            {"n_independent": 0, "n_steps": 1},
            {"virtual_batch_size": 1000, "gamma": 2.0},
        ],
        ids=str,
    )
    @pytest.mark.parametrize("n_rows", [96, 100])
    def test_classifier(self, change, n_rows):
        chosen = SETTINGS | change
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            theirs = tab_network.TabNetNoEmbeddings(
                11, 3, **chosen, group_attention_matrix=torch.eye(11)
            ).double()
        theirs.encoder.group_attention_matrix = torch.eye(11, dtype=torch.float64)
        ours = Encoder(11, **chosen, generator=generator()).double()
        norm = nn.BatchNorm1d(11, momentum=0.01).double()
        head = nn.Linear(8, 3, bias=False).double()
        pairs = [*self.copy_encoder(ours, theirs.encoder)]
        head.load_state_dict(theirs.final_mapping.state_dict())
        norm.load_state_dict(theirs.encoder.initial_bn.state_dict())
        inputs = normal(n_rows, 11, dtype=torch.float64)
        order = self.dealt(inputs, chosen["virtual_batch_size"])
        labels = torch.arange(n_rows) % 3

        decisions, weights = ours(norm(inputs[order]))
        outputs = head(sum(decisions))
        loss = functional.cross_entropy(outputs, labels[order])
        (loss + 0.1 * negative_entropy(weights)).backward()
        expected, entropy = theirs(inputs)
        loss = functional.cross_entropy(expected, labels) + 0.1 * entropy
        loss.backward()

        assert_allclose(outputs.detach(), expected[order].detach(), **CLOSE)
        assert_allclose(negative_entropy(weights).item(), entropy.item(), **CLOSE)
        pairs.append((head.weight, theirs.final_mapping.weight))
        pairs.append((norm.weight, theirs.encoder.initial_bn.weight))
        for mine, other in pairs:
            if mine.requires_grad:
                mine, other = mine.grad, other.grad
            assert_allclose(mine, other, **CLOSE)

        theirs.eval(), ours.eval(), norm.eval()
        decisions, weights = ours(norm(inputs))
        outputs, _ = theirs(inputs)
        assert_allclose(head(sum(decisions)).detach(), outputs.detach(), **CLOSE)
        explained = sum(
            d.sum(dim=1, keepdim=True) * w
            for d, w in zip(decisions, weights, strict=True)
        )
        expected = theirs.forward_masks(inputs)[0].detach()  # single precision
        assert_allclose(explained.detach(), expected, rtol=1e-6, atol=1e-6)

    def test_pretraining(self):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            theirs = tab_network.TabNetPretraining(
                11, 0.5, **SETTINGS, group_attention_matrix=torch.eye(11)
            ).double()
        inputs = normal(100, 11, dtype=torch.float64)
        hidden = (torch.rand(100, 11, generator=generator(1)) < 0.5).double()
        theirs.masker.forward = lambda x: (x * (1 - hidden), hidden, hidden)
        theirs.encoder.group_attention_matrix = torch.eye(11, dtype=torch.float64)
        ours = Encoder(11, **SETTINGS, generator=generator()).double()
        decoder = Decoder(8, 3, 32, 0.02, generator()).double()
        norm = nn.BatchNorm1d(11, momentum=0.01).double()
        head = nn.Linear(8, 11, bias=False).double()
        pairs = [*self.copy_encoder(ours, theirs.encoder)]
        for mine, other in zip(
            decoder.transformers, theirs.decoder.feat_transformers, strict=True
        ):
            pairs += self.copy_layers(mine, other)
        head.load_state_dict(theirs.decoder.reconstruction_layer.state_dict())
        order = self.dealt(inputs, 32)

        inputs_, hidden_ = inputs[order], hidden[order]
        decisions, _ = ours(norm(inputs_ * (1 - hidden_)), 1 - hidden_)
        loss = reconstruction_loss(head(decoder(decisions)), inputs_, hidden_)
        loss.backward()
        expected = UnsupervisedLoss(*theirs(inputs))
        expected.backward()

        assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
        pairs.append((head.weight, theirs.decoder.reconstruction_layer.weight))
        for mine, other in pairs:
            if mine.requires_grad and other.grad is not None:
                assert_allclose(mine.grad, other.grad, **CLOSE)
