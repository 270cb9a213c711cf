"""Texts of labels and annotations: ``expert {{ $labels.expert }} has {{ $value | humanizePercentage }}``.

Of Go's templates as Prometheus has them, what rules need: variables, functions, pipelines; no conditions and
no loops. Besides ``$labels`` and ``$value`` there are ``$info.x`` for the row's column ``info_x``, which is
no part of an alert's identity, and ``$dashboard``, the address of the dashboard.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from moescope.alerting.humanize import NUMBER_FUNCTIONS, TEXT_FUNCTIONS, plain

Value: TypeAlias = str | float

_ACTION: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<labels>\$labels\.(?P<label>\w+))|(?P<info>\$info\.(?P<column>\w+))|(?P<value>\$value)(?!\w)|"""
    r"""(?P<dashboard>\$dashboard)(?!\w)|(?P<text>"[^"\n]*")|(?P<number>-?\d+(?:\.\d+)?)|(?P<pipe>\|)|(?P<name>[A-Za-z]\w*))"""
)
_FORMAT: Final = re.compile(r"%[-+ 0]*\d*(?:\.\d+)?([a-zA-Z%])")
_FUNCTIONS: Final = (*NUMBER_FUNCTIONS, *TEXT_FUNCTIONS, "printf")
_CONTROL: Final = frozenset({"if", "else", "end", "with", "range", "define", "template", "block"})


class TemplateProblem(ValueError):  # noqa: N818 - not raised to people; a rule file's problem names it
    """What is wrong with a text."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a text may say.

    Attributes:
        labels: of the row.
        info: columns ``info_*`` of the row, by what follows.
        value: the row's.
        dashboard: its address, without a slash at the end.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    info: Mapping[str, str] = field(default_factory=dict)
    value: float = 0.0
    dashboard: str = ""


_Piece: TypeAlias = "str | Callable[[Facts], str]"


@dataclass(frozen=True, slots=True)
class Template:
    """A text that was understood.

    Attributes:
        source: as it stands in the file.
        labels: labels that it names.
        info: columns that it names.
        names_value: whether it says the value.
    """

    source: str
    labels: frozenset[str]
    info: frozenset[str]
    names_value: bool
    _pieces: tuple[_Piece, ...] = field(repr=False, compare=False)

    def render(self, facts: Facts) -> str:
        """The text of one alert. What the row lacks is empty."""
        return "".join(piece if isinstance(piece, str) else piece(facts) for piece in self._pieces)


def parse_template(source: str) -> Template:
    """Understand a text.

    Raises:
        TemplateProblem: what is wrong, and what may stand there.
    """
    pieces: list[_Piece] = []
    labels: set[str] = set()
    info: set[str] = set()
    names_value = False
    end = 0
    for action in _ACTION.finditer(source):
        pieces.append(source[end : action.start()])
        tokens = list(_tokens(action[1]))
        labels |= {token.text for token in tokens if token.kind == "labels"}
        info |= {token.text for token in tokens if token.kind == "info"}
        names_value = names_value or any(token.kind == "value" for token in tokens)
        pieces.append(_compile(action[0], tokens))
        end = action.end()
    rest = source[end:]
    if "{{" in rest:
        raise TemplateProblem(f"{{{{ has no }}}}: {rest[rest.index('{{') :][:40]}")
    return Template(source, frozenset(labels), frozenset(info), names_value, (*pieces, rest))


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


def _tokens(text: str) -> Iterator[_Token]:
    position, stripped = 0, text.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None or match.lastgroup is None:
            raise TemplateProblem(
                f"{{{{{text}}}}} is not understood at {stripped[position:].strip()!r}; it takes "
                '$labels.name, $value, $info.name, $dashboard, texts in "…", numbers, and functions after |'
            )
        kind = next(kind for kind in _KINDS if match[kind] is not None)
        yield _Token(kind, {"labels": match["label"], "info": match["column"]}.get(kind) or match[kind])
        position = match.end()


_KINDS: Final = ("labels", "info", "value", "dashboard", "text", "number", "pipe", "name")


def _compile(source: str, tokens: list[_Token]) -> Callable[[Facts], str]:
    stages: list[list[_Token]] = [[]]
    for token in tokens:
        if token.kind == "pipe":
            stages.append([])
        else:
            stages[-1].append(token)
    if not all(stages):
        raise TemplateProblem(f"{source} has an empty part; write {{{{ $value | humanize }}}}")
    calls = [_call(source, stage, is_first=not place) for place, stage in enumerate(stages)]

    def run(facts: Facts) -> str:
        value: Value | None = None
        for call in calls:
            value = call(facts, value)
        return plain(value) if isinstance(value, float) else str(value)

    return run


def _call(source: str, stage: list[_Token], *, is_first: bool) -> Callable[[Facts, Value | None], Value]:
    head, arguments = stage[0], stage[1:]
    if head.kind != "name":
        if arguments or not is_first:
            raise TemplateProblem(f"{source}: {head.text} is no function; one of {', '.join(_FUNCTIONS)} is")
        return lambda facts, _: _value(head, facts)
    if head.text in _CONTROL:
        raise TemplateProblem(
            f"{source}: conditions and loops are not taken; have the SQL decide, in an info_ column"
        )
    if head.text not in _FUNCTIONS:
        near = difflib.get_close_matches(head.text, _FUNCTIONS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(_FUNCTIONS)}"
        raise TemplateProblem(f"{source}: no function {head.text}; {hint}")
    if any(token.kind == "name" for token in arguments):
        raise TemplateProblem(f"{source}: one function at a time; put the next one after |")
    takes = len(arguments) + (0 if is_first else 1)
    if head.text == "printf":
        _check_format(source, arguments, takes)
    elif takes != 1:
        raise TemplateProblem(f"{source}: {head.text} takes one value, not {takes}")

    def call(facts: Facts, piped: Value | None) -> Value:
        values = [_value(token, facts) for token in arguments]
        return _apply(head.text, [*values, *([] if piped is None else [piped])])

    return call


def _check_format(source: str, arguments: list[_Token], takes: int) -> None:
    if not arguments or arguments[0].kind != "text":
        raise TemplateProblem(f'{source}: printf begins with a format: printf "%.2f" $value')
    verbs = [verb for verb in _FORMAT.findall(arguments[0].text) if verb != "%"]
    if set(verbs) - set("dfegsv") or len(verbs) != takes - 1:
        raise TemplateProblem(f"{source}: printf takes %d, %f, %e, %g, %s or %v, one for each value")


def _apply(name: str, values: list[Value]) -> Value:
    if name == "printf":
        return _printf(str(values[0]), values[1:])
    if name in TEXT_FUNCTIONS:
        value = values[0]
        return TEXT_FUNCTIONS[name](plain(value) if isinstance(value, float) else value)
    return NUMBER_FUNCTIONS[name](_number(values[0]))


def _printf(pattern: str, values: list[Value]) -> str:
    rest = iter(values)

    def put(match: re.Match[str]) -> str:
        if match[1] == "%":
            return "%"
        value = next(rest)
        if match[1] in "sv":
            return str(match[0][:-1] + "s") % (plain(value) if isinstance(value, float) else value)
        number = _number(value)
        if match[1] == "d" and not math.isfinite(number):
            return plain(number)
        return str(match[0]) % (int(number) if match[1] == "d" else number)

    return _FORMAT.sub(put, pattern)


def _number(value: Value) -> float:
    try:
        return float(value)
    except ValueError:
        return float("nan")


def _value(token: _Token, facts: Facts) -> Value:
    if token.kind == "labels":
        return facts.labels.get(token.text, "")
    if token.kind == "info":
        return facts.info.get(token.text, "")
    if token.kind == "value":
        return float(facts.value)
    if token.kind == "dashboard":
        return facts.dashboard
    return token.text[1:-1] if token.kind == "text" else float(token.text)
