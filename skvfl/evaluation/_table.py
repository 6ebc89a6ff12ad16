"""From scores and costs of folds to the rows of a table."""

from __future__ import annotations

import numpy as np

from skvfl.evaluation._gain import corrected_interval, verdict

SCORE = ("score", "score_std")
GAIN = ("gain", "gain_low", "gain_high")
COSTS = ("rounds", "messages", "bytes", "fit_seconds", "transfer_seconds", "epsilon")
LEAKS = ("worst_leakage", "worst_attack")
COLUMNS = (
    *("model", "shares"),
    *(*SCORE, *GAIN, "verdict"),
    *(*COSTS, *LEAKS, "who_sees_what", "error"),
)


def tabulate(rows, results, folds, leaks=None):
    """Records of the frame, and the name of the row that gains are measured from.

    Parameters
    ----------
    rows : dict of str to Contender
        What was fitted.
    results : dict of str to list of dict
        See :meth:`Comparison.fit`.
    folds : list of tuple of (ndarray, ndarray)
        Rows to train on and to test on.
    leaks : dict of str to tuple of (float, str), default=None
        What the most successful attack on a row scored, and what it does; left out of
        the frame by default.

    Returns
    -------
    records : dict of str to dict
        A value for each column, by the name of the row.
    reference : str or None
        The active party alone, with the baseline that scores best.
    """
    sizes = [(len(train), len(test)) for train, test in folds]
    scored = {
        name: {
            key: np.array([fold["scores"][key] for fold in each])
            for key in each[0]["scores"]
        }
        for name, each in results.items()
        if not each[0]["error"]
    }
    metrics = list(next(iter(scored.values()), {"score": None}))
    references = {each: _reference(rows, scored, each) for each in metrics}
    records = {}
    for name, row in rows.items():
        measured = {
            each: _measure(scored, name, references[each], each, sizes)
            for each in metrics
        }
        first = measured[metrics[0]]
        records[name] = {
            "model": row.model,
            "shares": row.shares,
            **first,
            "verdict": _verdict(first, name, references[metrics[0]]),
            **_mean_costs(results[name]),
            **({} if leaks is None else dict(zip(LEAKS, leaks[name], strict=True))),
            "who_sees_what": row.sees,
            "error": results[name][0]["error"],
        }
        if len(metrics) > 1:
            for metric, numbers in measured.items():
                names = [metric, *(f"{metric}_{each}" for each in ("std", *GAIN))]
                records[name] |= zip(names, numbers.values(), strict=True)
    return records, references[metrics[0]]


def _reference(rows, scored, metric):
    """The label owner alone, with the model that does best."""
    alone = [name for name in scored if rows[name].shares == "nothing"]
    return max(alone, key=lambda name: scored[name][metric].mean(), default=None)


def _measure(scored, name, reference, metric, sizes):
    """Score of a row, and its gain over the reference."""
    numbers = dict.fromkeys((*SCORE, *GAIN), np.nan)
    if name not in scored:
        return numbers
    scores = scored[name][metric]
    numbers |= {"score": scores.mean(), "score_std": scores.std()}
    if reference is not None:
        gained = corrected_interval(scores - scored[reference][metric], sizes)
        numbers |= dict(zip(GAIN, gained, strict=True))
    return numbers


def _verdict(numbers, name, reference):
    if np.isnan(numbers["score"]):
        return "no score"
    if reference is None:
        return "the active party has no score alone to compare with"
    if name == reference:
        return "what gains are measured from"
    return verdict(*(numbers[each] for each in GAIN), reference)


def _mean_costs(folds):
    """Means over the folds of what a fit cost, and the largest ε."""
    if folds[0]["error"]:
        return dict.fromkeys(COSTS, np.nan)
    return {
        **{each: float(np.mean([fold[each] for fold in folds])) for each in COSTS[:-1]},
        "epsilon": max(fold["epsilon"] for fold in folds),
    }
