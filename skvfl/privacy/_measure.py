"""How well an attack does on a recorded run: the truth, the view, and the score."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral

import numpy as np
from sklearn.base import clone, is_classifier

from skvfl.evaluation._run import _fitted_inside
from skvfl.partition._transformers import resolve_transformer


def fitted_federated(estimator):
    """The fitted federated estimator in a model.

    Parameters
    ----------
    estimator : estimator
        One of them, or a search, a pipeline or another meta-estimator around it.

    Returns
    -------
    estimator : estimator

    Raises
    ------
    ValueError
        If there is none.
    """
    found = _fitted_inside(estimator)
    if not found:
        raise ValueError(
            f"{type(estimator).__name__} is no fitted federated estimator, and nothing "
            "in it is: fit it first, and give an estimator with the parameter 'parties'"
        )
    return found[0]


def view_of(views, role):
    """The view of a role, or of several together.

    Parameters
    ----------
    views : Views
        As ``record_views`` collected them.
    role : str or sequence of str
        A name, or those of a coalition, which may also be joined by ``+``.

    Returns
    -------
    view : View

    Raises
    ------
    ValueError
        If nobody of such a name took part.
    """
    names = role.split("+") if isinstance(role, str) else [*role]
    if isinstance(role, str) and role in views.roles:
        names = [role]
    unknown = [name for name in names if name not in views.roles]
    if unknown or not names:
        raise ValueError(
            f"role={role!r} took no part in the run: there are {views.roles}, and "
            "coalitions such as " + repr("+".join(views.roles[:2]))
        )
    return views.coalition(*names)


def attackable(view, attack, party, estimator, column=None):
    """The view of a fit, or of a prediction as attacks look at a fit.

    Parameters
    ----------
    view : View
        Of one role, or of several together.
    attack : Attack
        That is to look at it.
    party : str or None
        Whose columns it goes for.
    estimator : estimator
        Fitted federated one.
    column : str or int, default=None
        Which of them, where it goes for one.

    Returns
    -------
    view : View

    Raises
    ------
    ValueError
        If the role has the secret, so that a score would say nothing.
    """
    goes_for_columns = attack.target == "columns" or column is not None
    if goes_for_columns and {*clients_of(estimator, party)} & {*view.blocks}:
        raise ValueError(
            f"{view.role!r} has the columns of {party!r}: attack those of another party"
        )
    if not goes_for_columns and attack.target == "labels" and view.labels is not None:
        raise ValueError(
            f"{view.role!r} has the labels: let a role attack them that has not"
        )
    if view.fits:
        return view
    # Attacks look at the first fit; what is under attack here is a prediction.
    runs = {n: replace(run, fitting=True) for n, run in view.brought.items()}
    return replace(view, brought=runs)


def prepared(estimator, party, views):
    """A party's columns as its transformer prepares them, of the first run's rows.

    Parameters
    ----------
    estimator : estimator
        Fitted federated one.
    party : str
        Name of the party.
    views : Views
        Of a run in which its table was at home.

    Returns
    -------
    columns : ndarray of shape (n_rows, n_columns), dtype float64

    Raises
    ------
    ValueError
        If the party's columns are not here.
    """
    blocks = {
        name: views[name].blocks.get(name)
        for name in clients_of(estimator, party)
        if name in views.roles
    }
    if not blocks or any(b is None or not b.shape[1] for b in blocks.values()):
        known = [name for name in views.roles if views[name].blocks]
        raise ValueError(
            f"the columns of {party!r} are not here, so that nobody can say how well "
            f"they were guessed: there are those of {known}"
        )
    transformer = resolve_transformer(estimator._transformer(party))
    if [*blocks] == [party]:
        return _prepared(transformer, blocks[party])
    # Every client of a cluster prepares its own rows. Of rows that nobody holds there
    # is nothing to find out.
    run = next(iter(views[next(iter(blocks))].brought.values()))
    parts = {name: _prepared(transformer, block) for name, block in blocks.items()}
    columns = np.zeros((run.n_rows, next(iter(parts.values())).shape[1]))
    for name, part in parts.items():
        columns[run.rows[name]] = part
    return columns


def _prepared(transformer, block):
    # Prepared anew on these rows: the party's own transformer stays with the party, in
    # another process perhaps, and scores do not depend on each column's scale.
    columns = clone(transformer).fit_transform(block)
    columns = columns.toarray() if hasattr(columns, "toarray") else columns
    return np.asarray(columns, dtype=np.float64)


def clients_of(estimator, party):
    """Names by which a party takes part: its own, or those of its clients.

    Parameters
    ----------
    estimator : estimator
        Fitted federated one.
    party : str
        Name of the party.

    Returns
    -------
    names : list of str
    """
    return getattr(estimator, "clusters_", {}).get(party, [party])


def labels_of(estimator, views, y):
    """Codes of the classes, or targets, of the first run's rows."""
    for name in views.roles:
        labels = views[name].labels
        if labels is not None:
            return labels
    # A prediction has no labels, but whoever scores it knows them.
    if is_classifier(estimator):
        return np.searchsorted(estimator.classes_, np.asarray(y))
    return np.asarray(y, dtype=np.float64)


def attribute_of(views, party, column):
    """Values of one of a party's columns, by number, as its table has them.

    Parameters
    ----------
    views : Views
        Of a run in which its table was at home.
    party : str
        Name of the party.
    column : str or int
        Name of the column, or its position in the party's table.

    Returns
    -------
    codes : ndarray of int of shape (n_rows,)
    """
    block = views[party].blocks.get(party) if party in views.roles else None
    if block is None:
        raise ValueError(f"the columns of {party!r} are not here: column={column!r}")
    names = [*getattr(block, "columns", range(block.shape[1]))]
    place = names.index(column) if column in names else column
    if not isinstance(place, Integral) or not 0 <= place < len(names):
        raise ValueError(
            f"column={column!r} is none of {party!r}, which has {names}, and no "
            "position among them"
        )
    values = block.iloc[:, place] if hasattr(block, "iloc") else block[:, place]
    return np.unique(np.asarray(values).astype(str), return_inverse=True)[1]


def truth_of(attack, estimator, views, party, y, column=None):
    """What an attack tries to find out.

    Parameters
    ----------
    attack : Attack
        Its ``target`` says what.
    estimator : estimator
        Fitted federated one.
    views : Views
        Of a run.
    party : str or None
        Whose columns; needed for columns alone.
    y : array-like or None
        Labels or target of the rows, for runs that had none.
    column : str or int, default=None
        Which of the party's columns, for attacks on an attribute.

    Returns
    -------
    truth : ndarray
    """
    if hasattr(attack, "asking"):
        raise ValueError(
            f"{type(attack).__name__} asks a finished model who was in its fit, which "
            "no view shows: call asking(estimator, X, y) and fit(), or have "
            "privacy_report(…, membership=True) measure it"
        )
    # Also where no columns are attacked, it says whose messages are looked at: of
    # somebody who sends none, 0 would look like safety.
    for name in (party, getattr(attack, "sender", None)):
        if name is not None and not {*clients_of(estimator, name)} & {*views.roles}:
            known = [name for name in views.roles if views[name].blocks]
            raise ValueError(
                f"the columns of {name!r} are not here: there are those of {known}"
            )
    if column is not None:
        if attack.target != "labels" or party is None:
            raise ValueError(
                f"column={column!r} is for attacks that tell classes apart, such as "
                "AttributeInferenceAttack, and of a party="
            )
        return attribute_of(views, party, column)
    if attack.target == "labels":
        return labels_of(estimator, views, y)
    if party is None:
        raise ValueError(
            f"{type(attack).__name__} goes for a party's columns: say whose, with "
            f"party= one of {[n for n in views.roles if views[n].blocks]}"
        )
    return prepared(estimator, party, views)


def play(attack, view, truth, party=None, random_state=None):
    """Let an attack loose on a view, and score it.

    Parameters
    ----------
    attack : Attack
        Side knowledge that it only counts is drawn from the truth.
    view : View
        What it sees.
    truth : ndarray
        What it tries to find out.
    party : str, default=None
        Whose messages it looks at, where it can be told.
    random_state : int, RandomState instance or None, default=None
        Of the side knowledge, and of the attack itself.

    Returns
    -------
    score : float
    """
    attack = attack.informed(truth, random_state=random_state)
    params = attack.get_params(deep=False)
    said = {"sender": party, "random_state": random_state}
    said = {k: v for k, v in said.items() if k in params and params[k] is None}
    if params.get("shadow") is True:
        # Half of the rows in another order stand for a sample of the same people.
        order = np.random.RandomState(random_state).permutation(len(truth))
        said["shadow"] = truth[order[: len(truth) // 2]], None
    attack.set_params(**said)
    return attack.fit(view).score(truth)
