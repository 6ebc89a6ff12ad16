"""The worst that can be done to each method of a comparison."""

from __future__ import annotations

import numpy as np
from sklearn.base import clone


def worst_leaks(rows, results, X, y, random_state):
    """Attack every method, fitted once more.

    Parameters
    ----------
    rows : dict of str to Contender
        What was compared.
    results : dict of str to list of dict
        Of its folds; what failed there is not attacked.
    X, y : array-like
        Rows to fit on.
    random_state : int or None
        Of the attackers' knowledge.

    Returns
    -------
    leaks : dict of str to tuple of (float, str)
        Score of the most successful attack, and what it does, in a sentence; NaN and
        why where there is none.
    """
    # Here, because only this one asks for it, and it needs torch.
    from skvfl.privacy import privacy_report
    from skvfl.privacy._report_text import in_words

    leaks = {}
    for name, row in rows.items():
        leaks[name] = np.nan, ""
        if row.shares != "messages" or results[name][0]["error"]:
            continue
        try:
            report = privacy_report(
                clone(row.estimator), X, y, random_state=random_state or 0
            )
        # A method that cannot be attacked must not end the comparison of all.
        except Exception as exc:
            leaks[name] = np.nan, f"not measured: {type(exc).__name__}: {exc}"
            continue
        worst = report.worst
        if worst is not None:
            leaks[name] = worst[1].score, in_words(*worst)
    return leaks
