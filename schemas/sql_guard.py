r"""Refuses what the engine's read-only mode lets pass although it leaves the database.

``readonly = 1`` makes the engine refuse writes, settings and most table functions by itself. Tried on chdb
26.9, it does not refuse: ``INTO OUTFILE``, the scalar function ``file`` (called, passed on as in
``arrayMap(file, …)`` or ``APPLY file``, named by an ``Identifier`` parameter), ``DESCRIBE file(…)`` and its
kin, which read what they describe, ``KILL QUERY``, several statements in one text, and the settings
``select``, ``filter`` and ``order``, whose values are parsed as SQL.

So the query is first put into canonical form by the engine's own parser (``formatQuerySingleLine``: one
statement, no comments, a backquoted ``fi\x6ce`` is ``file``), then its tokens are looked at, and what is
executed is the canonical form: there is no second reading of the text that could differ from the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from moescope.schemas.errors import QueryError
from moescope.schemas.sql_handle import Handle
from moescope.schemas.sql_refusals import READONLY, read_only_refusal, refusal
from moescope.schemas.sql_tokens import END, Token, TokenKind, tokenize

_READS: Final = ("SELECT", "WITH", "SHOW", "DESCRIBE", "EXPLAIN", "EXISTS", "USE", "SET")
_EXPLAINABLE: Final = ("SELECT", "WITH", "SHOW", "DESCRIBE", "EXISTS")
_WRITES: Final = frozenset(
    {
        "ALTER",
        "ATTACH",
        "BACKUP",
        "BEGIN",
        "CHECK",
        "COMMIT",
        "CREATE",
        "DELETE",
        "DETACH",
        "DROP",
        "EXCHANGE",
        "EXECUTE",
        "GRANT",
        "INSERT",
        "KILL",
        "MOVE",
        "OPTIMIZE",
        "RENAME",
        "REPLACE",
        "RESTORE",
        "REVOKE",
        "ROLLBACK",
        "SET",
        "SYSTEM",
        "TRUNCATE",
        "UNDROP",
        "UPDATE",
        "USE",
        "WATCH",
    }
)

# Table functions that look at nothing outside the database.
_TABLE_FUNCTIONS: Final = frozenset(
    {
        "fuzzjson",
        "generaterandom",
        "generateseries",
        "generate_series",
        "merge",
        "mergetreeanalyzeindexes",
        "mergetreeanalyzeindexesuuid",
        "mergetreecodecblockcounts",
        "mergetreeindex",
        "mergetreeprojection",
        "mergetreetextindex",
        "null",
        "numbers",
        "numbers_mt",
        "primes",
        "sqlstandardvalues",
        "values",
        "view",
        "viewifpermitted",
        "zeros",
        "zeros_mt",
    }
)
# Scalar functions that look outside it: files, and language models behind URLs.
_SCALAR_FUNCTIONS: Final = ("file", "catboostevaluate", "evalmlmethod")
_SCALAR_PREFIX: Final = "ai"
_FORMAT_QUERY: Final = "SELECT formatQuerySingleLine(unhex({sql:String}))"
_HARMLESS_SETTINGS: Final = frozenset({"limit", "offset"})


@dataclass(frozen=True, slots=True)
class Rules:
    """Names in lower case that a query may not use.

    Attributes:
        names: of scalar functions, in whatever place: a function can be passed on by its name.
        calls: of table functions, where an opening parenthesis follows.
        settings: that the engine lets a read-only query change.
    """

    names: frozenset[str]
    calls: frozenset[str]
    settings: frozenset[str]


@dataclass(frozen=True, slots=True)
class Checked:
    """A query that may run.

    Attributes:
        sql: its canonical form; this is what runs.
        output_format: of its ``FORMAT`` clause, empty where it has none.
        reads_settings: it does nothing but list ``system.settings``.
    """

    sql: str
    output_format: str
    reads_settings: bool


class Guard:
    """Checks queries. Built once per engine, whose lists of functions it reads.

    Args:
        lend: lends a fresh handle of the engine.
    """

    def __init__(self, lend: Callable[[], AbstractContextManager[Handle]]) -> None:
        with lend() as handle:
            tables = _lower_names(handle, "SELECT lower(name) FROM system.table_functions")
            scalars = _lower_names(handle, "SELECT lower(name) FROM system.functions")
            ai_functions = {name for name in scalars if name.startswith(_SCALAR_PREFIX)}
            handle.query("SET readonly = 1")
            settings = _lower_names(handle, "SELECT name FROM system.settings WHERE readonly = 0")
        self.rules = Rules(
            names=frozenset({*_SCALAR_FUNCTIONS, *ai_functions}),
            calls=tables - _TABLE_FUNCTIONS - scalars,
            settings=settings - _HARMLESS_SETTINGS,
        )

    def check(self, handle: Handle, sql: str, parameters: Mapping[str, str]) -> Checked:
        """Return the query in the form in which it may run.

        Args:
            handle: any handle; it formats the query.
            sql: what the client sent.
            parameters: values of ``{name:Type}``, by name.

        Raises:
            QueryError: the query is no single statement, or does something that a reader may not.
        """
        canonical = _canonical(handle, sql)
        tokens = tokenize(canonical)
        self._check_statement(tokens)
        self._check_names(tokens)
        self._check_parameters(tokens, parameters)
        return Checked(canonical, _output_format(tokens), _only_reads_settings(tokens))

    def _check_statement(self, tokens: Sequence[Token]) -> None:
        words = [token for token in tokens if token.kind is TokenKind.WORD]
        if not words or not words[0].is_keyword(*_READS):
            raise read_only_refusal()
        if words[0].is_keyword("EXPLAIN"):
            inner = next((word for word in words[1:] if word.is_keyword(*_EXPLAINABLE, *_WRITES)), END)
            if inner.is_keyword(*_WRITES):
                raise read_only_refusal()
        for token, following in _pairs(tokens):
            if token.is_keyword("INTO") and following.is_keyword("OUTFILE"):
                raise read_only_refusal("INTO OUTFILE would write a file on the server")
            if token.is_keyword("PARALLEL") and following.is_keyword("WITH"):
                raise read_only_refusal("PARALLEL WITH runs several statements")

    def _check_names(self, tokens: Sequence[Token]) -> None:
        before = END
        has_settings = False
        for token, following in _pairs(tokens):
            has_settings = has_settings or token.is_keyword("SETTINGS")
            if token.is_name and not (before.text == "." or following.text == "."):
                self._check_name(token.text, following, has_settings=has_settings)
            before = token

    def _check_name(self, name: str, following: Token, *, has_settings: bool) -> None:
        lowered = name.lower()
        if lowered in self.rules.names:
            raise read_only_refusal(f"function {name} reaches outside the database")
        if following.text == "(" and lowered in self.rules.calls:
            raise read_only_refusal(f"table function {name} reaches outside the database")
        if has_settings and following.text == "=" and lowered in self.rules.settings:
            raise refusal(READONLY, f"Cannot modify '{name}' setting in readonly mode.")

    def _check_parameters(self, tokens: Sequence[Token], parameters: Mapping[str, str]) -> None:
        """A parameter of type ``Identifier`` can name a function."""
        for start, token in enumerate(tokens):
            if token.text == "{" and start + 3 < len(tokens) and tokens[start + 3].text == "Identifier":
                value = parameters.get(tokens[start + 1].text, "")
                if "\\" in value or value.strip().lower() in self.rules.names:
                    raise read_only_refusal(f"the identifier {value!r} cannot be used here")


def _canonical(handle: Handle, sql: str) -> str:
    # Hexadecimal, so that no layer on the way unescapes anything.
    parameters = {"sql": sql.encode("utf-8", "surrogateescape").hex()}
    try:
        answer = handle.query(_FORMAT_QUERY, "RawBLOB", parameters)
    except QueryError as error:
        # The engine also names the query that it was in, which is ours and not the client's.
        text, scope, _ = str(error).partition(": In scope SELECT formatQuerySingleLine(")
        message = f"{text} ({error.name})" if scope else text
        raise QueryError(message, code=error.code, name=error.name) from None
    return bytes(answer.bytes()).decode("utf-8", "surrogateescape")


def _lower_names(handle: Handle, sql: str) -> frozenset[str]:
    text = bytes(handle.query(sql, "TabSeparatedRaw").bytes()).decode()
    return frozenset(text.split())


def _pairs(tokens: Sequence[Token]) -> Iterable[tuple[Token, Token]]:
    return zip(tokens, [*tokens[1:], END], strict=True)


def _output_format(tokens: Sequence[Token]) -> str:
    name = ""
    for token, following in _pairs(tokens):
        if token.is_keyword("FORMAT") and following.is_name:
            name = following.text
    return name


def _only_reads_settings(tokens: Sequence[Token]) -> bool:
    """Whether it is a plain list of settings, without any call or subquery.

    Clients read the column ``readonly`` of ``system.settings`` to learn which settings they may send, and
    those go with a request here, not with the engine's mode.
    """
    texts = [token.text for token in tokens]
    sources = [texts[index + 1 : index + 4] for index, text in enumerate(texts) if text == "FROM"]
    plain = not {"(", "{", "SETTINGS", "JOIN"} & set(texts)
    return plain and texts[:1] == ["SELECT"] and sources == [["system", ".", "settings"]]
