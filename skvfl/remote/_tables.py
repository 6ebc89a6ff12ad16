"""An organisation's own table, from wherever it keeps it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from skvfl.exceptions import ConfigurationError
from skvfl.remote._config import PartyConfig, TableConfig
from skvfl.remote._intersection import Ids, SharedIdsError


def open_table(config: PartyConfig) -> Any:
    """The id column, and the columns that at least one peer may use.

    Parameters
    ----------
    config : PartyConfig
        Of an organisation that has a table.

    Returns
    -------
    table : pandas.DataFrame
        No other column is read where the source can leave it out.

    Raises
    ------
    ConfigurationError
        If there is no such table, if columns are missing, or if ids are missing, of
        different kinds, or not unique. The message quotes no cell.
    """
    if config.table is None:
        raise ConfigurationError(f"{config.path}: there is no [table]")
    rules = [peer.allow for peer in config.peers.values() if peer.allow is not None]
    wanted = dict.fromkeys(column for rule in rules for column in rule.columns)
    columns = [config.ids, *wanted]
    table = _open(config.table, config, columns)
    _require(columns, table.columns, config)
    table = table[columns].reset_index(drop=True)
    try:
        Ids(table[config.ids])
    except SharedIdsError as exc:
        raise ConfigurationError(
            f"{config.path}: column {config.ids!r} cannot name rows: {exc}"
        ) from None
    return table


def _open(source: TableConfig, config: PartyConfig, columns: list[str]) -> Any:
    if source.file is not None:
        if source.file.suffix.lower() == ".parquet":
            return _read_parquet(source, config, columns)
        return _read_csv(source, config, columns)
    if source.query is not None:
        return _query(source, config)
    return _call(source, config)


def _read_csv(source: TableConfig, config: PartyConfig, columns: list[str]) -> Any:
    pd = _need("pandas", "remote")
    # A byte order mark would be a part of the first name.
    how = {"encoding": "utf-8-sig"}
    try:
        names = pd.read_csv(source.file, nrows=0, **how).columns
        _require(columns, names, config)
        # Ids as text: 007 would lose its zeros, and be another customer.
        table = pd.read_csv(
            source.file, usecols=columns, dtype={config.ids: "str"}, **how
        )
    except OSError as exc:
        raise _wrong(config, f"{source.file} cannot be read: {exc.strerror}") from None
    # Some of pandas' messages quote what it could not read.
    except (ValueError, UnicodeError) as exc:
        if isinstance(exc, ConfigurationError):
            raise
        raise _wrong(
            config, f"{source.file} is no CSV that can be read: {type(exc).__name__}"
        ) from None
    table[config.ids] = _whole_numbers(table[config.ids])
    return table


def _whole_numbers(ids: Any) -> Any:
    """Ids as numbers where all are written as numbers are, without losing a digit."""
    text = [each for each in ids if isinstance(each, str)]
    numbers = [int(each) for each in text if each.isascii() and each.isdigit()]
    if len(numbers) < len(ids) or [str(number) for number in numbers] != text:
        return ids
    return numbers


def _read_parquet(source: TableConfig, config: PartyConfig, columns: list[str]) -> Any:
    pd = _need("pandas", "remote")
    parquet = _need("pyarrow.parquet", "remote")
    try:
        _require(columns, parquet.read_schema(source.file).names, config)
        return pd.read_parquet(source.file, columns=columns)
    except OSError as exc:
        why = exc.strerror or type(exc).__name__
        raise _wrong(config, f"{source.file} cannot be read: {why}") from None
    except ConfigurationError:
        raise
    except Exception as exc:
        raise _wrong(
            config, f"{source.file} is no Parquet file: {type(exc).__name__}"
        ) from None


def _query(source: TableConfig, config: PartyConfig) -> Any:
    pd = _need("pandas", "remote")
    database = os.path.expandvars(source.database or "")
    if "$" in database:
        raise _wrong(
            config,
            f"table.database: an environment variable is not set: {source.database}",
        )
    try:
        if "://" in database:
            sqlalchemy = _need("sqlalchemy", "sql")
            engine = sqlalchemy.create_engine(database)
            try:
                with engine.connect() as connection:
                    return pd.read_sql_query(sqlalchemy.text(source.query), connection)
            finally:
                engine.dispose()
        duckdb = _need("duckdb", "sql")
        where = database if database == ":memory:" else source.folder / database
        # Nothing here writes, and a database that is being written to can be read.
        with duckdb.connect(str(where), read_only=database != ":memory:") as connection:
            connection.execute(
                "SET file_search_path = ?", [str(source.folder.resolve())]
            )
            return connection.execute(source.query).df()
    except ImportError:
        raise
    except Exception as exc:
        # The message may quote a cell, or the address with its password.
        raise _wrong(
            config,
            f"the query fails with {type(exc).__name__}: try it in the database "
            "itself, as the same user",
        ) from None


def _call(source: TableConfig, config: PartyConfig) -> Any:
    """What a function of the organisation's own returns."""
    pd = _need("pandas", "remote")
    name, _, function = (source.callable or "").partition(":")
    folder = str(source.folder.resolve())
    sys.path.insert(0, folder)
    try:
        table = getattr(importlib.import_module(name), function)()
    except (ImportError, AttributeError, ValueError) as exc:
        if getattr(exc, "name", name) not in (name, function):
            raise
        raise _wrong(
            config,
            f"table.callable = {source.callable!r} is not found: write "
            f'"module:function", with module.py in {folder}',
        ) from None
    finally:
        sys.path.remove(folder)
    table = table.to_pandas() if hasattr(table, "to_pandas") else table
    if not isinstance(table, pd.DataFrame):
        raise _wrong(
            config, f"{source.callable} gives a {type(table).__name__}, no DataFrame"
        )
    return table


def _require(columns: Iterable[str], names: Iterable[Any], config: PartyConfig) -> None:
    there = [str(name) for name in names]
    for column in columns:
        if there.count(column) > 1:
            raise _wrong(config, f"the table has column {column!r} twice")
        if column not in there:
            near = get_close_matches(column, there, 1)
            cure = f"; did you mean {near[0]!r}" if near else ""
            if len(there) == 1 and ";" in there[0]:
                cure = ": its columns are separated by semicolons, and commas are due"
            raise _wrong(config, f"the table has no column {column!r}{cure}")


def _wrong(config: PartyConfig, what: str) -> ConfigurationError:
    return ConfigurationError(f"{config.path}: {what}")


def _need(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as exc:
        raise ImportError(
            f"this table needs {module.partition('.')[0]}: pip install 'skvfl[{extra}]'"
        ) from exc
