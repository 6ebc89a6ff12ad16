"""An organisation's table, from files, databases and functions of its own."""

import sqlite3
import sys

import duckdb
import pandas as pd
import pytest
from _bank_and_telecom import COLUMNS, make_folders, telecom_table

from skvfl.exceptions import ConfigurationError
from skvfl.remote._config import PartyConfig
from skvfl.remote._tables import open_table

EXPECTED = telecom_table()[["customer", *COLUMNS]]


def opened(folder, table='file = "telecom.csv"', **files):
    path = make_folders(folder, table=table)
    for name, content in files.items():
        (path.parent / name.replace("_", ".", 1)).write_text(content)
    return open_table(PartyConfig.load(path))


def test_files_are_read_without_columns_that_nobody_may_use(tmp_path):
    table = opened(tmp_path)
    pd.testing.assert_frame_equal(table, EXPECTED, check_dtype=False)
    telecom_table().to_parquet(tmp_path / "telecom" / "t.parquet", index=False)
    path = tmp_path / "telecom" / "telecom.toml"
    path.write_text(path.read_text().replace("telecom.csv", "t.parquet"))
    table = open_table(PartyConfig.load(path))
    pd.testing.assert_frame_equal(table, EXPECTED, check_dtype=False)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (["1", "20", "3"], [1, 20, 3]),
        (["007", "20", "3"], ["007", "20", "3"]),
        (["a1", "20", "3"], ["a1", "20", "3"]),
        (["9" * 30, "20", "3"], [int("9" * 30), 20, 3]),
    ],
)
def test_ids_lose_no_digit(tmp_path, written, read):
    rows = "".join(f"{each},1.5,basic,2\n" for each in written)
    text = "\ufeffcustomer,minutes,plan,calls\n" + rows
    table = opened(tmp_path, telecom_csv=text)
    assert table["customer"].tolist() == read


@pytest.mark.parametrize("source", ["duckdb", "memory", "sqlalchemy", "variable"])
def test_a_query_on_a_database(tmp_path, source, monkeypatch):
    query = "select * from customers"
    if source == "duckdb":
        database = "own.duckdb"
    elif source == "memory":
        database, query = ":memory:", "select * from 'telecom.csv'"
    else:
        database = f"sqlite:///{tmp_path}/own.sqlite"
    said = "$OWN_DATABASE" if source == "variable" else database
    path = make_folders(tmp_path, table=f'query = "{query}"\ndatabase = "{said}"')
    rows = telecom_table()
    if source == "duckdb":
        with duckdb.connect(str(path.parent / database)) as connection:
            connection.execute("create table customers as select * from rows")
        assert len(rows) == 60
    elif source != "memory":
        with sqlite3.connect(tmp_path / "own.sqlite") as connection:
            rows.to_sql("customers", connection, index=False)
        connection.close()
    config = PartyConfig.load(path)
    if source == "variable":
        with pytest.raises(ConfigurationError, match=r"not set: \$OWN_DATABASE"):
            open_table(config)
        monkeypatch.setenv("OWN_DATABASE", database)
    table = open_table(config)
    pd.testing.assert_frame_equal(table, EXPECTED, check_dtype=False)


def test_a_query_that_fails_says_no_password(tmp_path):
    url = "sqlite:////nowhere/at/all?password=secret"
    with pytest.raises(ConfigurationError, match="the query fails") as caught:
        opened(tmp_path, f'query = "select 1"\ndatabase = "{url}"')
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_function_of_its_own(tmp_path, kind, monkeypatch):
    monkeypatch.delitem(sys.modules, "own_table", raising=False)
    source = f"import {kind}\ndef load():\n    return {kind}.read_csv('%s')\n"
    source %= tmp_path / "telecom" / "telecom.csv"
    path = make_folders(tmp_path, table='callable = "own_table:load"')
    (path.parent / "own_table.py").write_text(source)
    table = open_table(PartyConfig.load(path))
    pd.testing.assert_frame_equal(table, EXPECTED, check_dtype=False)
    assert str(path.parent) not in sys.path


def row(ids="1", minutes="1.5"):
    return f"{ids},{minutes},basic,2\n"


HEAD = "customer,minutes,plan,calls\n"


@pytest.mark.parametrize(
    ("table", "text", "message"),
    [
        ('file = "nobody.csv"', None, "nobody.csv cannot be read"),
        ('file = "nobody.parquet"', None, "nobody.parquet cannot be read"),
        ('file = "telecom.toml"', None, "has no column 'customer'"),
        (None, "", "is no CSV that can be read: EmptyDataError"),
        (None, HEAD.replace("plan", "plans"), "no column 'plan'; did you mean 'plans'"),
        (None, HEAD.replace(",", ";") + row(), "separated by semicolons"),
        (None, HEAD, "has no rows"),
        (None, HEAD + row("77") * 2, "1 of its 2 ids repeat"),
        (None, HEAD + row("77") + row(""), "1 of its 2 ids are missing"),
        ('callable = "nobody:load"', None, '"module:function", with module.py in'),
        ('callable = "json:nobody"', None, "'json:nobody' is not found"),
        ('callable = "json"', None, "'json' is not found"),
        ('callable = "os:getpid"', None, "gives a int, no DataFrame"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, table, text, message):
    path = make_folders(tmp_path, table=table or 'file = "telecom.csv"')
    if text is not None:
        (path.parent / "telecom.csv").write_text(text)
    with pytest.raises(ConfigurationError, match=message) as caught:
        open_table(PartyConfig.load(path))
    assert "77" not in str(caught.value).replace(str(path), "")


def test_missing_extras_are_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ImportError, match=r"pip install 'skvfl\[sql\]'"):
        opened(tmp_path, 'query = "select 1"\ndatabase = ":memory:"')


def test_whoever_only_asks_has_no_table(tmp_path):
    make_folders(tmp_path)
    config = PartyConfig.load(tmp_path / "bank" / "bank.toml")
    with pytest.raises(ConfigurationError, match=r"there is no \[table\]"):
        open_table(config)
