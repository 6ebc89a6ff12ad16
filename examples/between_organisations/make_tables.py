"""Three tables with different rows and columns of all kinds; made up.

python make_tables.py FOLDER writes bank/bank.csv, telecom/telecom.csv and
shop/shop.parquet below FOLDER. In real life nobody has all three.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

N_PEOPLE = 2000


def main(folder):
    rng = np.random.default_rng(7)
    ids = rng.choice(np.arange(10_000, 90_000), N_PEOPLE, replace=False)
    money, calls, visits = rng.normal(size=(3, N_PEOPLE))
    leaves = 1.2 * money + 1.5 * calls * (calls < 0) - 1.4 * visits + 0.9
    churn = rng.random(N_PEOPLE) < 1 / (1 + np.exp(-2 * leaves))

    def noisy(values, scale=0.3):
        return values + scale * rng.normal(size=N_PEOPLE)

    def in_words(values, words):
        edges = np.quantile(values, np.linspace(0, 1, len(words) + 1)[1:-1])
        return np.array(words)[np.digitize(values, edges)]

    joined = np.datetime64("2015-01-01") + rng.integers(0, 3000, N_PEOPLE)
    bank = pd.DataFrame(
        {
            "customer": ids,
            "balance": np.round(2000 - 900 * noisy(money), 2),
            "card": in_words(noisy(money, 1), ["gold", "silver", "none"]),
            "age": rng.integers(18, 90, N_PEOPLE),
            "churn": np.where(churn, "yes", "no"),
        }
    )
    telecom = pd.DataFrame(
        {
            "customer": ids,
            "minutes": np.round(300 + 90 * noisy(calls), 1),
            "plan": in_words(noisy(calls, 1), ["basic", "family", "business"]),
            "complaints": rng.poisson(np.exp(np.clip(-calls, -3, 1.5))),
            "since": joined.astype(str),
            "home_address": [f"{i} Example Street" for i in ids],
        }
    )
    shop = pd.DataFrame(
        {
            "customer": ids,
            "visits": np.round(np.exp(1 + 0.4 * noisy(visits)), 1),
            "favourite": in_words(noisy(visits, 1), ["food", "toys", "garden"]),
            "newsletter": rng.random(N_PEOPLE) < 0.5,
        }
    )
    telecom.loc[rng.random(N_PEOPLE) < 0.05, "minutes"] = np.nan
    # Each has people whom the others do not know, in an order of its own.
    for name, table, share in (
        ("bank", bank, 0.9),
        ("telecom", telecom, 0.85),
        ("shop", shop, 0.8),
    ):
        own = table.sample(frac=share, random_state=rng.integers(2**31))
        (folder / name).mkdir(parents=True, exist_ok=True)
        if name == "shop":
            own.to_parquet(folder / name / "shop.parquet", index=False)
        else:
            own.to_csv(folder / name / f"{name}.csv", index=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
