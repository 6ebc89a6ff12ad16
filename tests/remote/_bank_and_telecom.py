"""Two organisations' folders, as `skvfl party keys` and an exchange leave them."""

import numpy as np
import pandas as pd

from skvfl.remote._keys import make_keys

COLUMNS = ["minutes", "plan", "calls"]
ALLOW = {
    "methods": ["fedonce", "splitnn"],
    "columns": COLUMNS,
    "min_rows": 20,
    "max_width": 32,
    "fits_per_day": 3,
    "rows_per_day": 100,
}


def in_toml(table):
    """Lines of a TOML table; a list or text is written as Python writes it."""
    return "".join(
        f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}\n"
        for key, value in table.items()
    )


def telecom_table(n_rows=60):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "customer": rng.permutation(1000)[:n_rows],
            "minutes": rng.normal(size=n_rows),
            "plan": rng.choice(["basic", "family"], n_rows),
            "calls": rng.integers(0, 50, n_rows),
            "secret": rng.normal(size=n_rows),
        }
    )


def make_folders(folder, *, allow=ALLOW, top="", table='file = "telecom.csv"'):
    """Folders of bank and telecom; path of the telecom's file."""
    for name in ("bank", "telecom"):
        own = folder / name
        own.mkdir()
        make_keys(name, own / f"{name}.key", own / f"{name}.pem")
    for name, other in (("bank", "telecom"), ("telecom", "bank")):
        exchanged = (folder / other / f"{other}.pem").read_bytes()
        (folder / name / f"{other}.pem").write_bytes(exchanged)
    telecom_table().to_csv(folder / "telecom" / "telecom.csv", index=False)
    (folder / "bank" / "bank.toml").write_text(
        'name = "bank"\nids = "customer"\nkey = "bank.key"\n'
        'certificate = "bank.pem"\nactive = true\n'
        '[peers.telecom]\ncertificate = "telecom.pem"\naddress = "localhost:18443"\n'
    )
    path = folder / "telecom" / "telecom.toml"
    path.write_text(
        'name = "telecom"\nids = "customer"\nkey = "telecom.key"\n'
        f'certificate = "telecom.pem"\nlisten = "localhost:18443"\n{top}'
        f'[table]\n{table}\n[peers.bank]\ncertificate = "bank.pem"\n'
        f"[peers.bank.allow]\n{in_toml(allow)}"
    )
    return path
