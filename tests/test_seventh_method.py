"""What the house asks of a method that it does not have yet."""

import io
import pickle
import tokenize
from itertools import pairwise
from pathlib import Path

import _boosting
import numpy as np
import pytest
from _boosting import BoostingVFLClassifier
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import skvfl
from skvfl.exceptions import PartyError
from skvfl.federation import Holding, Labels, Member

SMALL = {"n_rounds": 2, "max_depth": 2, "max_bins": 8}
PARTIES = {"bank": [], "shop": slice(0, 15), "telco": slice(15, 30)}
MOST_LINES = 25
PYTHON = {"def __init__(", "self,", "*,", "):", "@dataclass", "@operation"}
# They say what a method does, and when.
STEPS = {
    "session.begin_round()",
    "n_classes = len(self.classes_)",
    "labels = self.held(Holding).labels",
    "inputs = run(self._transformer.fit_transform, self.held(Holding).block)",
    'after: ClassVar = "prepare"',
    "def predict_proba(self, X):",
}


def test_it_fits_as_well_as_on_pooled_columns():
    X, y = load_breast_cancer(return_X_y=True)
    pooled = HistGradientBoostingClassifier(max_iter=10, max_depth=3, learning_rate=0.3)
    shared = BoostingVFLClassifier(parties=3, n_rounds=10, random_state=0)
    scores = [cross_val_score(each, X, y, cv=3).mean() for each in (shared, pooled)]
    assert scores[0] > scores[1] - 0.01
    alone = cross_val_score(clone(shared).set_params(parties=1), X[:, ::3], y, cv=3)
    assert scores[0] > alone.mean()


def test_classes_may_be_several_and_words():
    X, y = load_wine(return_X_y=True)
    names = np.array(["red", "rosé", "white"])[y]
    vfl = BoostingVFLClassifier(parties=2, **SMALL).fit(X, names)
    assert vfl.score(X, names) > 0.9


@pytest.mark.slow
def test_processes_give_the_same_bits_and_so_do_copies():
    X, y = load_breast_cancer(return_X_y=True)
    local, process = (
        BoostingVFLClassifier(
            parties=PARTIES, transport=transport, random_state=0, **SMALL
        ).fit(X, y)
        for transport in ("local", "process")
    )
    assert local.communication_.messages == process.communication_.messages
    assert local.communication_.n_rounds == 1 + 2 * 2 * SMALL["n_rounds"] * 2
    expected = local.predict_proba(X[:50])
    for each in (process, pickle.loads(pickle.dumps(local)), clone(local).fit(X, y)):
        np.testing.assert_array_equal(each.predict_proba(X[:50]), expected)
    assert local.halves_ == [*PARTIES]


def test_operations_out_of_order_say_what_comes_first():
    block = np.random.default_rng(0).normal(size=(6, 2))
    labels = Labels(np.arange(6) % 2, 2)
    member = Member("bank", Holding(block, labels=labels))
    member.own["boosting.party"] = _boosting.TreeSettings
    settings = {"max_bins": 4, "learning_rate": 0.1}
    member.perform("open", {"role": "boosting.party", "settings": settings})
    for operation, arguments, message in (
        ("split", {"column": 0, "threshold": 1}, "'prepare' comes first"),
        ("route", {}, "its transformer has not been fitted yet"),
        ("gradients", {}, "'start' comes first"),
        ("predict", {"routes": {}, "n_rows": 6}, "'start' comes first"),
    ):
        with pytest.raises(PartyError, match=message):
            member.perform(operation, arguments)


class Stop:
    """A callback that stops after the first task."""

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        return True

    def teardown(self, estimator, context):
        pass


def test_callbacks_may_stop_it():
    X, y = load_breast_cancer(return_X_y=True)
    vfl = BoostingVFLClassifier(parties=PARTIES, **SMALL)
    vfl.set_callbacks(Stop()).fit(X, y)
    assert vfl.communication_.n_rounds == 1 + 2 * 2 * 2


@parametrize_with_checks([BoostingVFLClassifier(**SMALL)])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def code_lines(path):
    """Lines of code without comments, docstrings and imports, by their numbers."""
    source = Path(path).read_text(encoding="utf-8")
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    lines = source.splitlines()
    code = {}
    layout = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    skipped = {*layout, tokenize.COMMENT, tokenize.ENDMARKER}
    for before, token in pairwise(tokens):
        is_docstring = token.type == tokenize.STRING and before.type in layout
        if token.type in skipped or is_docstring:
            continue
        number = token.start[0]
        line = lines[number - 1].partition("  #")[0].strip()
        if line and not line.startswith(("from ", "import ")):
            code[number] = line
    return code


def test_a_method_repeats_few_lines():
    lines = Path(_boosting.__file__).read_text(encoding="utf-8").splitlines()
    marked = [i for i, line in enumerate(lines, 1) if line.endswith("  # house")]
    assert 0 < len(marked) <= MOST_LINES
    # What stands word for word in other methods is marked, too.
    others = set()
    for method in ("rap", "splitnn"):
        for path in Path(skvfl.__file__).parent.joinpath(method).glob("_*.py"):
            others |= set(code_lines(path).values())
    repeated = {
        line
        for number, line in code_lines(_boosting.__file__).items()
        if number not in marked and line in others and len(line) > 1
    }
    assert repeated <= PYTHON | STEPS
    assert len(repeated) > 5
