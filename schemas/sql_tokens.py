"""Tokens of a query in ClickHouse's canonical form.

The input is what the engine's own formatter writes: no comments, no heredocs, one statement, strings and
quoted identifiers escaped with backslashes. So a regular expression is enough, where it would not be for
what a person typed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

_TOKEN: Final = re.compile(
    r"""
      (?P<string>'(?:[^'\\]|\\.|'')*')
    | (?P<quoted>`(?:[^`\\]|\\.|``)*`|"(?:[^"\\]|\\.|"")*")
    | (?P<word>[A-Za-z_][A-Za-z0-9_$]*)
    | (?P<number>\d[\w.]*)
    | (?P<sign>\S)
    """,
    re.VERBOSE | re.DOTALL,
)


class TokenKind(Enum):
    """What a token is."""

    STRING = auto()
    QUOTED = auto()
    WORD = auto()
    NUMBER = auto()
    SIGN = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """One token; ``text`` is without quotes where it is a quoted identifier."""

    kind: TokenKind
    text: str

    @property
    def is_name(self) -> bool:
        """Whether it can name something: a function, a table, a setting."""
        return self.kind in {TokenKind.WORD, TokenKind.QUOTED}

    def is_keyword(self, *words: str) -> bool:
        """Whether it is one of the keywords; the canonical form writes them in capitals."""
        return self.kind is TokenKind.WORD and self.text in words


END: Final = Token(TokenKind.SIGN, "")


def tokenize(canonical: str) -> list[Token]:
    """Split a query in canonical form."""
    return list(_tokens(canonical))


def _tokens(canonical: str) -> Iterator[Token]:
    for match in _TOKEN.finditer(canonical):
        kind = TokenKind[str(match.lastgroup).upper()]
        text = match.group()
        if kind is TokenKind.QUOTED:
            text = re.sub(r"\\(.)|``|\"\"", lambda part: part[1] or part[0][0], text[1:-1], flags=re.DOTALL)
        yield Token(kind, text)
