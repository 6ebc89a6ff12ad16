"""Numbers and times that are written as text."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from typing import ClassVar, NamedTuple

import numpy as np

NUMBERS = "numbers"
STRINGS = "strings"
DATETIMES = "datetimes"
AWARE_DATETIMES = "datetimes with time zone"
DURATIONS = "durations"
OBJECT_DTYPES = {
    NUMBERS: "f8",
    DATETIMES: "M8[us]",
    AWARE_DATETIMES: "M8[us]",
    DURATIONS: "m8[us]",
}

# What people write where a number or a date is missing.
MARKERS = (
    {*"?*/x", "", "??", "???", "na", "n/a", "n.a.", "n.a", "n/d", "nd", "nan", "-nan"}
    | {"nat", "null", "none", "nil", "<na>", "(null)", "(missing)", "(blank)", "blank"}
    | {"missing", "unknown", "unk", "undefined", "not available", "not applicable"}
    | {"tbd", "k.a.", "k. a.", "#n/a", "#na", "#value!", "#ref!", "#div/0!"}
)
DASHES_AND_DOTS = re.compile(r"[-_.\u2010-\u2015\u2026\u2212]+")

# One sample decides whether a column is looked at any further, which keeps columns of
# plain categories as cheap as they were.
SAMPLE = 60
# Few different numbers beside other text ("1", "2", "3 or more") are categories.
ENOUGH_DISTINCT = 20
NEARLY_ALL = 0.95
# So many numbers with a separator make an accident of their digits unlikely.
ENOUGH_EVIDENCE = 10
# A float holds whole numbers up to this many digits.
EXACT_DIGITS = 15

MIXED = (
    "holds text of which most looks like {}, but not in one format: it is taken for "
    "categories; convert the column to {}"
)
DAY_OR_MONTH = (
    "holds dates as text in which the first number may be the day or the month; it is "
    "taken for the month: convert the column to dates to be sure"
)
SEPARATORS = (
    "holds numbers as text in which {0} may separate thousands or decimals; it is "
    "taken for {1}: convert the column to numbers to be sure"
)

_CURRENCY = (
    r"(?:[A-Z]{0,3}[$€£¥₹₽₩₺₪₫₴₦₱฿¢₿]|Rs\.?|[Kk]r\.?|Fr\.?|zł|Kč|Ft|RM|"
    r"(?i:EUR|USD|GBP|CHF|JPY|CNY|RMB|INR|AUD|CAD|NZD|SEK|NOK|DKK|ISK|PLN|CZK|HUF|RON|"
    r"BGN|RUB|UAH|TRY|BRL|MXN|ARS|CLP|COP|ZAR|KRW|SGD|HKD|TWD|THB|IDR|MYR|PHP|VND|ILS|"
    r"AED|SAR|EGP|NGN|KES))"
)
_UNIT = r"(?:[%‰‱°\"'\u2032\u2033]|°?[^\W\d_]{1,12}[.²³]?(?:/[^\W\d_]{1,8}[²³]?)?)"
NUMBER = re.compile(
    rf"""
    (?:(?P<outer>{_CURRENCY}) \s* (?=\())?
    (?P<open>\()? \s* (?P<sign>[-+])? \s*
    (?:(?P<prefix>{_CURRENCY}) \s*)? (?P<inner>[-+])? \s*
    (?P<core>\d(?:[\d.,' ]*\d)?[.,]? | [.,]\d+)
    (?P<exponent>[eE][-+]?\d+)?
    \s* (?P<suffix>{_CURRENCY}|{_UNIT})? (?P<trailing>-)? \s* (?P<close>\))?
    | (?P<special>[-+]?(?i:inf|infinity))
    """,
    re.VERBOSE,
)
_SAME_LOOK = str.maketrans(
    {
        **dict.fromkeys("\u00a0\u2007\u2009\u202f\t", " "),
        **dict.fromkeys("\u2019\u02bc\u00b4`", "'"),
        **dict.fromkeys("\u2212\u2012\u2013", "-"),
    }
)
DIGIT = re.compile(r"\d")

_ZONE = r"(?:\s*(?P<zone>Z|UTC|GMT|[-+]\d\d(?::?\d\d)?))?"
_TIME = (
    r"(?:(?:T|,?\s+)(?P<hour>\d{1,2}):(?P<minute>\d\d)"
    r"(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?"
    rf"(?:\s*(?P<half>[AaPp])\.?[Mm]\.?)?{_ZONE})?"
)
DATE = re.compile(
    rf"""
    (?:[A-Za-z]{{2,9}},?\s+)?
    (?: (?P<y1>\d{{4}})(?P<s1>[-/.])(?P<m1>\d{{1,2}})(?P=s1)(?P<d1>\d{{1,2}})
      | (?P<a>\d{{1,2}})(?P<s2>[-/.]\ ?)(?P<b>\d{{1,2}})(?P=s2)(?P<y2>\d{{4}}|\d\d)
      | (?P<d3>\d{{1,2}})(?:st|nd|rd|th)?[-.\s]\s*(?P<m3>[A-Za-z]{{3,9}})
        \.?,?[-\s]\s*(?P<y3>\d{{4}}|\d\d)
      | (?P<m4>[A-Za-z]{{3,9}})\.?\s+(?P<d4>\d{{1,2}})(?:st|nd|rd|th)?,?
        \s+(?P<y4>\d{{4}})
      | (?P<y5>\d{{4}})[-/](?P<m5>\d{{1,2}})
      | (?P<m6>\d{{1,2}})/(?P<y6>\d{{4}})
    ){_TIME}
    """,
    re.VERBOSE,
)
MONTHS = ["january", "february", "march", "april", "may", "june", "july", "august"]
MONTHS += ["september", "october", "november", "december"]
CLOCK = re.compile(
    r"(?P<sign>-)?(?:(?P<days>\d{1,6})\s+days?,?\s+)?(?P<hours>\d{1,3}):(?P<minutes>[0-5]\d)"
    r"(?::(?P<seconds>[0-5]\d)(?:\.(?P<fraction>\d{1,9}))?)?"
    r"(?:\s*(?P<half>[AaPp])\.?[Mm]\.?)?"
)


def is_marker(text):
    """Whether this is how people write that a value is missing."""
    text = text.strip().lower()
    return text in MARKERS or DASHES_AND_DOTS.fullmatch(text) is not None


def guess(counts):
    """How to read a column of text as numbers or times, if that is what it is.

    Parameters
    ----------
    counts : dict of str to int
        How often each text occurs; no missing values.

    Returns
    -------
    reading : Numbers, Dates, Clock or None
        None if the column is one of categories.
    remark : str or None
        What users should be told about the column.
    """
    texts = list(counts)
    # From all of the column, whose beginning may be of one kind.
    sample = texts[:: len(texts) // SAMPLE + 1]
    sample = [text for text in sample if not is_marker(text)]
    for form in (Numbers, Dates, Clock):
        if 2 * sum(map(form.looks_like, sample)) >= max(1, len(sample)):
            texts = [text for text in texts if not is_marker(text)]
            return _accept(*form.guess(texts, counts), texts, counts)
    return None, None


def _accept(reading, remark, texts, counts):
    """Take the reading if it fits nearly all of the column."""
    if reading is None:
        return None, remark
    unread = [text for text in texts if reading.parse(text) is None]
    if not unread:
        return reading, remark
    n_unread = sum(counts[text] for text in unread)
    share = 1 - n_unread / sum(counts[text] for text in texts)
    if len(texts) - len(unread) < ENOUGH_DISTINCT:
        return None, None
    is_word = len(unread) <= 3 and not any(map(DIGIT.search, unread))
    if share >= NEARLY_ALL or (is_word and share >= 0.5):
        told = f"holds {reading.kind} as text; {n_unread} of its values cannot be read"
        return reading, f"{told} and count as missing"
    if share >= 0.5:
        return None, MIXED.format(reading.kind, reading.kind)
    return None, None


class Reading:
    """How the cells of one column are read; it keeps none of them."""

    kind: ClassVar[str]

    def parse(self, text):
        """Value of one cell, or None where it cannot be read."""
        raise NotImplementedError

    def read(self, values):
        """Values of a column, and how many texts in it could not be read.

        Parameters
        ----------
        values : ndarray of str or None
            The cells.

        Returns
        -------
        typed : ndarray of shape (n_values,)
            NaN or NaT where a value is missing or cannot be read.
        n_unread : int
            How many cells could not be read.
        """
        typed = np.full(len(values), None).astype(OBJECT_DTYPES[self.kind])
        parsed = {}
        n_unread = 0
        for i, text in enumerate(values):
            if text is None:
                continue
            # Texts repeat, and reading one takes long.
            if text not in parsed:
                missing = is_marker(text)
                parsed[text] = None if missing else (self.parse(text),)
            if parsed[text] is not None:
                value = parsed[text][0]
                if value is None:
                    n_unread += 1
                else:
                    typed[i] = value
        return typed, n_unread

    def is_other_clock(self, values):
        """Whether the values are of another kind of time."""
        return False


class _NumberFormat(NamedTuple):
    decimal: str
    grouping: str
    unit: tuple[str, str]
    doubtful: str = ""


class Numbers(_NumberFormat, Reading):
    """Numbers with one decimal sign, one separator of thousands and one unit.

    A number such as ``1.234`` whose only separator is the `doubtful` one is not read:
    that sign never had this role in fit, where the other one stood before three digits.
    """

    kind = NUMBERS

    @staticmethod
    def looks_like(text):
        """Whether a text may be a number in some format."""
        part = _split_number(text)
        return part is not None and any(
            _canonical(part.core, decimal, grouping) is not None
            for decimal in ".,"
            for grouping in ".,' "
            if decimal != grouping
        )

    @classmethod
    def guess(cls, texts, counts):
        """Choose the format that reads most of the column.

        Returns
        -------
        reading : Numbers or None
        remark : str or None
        """
        parts = {text: _split_number(text) for text in texts}
        parts = {text: part for text, part in parts.items() if part is not None}
        units = Counter()
        for text, part in parts.items():
            units[part.unit] += counts[text]
        unit = units.most_common(1)[0][0]
        weights = Counter()
        for text, part in parts.items():
            if part.unit == unit:
                weights[part.core] += counts[text]
        # Leading zeros mean something, and long digits would lose their last ones.
        if unit == ("", "") and _are_codes(parts.values()):
            return None, None
        decimal, grouping, remark = _choose_separators(weights)
        doubtful = _doubtful_separator(weights, decimal, grouping)
        return cls(decimal, grouping, unit, doubtful), remark

    def parse(self, text):
        """Value of one cell, or None where it cannot be read."""
        part = _split_number(text)
        if part is None:
            return None
        if part.special is not None:
            return float(part.special)
        core = _canonical(part.core, self.decimal, self.grouping)
        if core is None or part.unit != self.unit:
            return None
        if self.doubtful and _stands_before_three(self.doubtful, part.core):
            return None
        return part.sign * float(core + part.exponent)


class _NumberParts(NamedTuple):
    sign: int
    unit: tuple[str, str]
    core: str
    exponent: str
    special: str | None = None


def _split_number(text):
    found = NUMBER.fullmatch(text.translate(_SAME_LOOK).strip())
    if found is None:
        return None
    special = found["special"]
    if special is not None:
        return _NumberParts(1, ("", ""), "0", "", special)
    signs = [found["sign"], found["inner"], found["trailing"], found["open"]]
    if (found["open"] is None) != (found["close"] is None):
        return None
    if sum(sign is not None for sign in signs) > 1:
        return None
    negative = any(sign in ("-", "(") for sign in signs)
    unit = (found["outer"] or found["prefix"] or "", found["suffix"] or "")
    return _NumberParts(
        -1 if negative else 1, unit, found["core"], found["exponent"] or ""
    )


def _are_codes(parts):
    """Whether these are codes: digits only, with leading zeros or far too many."""
    cores = [part.core for part in parts]
    if not all(core.isdecimal() for core in cores):
        return False
    return any(
        (core[0] == "0" and len(core) > 1) or len(core) > EXACT_DIGITS for core in cores
    )


def _canonical(core, decimal, grouping):
    """The digits as Python writes a number; None if they are not in this format."""
    whole, _, fraction = core.partition(decimal)
    if fraction and not fraction.isdecimal():
        return None
    if whole and not whole.isdecimal():
        if not grouping or grouping not in whole:
            return None
        first, *middle, last = groups = whole.split(grouping)
        if not all(group.isdecimal() for group in groups):
            return None
        # Groups of two before the last one are how lakhs are written in India.
        sizes = {len(group) for group in middle}
        if first[0] == "0" or len(first) > 3 or len(last) != 3 or len(sizes) > 1:
            return None
        if not sizes <= {2, 3} or (sizes == {2} and len(first) > 2):
            return None
        whole = "".join(groups)
    return f"{whole or 0}.{fraction or 0}"


def _choose_separators(weights):
    """Decimal sign and separator of thousands, decided by all cores together."""
    used = {sign for core in weights for sign in ".,' " if sign in core}
    scores = {
        (decimal, grouping): sum(
            weight
            for core, weight in weights.items()
            if _canonical(core, decimal, grouping) is not None
        )
        for decimal in ".,"
        for grouping in sorted(used | {".", ","})
        if decimal != grouping
    }
    best = max(scores, key=scores.get)
    point, comma = scores[".", ","], scores[",", "."]
    if scores[best] > max(point, comma) or min(point, comma) < scores[best]:
        # A few cells of "12,5" among hundreds of "1,234" do not make it decimals.
        slips = used == {","} and point >= 0.99 * comma and comma >= 100
        return (".", ",", None) if slips else (*best, None)
    return _thousands_or_decimals(weights, used & {".", ","})


def _stands_before_three(sign, core):
    """Whether a number may have this separator for thousands or for decimals."""
    first, *rest = core.split(sign)
    return (
        1 <= len(first) <= 3
        and first.isdecimal()
        and bool(rest)
        and all(len(group) == 3 and group.isdecimal() for group in rest)
    )


def _doubtful_separator(weights, decimal, grouping):
    """The sign that may take the other one's place in another export, or "".

    Where all separators of a column stand before three digits and have one role, a
    later number with the other separator before three digits may be of either kind.
    """
    present = {sign for core in weights for sign in (decimal, grouping) if sign in core}
    if len(present) != 1 or not {decimal, grouping} <= {".", ","}:
        return ""
    (sign,) = present
    separated = [core for core in weights if sign in core]
    if not all(_stands_before_three(sign, core) for core in separated):
        return ""
    return grouping if sign == decimal else decimal


def _thousands_or_decimals(weights, used):
    """Both readings fit: every separator has three digits behind it."""
    if not used:
        return ".", ",", None
    plain = [core for core in weights if core.isdecimal()]
    separated = len(weights) - len(plain)
    # Grouped numbers have no more than three digits where there is no separator; a
    # column of decimals with exactly three of them has no number without.
    grouped = all(len(core) <= 3 for core in plain)
    if used == {"."} and plain and grouped:
        decimal, grouping = ",", "."
    else:
        decimal, grouping = ".", ","
    agree = not plain and len(used) == 1
    known = grouped and len(used) == 1 and separated >= ENOUGH_EVIDENCE
    remark = None
    if not (agree or known):
        signs = " and ".join(sorted(map(repr, used)))
        role = "decimals" if used == {decimal} else "thousands"
        if len(used) == 2:
            role = "decimals where it is '.' and thousands where it is ','"
        remark = SEPARATORS.format(signs, role)
    return decimal, grouping, remark


class _DateFormat(NamedTuple):
    day_first: bool | None
    aware: bool


class Dates(_DateFormat, Reading):
    """Dates, with or without time, in one order of day and month.

    Without an order (`day_first` is None) only dates that need none are read: those
    that begin with the year or name the month.
    """

    @property
    def kind(self):
        """Kind of the values, as for columns of times."""
        return AWARE_DATETIMES if self.aware else DATETIMES

    @staticmethod
    def looks_like(text):
        """Whether a text may be a date in some format."""
        return DATE.fullmatch(text.strip()) is not None

    @classmethod
    def guess(cls, texts, counts):
        """Decide the order of day and month by the whole column.

        Returns
        -------
        reading : Dates or None
        remark : str or None
        """
        found = [DATE.fullmatch(text.strip()) for text in texts]
        found = [each for each in found if each is not None]
        aware = 2 * sum(each["zone"] is not None for each in found) > len(found)
        pairs = [(int(each["a"]), int(each["b"])) for each in found if each["a"]]
        if not pairs:
            return cls(None, aware), None
        day_first = sum(a > 12 for a, _ in pairs)
        month_first = sum(b > 12 for _, b in pairs)
        if day_first or month_first:
            if max(day_first, month_first) < NEARLY_ALL * (day_first + month_first):
                return None, MIXED.format("dates", "dates")
            return cls(day_first > month_first, aware), None
        # Where dates are written with points, the day comes first.
        if any(each["s2"] and each["s2"][0] == "." for each in found):
            return cls(True, aware), None
        differ = any(a != b for a, b in pairs)
        return cls(False, aware), DAY_OR_MONTH if differ else None

    def parse(self, text):
        """Time of one cell, or None where it cannot be read."""
        found = DATE.fullmatch(text.strip())
        if found is None or (found["zone"] is not None) != self.aware:
            return None
        # Either order would be a guess.
        if found["a"] and self.day_first is None:
            return None
        try:
            time = datetime(*self._date(found), *_time_of_day(found))
            if self.aware:
                time = time.replace(tzinfo=_zone(found)).astimezone(UTC)
        except (ValueError, OverflowError):  # the calendar has no such time
            return None
        return time.replace(tzinfo=None)

    def _date(self, found):
        if found["a"]:
            day, month = found["a"], found["b"]
            if not self.day_first:
                day, month = month, day
            return _year(found["y2"]), int(month), int(day)
        for i in (1, 3, 4, 5, 6):
            if found[f"y{i}"]:
                day = found[f"d{i}"] if i < 5 else 1
                return _year(found[f"y{i}"]), _month(found[f"m{i}"]), int(day)
        raise ValueError

    def is_other_clock(self, values):
        """Whether dates have a zone where those of fit had none, or have none."""
        other = self._replace(aware=not self.aware)
        present = [text for text in values if text is not None]
        return any(other.parse(text) is not None for text in present)


def _year(text):
    """Year of two or four digits; two are those of 1969 to 2068, as in POSIX."""
    year = int(text)
    if len(text) == 4:
        return year
    return year + (1900 if year >= 69 else 2000)


def _month(text):
    if text.isdecimal():
        return int(text)
    text = text.lower()
    for number, name in enumerate(MONTHS, start=1):
        if name.startswith(text) or text == "sept" == name[:4]:
            return number
    raise ValueError


def _time_of_day(found):
    """Hour, minute, second and microsecond."""
    hour, minute, second = (
        int(found[part] or 0) for part in ("hour", "minute", "second")
    )
    if found["half"]:
        hour = _hour_of_day(hour, found["half"])
    return hour, minute, second, int((found["fraction"] or "0").ljust(6, "0")[:6])


def _hour_of_day(hour, half):
    """Hour of the day from one of the clock's twelve hours."""
    if not 1 <= hour <= 12:
        raise ValueError
    return hour % 12 + (12 if half in "pP" else 0)


def _zone(found):
    text = found["zone"]
    if text[0] not in "+-":
        return UTC
    minutes = 60 * int(text[1:3]) + int(text[3:].lstrip(":") or 0)
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))


class Clock(Reading):
    """Times of day and durations such as 12:30, 12:30:15 and 1 day 12:30:15."""

    kind = DURATIONS

    @staticmethod
    def looks_like(text):
        """Whether a text may be a time of day or a duration."""
        return CLOCK.fullmatch(text.strip()) is not None

    @classmethod
    def guess(cls, texts, counts):
        """There is one format only.

        Returns
        -------
        reading : Clock
        remark : None
        """
        return cls(), None

    def parse(self, text):
        """Duration of one cell, or None where it cannot be read."""
        found = CLOCK.fullmatch(text.strip())
        if found is None:
            return None
        hours = int(found["hours"])
        if found["half"]:
            if not 1 <= hours <= 12:
                return None
            hours = _hour_of_day(hours, found["half"])
        duration = timedelta(
            days=int(found["days"] or 0),
            hours=hours,
            minutes=int(found["minutes"]),
            seconds=int(found["seconds"] or 0),
            microseconds=int((found["fraction"] or "0").ljust(6, "0")[:6]),
        )
        return -duration if found["sign"] else duration


# For text where fit saw numbers or times: only what can be read in one way.
PLAIN = {
    NUMBERS: Numbers(".", "", ("", "")),
    DATETIMES: Dates(None, False),
    AWARE_DATETIMES: Dates(None, True),
    DURATIONS: Clock(),
}
