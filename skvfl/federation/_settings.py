"""What a party is told when a session opens: words and numbers, never objects.

The settings of a role are a small frozen dataclass. It travels as plain data, and the
organisation that receives it makes its party of it. What is registered here (scikit-
learn's transformers, torch's optimisers, this package's own building blocks) can be put
into words: a name and parameters. Any other object can only be used by organisations
that have it at home.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import clone

from skvfl._random import seed_own, seed_party
from skvfl.exceptions import SettingsError

if TYPE_CHECKING:
    from skvfl.federation._member import Member
    from skvfl.federation._party import Party

_METHODS = ("rap", "splitnn", "fedonce", "apc", "vfedsec", "tabvfl", "boosting")
# Looked for by name in these modules, and nowhere else: a name that arrives must not
# be able to import or call anything that is not a building block.
_TRANSFORMERS = {
    "sklearn.compose": ("ColumnTransformer",),
    "sklearn.decomposition": ("PCA", "TruncatedSVD"),
    "sklearn.impute": ("KNNImputer", "SimpleImputer"),
    "sklearn.kernel_approximation": ("Nystroem", "RBFSampler"),
    "sklearn.pipeline": ("FeatureUnion", "Pipeline"),
    "sklearn.preprocessing": (
        "KBinsDiscretizer",
        "MaxAbsScaler",
        "MinMaxScaler",
        "Normalizer",
        "OneHotEncoder",
        "OrdinalEncoder",
        "PolynomialFeatures",
        "PowerTransformer",
        "QuantileTransformer",
        "RobustScaler",
        "SplineTransformer",
        "StandardScaler",
    ),
    "sklearn.random_projection": ("GaussianRandomProjection", "SparseRandomProjection"),
    "skvfl": (
        "AutoencoderTransformer",
        "GaussianProjection",
        "NoiseAsTargetsEncoder",
        "PartyPreprocessor",
        "RandomFeaturesEncoder",
    ),
}
_OPTIMIZERS = {
    "torch.optim": ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop"),
}
_DTYPES = {np.dtype(code).name: np.dtype(code).type for code in "?bhilqBHILQefdg"}
_KNOWN = {
    name: module
    for table in (_TRANSFORMERS, _OPTIMIZERS)
    for module, names in table.items()
    for name in names
}
# What others may not set: to keep copies of cells in files, or to read some; to start
# processes; to write into the table itself.
_AT_HOME = {
    "memory": None,
    "n_jobs": None,
    "callbacks": None,
    "device": "cpu",
    "copy": True,
}
_REGISTERED: dict[str, Any] = {}
_ROLES: dict[str, type[Settings]] = {}


class NotInWordsError(Exception):
    """An object that cannot be told to another organisation; the message says why."""


def register(name: str, block: Any) -> None:
    """Give a building block a name by which settings can speak of it.

    Every organisation registers what it is willing to run. A name that arrives and
    that it has not registered is refused.

    Parameters
    ----------
    name : str
        The same at all organisations.
    block : callable
        A transformer's class, an optimiser's class, or a function
        ``(n_inputs, n_outputs)`` that makes a network.

    Raises
    ------
    ValueError
        If the name is taken by something else.

    See Also
    --------
    Settings : Speak of building blocks by their names.

    Examples
    --------
    >>> from skvfl.federation import register
    >>> def narrow(n_inputs, n_outputs):
    ...     from torch import nn
    ...     return nn.Linear(n_inputs, n_outputs)
    >>> register("narrow network of the guide", narrow)
    """
    # The same block again is no error, so that code which registers may run twice.
    if name in _KNOWN or _REGISTERED.get(name, block) is not block:
        raise ValueError(f"the name {name!r} is taken: choose another")
    _REGISTERED[name] = block


def in_words(value: Any) -> Any:
    """Plain data that says what an object is.

    Parameters
    ----------
    value : object
        Plain data, an unfitted estimator, an optimiser's class, a registered building
        block, or a ``functools.partial`` of one with parameters by name.

    Returns
    -------
    words : None, bool, int, float, str, list or dict
        Of an object: ``{"name": …}``, with ``"params"`` of an estimator or
        ``"keywords"`` of a partial.

    Raises
    ------
    NotInWordsError
        If that cannot be said; the message says why.
    """
    if value is None or isinstance(value, bool | str):
        return value
    # Before the kinds of numbers, which take long to rule out: every member is told of
    # all others. Names are their own words, and are not listed anew for each member.
    if type(value) is list:
        return value if _are_names(value) else [in_words(each) for each in value]
    if isinstance(value, np.bool_ | Integral | Real):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, tuple):
        return {"tuple": [in_words(each) for each in value]}
    if isinstance(value, list | np.ndarray):
        return [in_words(each) for each in value]
    # A default of scikit-learn's encoders, so it must have a word.
    if isinstance(value, type) and issubclass(value, np.generic):
        if value not in _DTYPES.values():
            raise NotInWordsError(f"the data type {value.__name__}")
        return {"dtype": np.dtype(value).name}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise NotInWordsError("a dict whose keys are not all text")
        return {"dict": {key: in_words(each) for key, each in value.items()}}
    if isinstance(value, partial) and not value.args:
        return {**in_words(value.func), "keywords": in_words(dict(value.keywords))}
    name = _name_of(value)
    if name is not None:
        return {"name": name}
    kind = type(value)
    if _name_of(kind) is None or not hasattr(value, "get_params"):
        raise NotInWordsError(f"a {kind.__name__}, which has no registered name")
    if hasattr(value, "_skl_callbacks"):
        raise NotInWordsError(f"a {kind.__name__} with callbacks")
    params = value.get_params(deep=False)
    # Its seed would be known to whoever sends it, and so would what is drawn from it.
    if params.get("random_state") is not None:
        raise NotInWordsError(f"a {kind.__name__} with a random_state of its own")
    if own := _at_home(params):
        raise NotInWordsError(f"a {kind.__name__} with {own}, which others decide")
    return {"name": _name_of(kind), "params": in_words(params)}


def _are_names(values: list[Any]) -> bool:
    return {*map(type, values)} == {str}


def from_words(words: Any) -> Any:
    """The object that :func:`in_words` put into words.

    Raises
    ------
    SettingsError
        If a name is not registered here.
    """
    if isinstance(words, list):
        return words if _are_names(words) else [from_words(each) for each in words]
    if not isinstance(words, dict):
        return words
    keys = sorted(words)
    if keys == ["dict"] and isinstance(words["dict"], dict):
        return {key: from_words(each) for key, each in words["dict"].items()}
    if keys == ["tuple"] and isinstance(words["tuple"], list):
        return tuple(from_words(words["tuple"]))
    if keys == ["dtype"]:
        if words["dtype"] not in [*_DTYPES]:
            raise SettingsError(f"{words['dtype']!r} is no data type of numbers")
        return _DTYPES[words["dtype"]]
    name = words.get("name")
    if not isinstance(name, str) or (name not in _REGISTERED and name not in _KNOWN):
        raise SettingsError(f"no building block {name!r} is registered here")
    block = _REGISTERED.get(name) or getattr(import_module(_KNOWN[name]), name)
    if keys == ["name"]:
        return block
    if keys == ["keywords", "name"]:
        return partial(block, **_parameters(name, words["keywords"]))
    # Only an estimator is made: anything else would be called with what others say.
    if keys != ["name", "params"] or not hasattr(block, "get_params"):
        raise SettingsError(f"what is said of {name} is not in words")
    try:
        return block(**_parameters(name, words["params"]))
    except TypeError:
        raise SettingsError(f"{name} does not have these parameters") from None


def _parameters(name: str, words: Any) -> dict[str, Any]:
    params = from_words(words)
    if not isinstance(params, dict):
        raise SettingsError(f"the parameters of {name} are not in words")
    if own := _at_home(params):
        raise SettingsError(f"{own} of {name} is not for others to set")
    return params


def _at_home(params: Mapping[str, Any]) -> str | None:
    """Name of a parameter that is set, and not for others to set."""
    found = [key for key, due in _AT_HOME.items() if params.get(key, due) != due]
    return found[0] if found else None


def _name_of(block: Any) -> str | None:
    for name, registered in _REGISTERED.items():
        # By identity, because another class may have the same name.
        if registered is block:
            return name
    known = str(getattr(block, "__name__", None))
    if known in _KNOWN and getattr(import_module(_KNOWN[known]), known) is block:
        return known
    return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What one role of a method is told.

    A subclass names its role, has a field for each setting, and makes the party in
    :meth:`make`, which runs at the organisation whose party it is. A field whose
    ``metadata`` has a ``"stream"`` is an estimator with random numbers of its own,
    drawn from the organisation's stream of that name.

    Parameters
    ----------
    transformer : {"auto", "passthrough"} or transformer, default="auto"
        Prepares the party's columns.

    See Also
    --------
    register : Gives a building block a name that settings can use.
    Member : Is told settings, and makes its party of them.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from sklearn.preprocessing import MaxAbsScaler
    >>> from skvfl.federation import Settings
    >>> @dataclass(frozen=True, kw_only=True)
    ... class CountSettings(Settings):
    ...     width: int = 3
    >>> CountSettings(transformer=MaxAbsScaler(), width=2).pack()["width"]
    2
    """

    role: ClassVar[str]
    transformer: Any = dataclasses.field(default="auto", metadata={"stream": "prepare"})

    def __init_subclass__(cls, *, role: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if role is not None:
            cls.role = role
            _ROLES[role] = cls

    def make(self, member: Member) -> Party:
        """The party of an organisation, with nothing but its own secrets.

        Parameters
        ----------
        member : Member
            The organisation.

        Returns
        -------
        party : Party
        """
        raise NotImplementedError

    def pack(self) -> dict[str, Any]:
        """What can be sent; ``{"own": field}`` refers to what cannot."""
        words = {}
        for each in dataclasses.fields(self):
            try:
                words[each.name] = in_words(getattr(self, each.name))
            except NotInWordsError:
                # The receiver looks for its own object of this name; nothing of ours
                # travels.
                words[each.name] = {"own": each.name}
        return words

    @classmethod
    def unpack(cls, words: Mapping[str, Any], member: Member) -> Self:
        """Settings that arrived, with the member's own objects in their places.

        Raises
        ------
        SettingsError
            If a setting is unknown, or speaks of what is not here.
        """
        streams = {f.name: f.metadata.get("stream") for f in dataclasses.fields(cls)}
        if not isinstance(words, Mapping):
            raise SettingsError("its settings are not a dict")
        if unknown := sorted(set(words) - set(streams)):
            raise SettingsError(f"role {cls.role!r} has no settings {unknown}")
        values = {}
        for name, said in words.items():
            is_own = isinstance(said, dict) and said.keys() == {"own"}
            # A field cannot speak of another one's object, or of the key ring.
            if is_own and said["own"] != name:
                raise SettingsError(f"{name} speaks of {said['own']!r}, not of its own")
            if is_own and name not in member.own:
                raise SettingsError(f"it has no {name} of its own")
            value = member.own[name] if is_own else from_words(said)
            purpose = streams[name]
            if purpose is not None and hasattr(value, "get_params"):
                # Own objects keep the seeds that their organisation gave them.
                stream = member.stream(purpose)
                if is_own:
                    # A clone, because other runs are to draw anew.
                    value = seed_own(clone(value), stream)
                else:
                    seed_party(value, stream, member.name)
            values[name] = value
        nothing = dataclasses.MISSING
        due = [f.name for f in dataclasses.fields(cls) if f.default is nothing]
        if lacking := [name for name in due if name not in words]:
            raise SettingsError(f"role {cls.role!r} needs the settings {lacking}")
        return cls(**values)

    def live(
        self, words: Mapping[str, Any], streams: Mapping[str, Any], name: str
    ) -> dict[str, Any]:
        """Objects that words can only refer to, for a member of a simulation.

        A simulation stands for every organisation, so it seeds what each of them
        brings itself, and strikes out a seed that is the root of all of them.
        """
        own = {}
        for each in dataclasses.fields(self):
            if words.get(each.name) != {"own": each.name}:
                continue
            value = getattr(self, each.name)
            purpose = each.metadata.get("stream")
            if purpose is not None:
                # A clone for each member: parties that share an object would learn from
                # each other.
                value = seed_party(clone(value), streams[purpose], name)
            own[each.name] = value
        return own


def refuse_own(words: Mapping[str, Any], name: str, settings: Settings) -> None:
    """Refuse settings that another organisation could not make anything of.

    Raises
    ------
    SettingsError
        If one of them refers to an object; the message says which, and why.
    """
    for field, said in words.items():
        if said != {"own": field}:
            continue
        try:
            in_words(getattr(settings, field))
        except NotInWordsError as exc:
            why = exc
        raise SettingsError(
            f"{field} cannot be told to party {name!r}, because it holds {why}: give "
            "numbers or a registered building block (skvfl.federation.register)"
        )


def settings_of(role: str) -> type[Settings]:
    """The settings of a role, whose method is imported where that is due.

    Raises
    ------
    SettingsError
        If there is no such role.
    """
    if not isinstance(role, str):
        raise SettingsError(f"there is no role {role!r} here")
    method = role.partition(".")[0]
    if role not in _ROLES and method in _METHODS:
        import_module(f"skvfl.{method}._parties")
    if role not in _ROLES:
        raise SettingsError(f"there is no role {role!r} here")
    return _ROLES[role]
