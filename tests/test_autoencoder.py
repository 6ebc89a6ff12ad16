import pickle

import matplotlib as mpl
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale

from skvfl import AutoencoderTransformer, EncoderEvaluationDisplay
from skvfl.apc._autoencoder import represent
from skvfl.nn._autoencoder import Autoencoder, AutoencoderLoss
from skvfl.nn._steps import Joined


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return scale(X), y


def test_layers_are_the_papers_table_1():
    network = Autoencoder([5, 64, 128], torch.Generator().manual_seed(0))
    linear = torch.nn.Linear
    encoder = [(m.in_features, m.out_features) for m in network.encoder[::2]]
    decoder = [(m.in_features, m.out_features) for m in network.decoder[::2]]
    assert encoder == [(5, 64), (64, 128)]
    assert decoder == [(128, 64), (64, 5)]
    assert all(isinstance(m, torch.nn.SELU) for m in network.encoder[1::2])
    assert isinstance(network.decoder[-1], linear)
    assert isinstance(network.decoder[1], torch.nn.SELU)


@pytest.mark.parametrize(("distance", "second"), [("mse", 0.5 * 13), ("mae", 0.5 * 5)])
def test_loss_is_equation_9(distance, second):
    """Both errors are summed over dimensions; a row without target has one of them."""
    inputs = torch.tensor([[1.0, 2.0], [0.0, 1.0]])
    rebuilt = torch.tensor([[0.0, 4.0], [3.0, 1.0]])
    latent = torch.tensor([[1.0, 1.0, 1.0], [5.0, 5.0, 5.0]])
    target = torch.tensor([[3.0, 1.0, -2.0], [0.0, 0.0, 0.0]])
    loss = AutoencoderLoss(distance, 0.5)
    rows = loss((latent, rebuilt), inputs, target, torch.tensor([1.0, 0.0]))
    assert rows.tolist() == [1 + 4 + second, 9]
    assert loss((latent, rebuilt), inputs).tolist() == [5, 9]


def test_tables_side_by_side_train_and_are_represented_as_one(iris):
    """To the last bit, in more pieces than one."""
    X = np.tile(iris[0].astype(np.float32), (8, 1))
    parts = [np.ascontiguousarray(X[:, columns]) for columns in ([0], [1, 2, 3])]
    encoder = AutoencoderTransformer(6, max_epochs=2, random_state=0)
    whole, apart = clone(encoder).fit(X), clone(encoder).fit(Joined(parts))
    assert whole.loss_curve_ == apart.loss_curve_
    assert apart.n_features_in_ == 4
    latent = represent(whole, X)
    assert_array_equal(represent(apart, Joined(parts)), latent)
    # Of parts that nobody reads again, one as wide holds the same.
    wide = [parts[0], np.hstack([parts[1]] * 2)]
    encoder = AutoencoderTransformer(6, max_epochs=1, random_state=0).fit(Joined(wide))
    fresh = represent(encoder, Joined(wide))
    overwritten = represent(encoder, Joined(wide), spent=True)
    assert_array_equal(overwritten, fresh)
    assert np.shares_memory(overwritten, wide[1])
    assert not np.shares_memory(fresh, wide[1])
    # In single precision, and so not to the last bit what is served.
    assert_allclose(latent, whole.transform(X), rtol=1e-4, atol=1e-5)


def test_training_is_a_plain_torch_loop(iris):
    """Adam on the mean over rows, with the same weights and order of rows."""
    X = iris[0].astype(np.float32)
    rng = np.random.default_rng(0)
    target = rng.normal(size=(150, 6)).astype(np.float32)
    known = rng.random(150) < 0.5
    ours = AutoencoderTransformer(
        6, hidden_layer_sizes=(5,), batch_size=150, max_epochs=4, random_state=3
    ).fit(X, latent_target=target, has_target=known)
    theirs = clone(ours).set_params(max_epochs=1, lr=1e-30).fit(X).module_
    adam = torch.optim.Adam(theirs.parameters(), lr=1e-3)
    for _ in range(4):
        latent, rebuilt = theirs(torch.from_numpy(X))
        error = (rebuilt - torch.from_numpy(X)).square().sum(1)
        apart = (latent - torch.from_numpy(target)).square().sum(1)
        loss = (error + 0.01 * torch.from_numpy(known) * apart).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    for mine, other in zip(ours.module_.parameters(), theirs.parameters(), strict=True):
        assert_allclose(mine.detach(), other.detach(), atol=1e-6)
    assert len(ours.loss_curve_) == ours.n_iter_ == 4


@pytest.mark.parametrize("n_components", [2, 64])
def test_reconstruction_beats_the_mean(iris, n_components):
    X, _ = iris
    encoder = AutoencoderTransformer(
        n_components, hidden_layer_sizes=(16,), lr=0.01, random_state=0
    ).fit(X)
    latent = encoder.transform(X)
    assert latent.shape == (150, n_components)
    assert latent.dtype == np.float32
    assert np.square(encoder.inverse_transform(latent) - X).mean() < 0.15
    assert encoder.loss_curve_[-1] < encoder.loss_curve_[0] / 4


def distance(encoder, X, target, rows):
    return np.square(encoder.transform(X)[rows] - target[rows]).sum(axis=1).mean()


@pytest.mark.parametrize("loss", ["mse", "mae"])
def test_distillation_brings_the_latent_vector_near_its_target(iris, loss):
    X, _ = iris
    target = np.tanh(PCA(4).fit_transform(X))
    known = np.arange(150) % 2 == 0
    settings = {"batch_size": 16, "lr": 0.01, "random_state": 0}
    plain = AutoencoderTransformer(4, **settings).fit(X)
    taught = clone(plain).set_params(distillation_loss=loss, distillation_weight=1)
    taught.fit(
        X, latent_target=np.where(known[:, None], target, np.nan), has_target=known
    )
    for rows in (known, ~known):
        assert distance(taught, X, target, rows) < 0.2 * distance(
            plain, X, target, rows
        )


def test_targets_of_other_rows_are_not_looked_at(iris):
    X, _ = iris
    known = np.arange(150) < 40
    encoder = AutoencoderTransformer(4, max_epochs=2, random_state=0)
    latents = []
    for other in (0.0, np.nan, np.inf):
        target = np.full((150, 4), other)
        target[known] = 1
        encoder.fit(X, latent_target=target, has_target=known)
        latents.append(encoder.transform(X))
    assert_array_equal(latents[0], latents[1])
    assert_array_equal(latents[0], latents[2])
    assert not np.array_equal(latents[0], encoder.fit(X).transform(X))


def test_all_rows_have_a_target_by_default(iris):
    X, _ = iris
    target = np.ones((150, 4))
    encoder = AutoencoderTransformer(4, max_epochs=2, random_state=0)
    first = encoder.fit(X, latent_target=target).transform(X)
    every = np.ones(150, bool)
    second = encoder.fit(X, latent_target=target, has_target=every).transform(X)
    assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"has_target": np.ones(150, bool)}, "has_target is given without"),
        ({"latent_target": np.ones((150, 5))}, r"shape \(150, 5\) for 150 rows and n_"),
        ({"latent_target": np.ones((149, 4))}, r"shape \(149, 4\) for 150 rows"),
        ({"latent_target": np.full((150, 4), np.nan)}, "latent_target is not finite"),
        (
            {"latent_target": np.ones((150, 4)), "has_target": np.ones(150)},
            "one bool for each of the 150 rows, got float64",
        ),
    ],
)
def test_targets_that_do_not_fit(iris, given, message):
    encoder = AutoencoderTransformer(4, max_epochs=1)
    with pytest.raises(ValueError, match=message):
        encoder.fit(iris[0], **given)


def test_same_seed_same_bytes_and_nothing_global(iris, rng_guard):
    X, _ = iris
    encoder = AutoencoderTransformer(8, max_epochs=2, random_state=0)
    first = encoder.fit(X).transform(X)
    second = clone(encoder).fit(X).transform(X)
    assert first.tobytes() == second.tobytes()
    assert pickle.loads(pickle.dumps(encoder)).transform(X).tobytes() == first.tobytes()
    other = clone(encoder).set_params(random_state=1).fit(X).transform(X)
    assert not np.array_equal(first, other)


def test_no_row_is_kept(iris):
    X = iris[0].astype(np.float32)
    encoder = AutoencoderTransformer(8, max_epochs=1, random_state=0).fit(X)
    assert X[7].tobytes() not in pickle.dumps(encoder)


def test_sparse_columns_are_the_dense_ones(iris):
    X, _ = iris
    encoder = AutoencoderTransformer(4, max_epochs=2, random_state=0)
    dense = encoder.fit(X).transform(X)
    table = sparse.csr_array(X)
    assert_array_equal(encoder.fit(table).transform(table), dense)


def test_inverse_transform_wants_latent_vectors(iris):
    encoder = AutoencoderTransformer(8, max_epochs=1).fit(iris[0])
    with pytest.raises(ValueError, match=r"X has 4 columns where .* has 8"):
        encoder.inverse_transform(iris[0])


def test_search_in_a_pipeline_and_names(iris):
    X, y = iris
    pipeline = make_pipeline(
        StandardScaler(), AutoencoderTransformer(random_state=0), LogisticRegression()
    )
    grid = {"autoencodertransformer__n_components": [2, 8]}
    pipeline.set_params(autoencodertransformer__max_epochs=5)
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, y)
    width = search.best_params_["autoencodertransformer__n_components"]
    names = search.best_estimator_[:2].get_feature_names_out()
    assert list(names) == [f"autoencodertransformer{i}" for i in range(width)]


class Recorder:
    """A callback that keeps the names of the tasks that ended, and stops the third."""

    def __init__(self):
        self.tasks = []

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context, **kwargs):
        pass

    def on_fit_task_end(self, estimator, context, **kwargs):
        self.tasks.append(context.task_name)
        return len(self.tasks) == 3

    def teardown(self, estimator, context):
        pass


def test_callbacks_see_epochs_and_may_end_training(iris):
    recorder = Recorder()
    encoder = AutoencoderTransformer(4, max_epochs=9).set_callbacks(recorder)
    assert encoder.fit(iris[0]).n_iter_ == len(encoder.loss_curve_) == 3
    assert recorder.tasks == ["epoch"] * 3 + ["fit"]


def test_evaluation_is_algorithm_1(iris):
    """Losses and scores are those of training for so many epochs; equation 8."""
    X, y = iris
    encoder = AutoencoderTransformer(4, lr=0.01, random_state=0, max_epochs=3)
    model = make_pipeline(StandardScaler(), LogisticRegression())
    display = EncoderEvaluationDisplay.from_estimator(
        encoder, X, y, estimator=model, cv=4, scoring="f1_macro", threshold=0.05
    )
    options = {"cv": 4, "scoring": "f1_macro"}
    assert_array_equal(display.column_scores, cross_val_score(model, X, y, **options))
    for epochs in (1, 3):
        trained = clone(encoder).set_params(max_epochs=epochs).fit(X)
        assert display.losses[:epochs] == trained.loss_curve_
        expected = cross_val_score(model, trained.transform(X), y, **options)
        assert_array_equal(display.scores[epochs - 1], expected)
    short = display.column_scores.mean() - display.scores.mean(axis=1)
    assert_array_equal(display.equivalent_, short <= 0.05)
    assert not hasattr(encoder, "module_")


def test_equivalence_is_within_the_threshold():
    scores = np.array([[0.7, 0.8], [0.875, 0.875], [0.9, 1.0]])
    display = EncoderEvaluationDisplay([3, 2, 1], scores, np.array([0.9, 0.9]), 0.03)
    assert display.equivalent_.tolist() == [False, True, True]


def test_evaluation_is_plotted():
    mpl.use("Agg")
    scores = np.array([[0.7, 0.8], [0.9, 1.0]])
    display = EncoderEvaluationDisplay([3, 2], scores, np.array([0.9, 0.9]), 0.01)
    ax = display.plot().ax_
    assert_allclose(ax.lines[0].get_ydata(), [0.75, 0.95])
    assert_allclose(ax.lines[1].get_ydata(), 0.9)
    assert_allclose(ax.lines[2].get_ydata(), 0.89)
    (losses,) = (other for other in ax.figure.axes if other is not ax)
    assert list(losses.lines[0].get_ydata()) == [3, 2]
    assert display.plot(ax=ax).ax_ is ax
    mpl.pyplot.close(ax.figure)
