"""Read a pickle of plain data: numbers, text, lists, dictionaries, and what a caller makes of the rest.

A pickle is a program. This one is not run: of its instructions only those that build plain data are known
here, names are looked up in a table of the caller's, and nothing is imported or called besides. Whatever
else a file asks for is refused.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from moescope.schemas.errors import RecordingError

_MARK: Final = object()
_CONSTANTS: Final[Mapping[str, object]] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_LITERALS: Final = frozenset(
    {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE"}
)
_TUPLES: Final = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class PlainPickle:
    """Reads one pickle.

    Args:
        callables: what may be named and called, by ``module.name``; anything else is refused.
        persistent: makes an object of what the file calls a persistent id.
        drop: dictionary keys whose values are let go of as soon as they are read.
    """

    def __init__(
        self,
        callables: Mapping[str, Callable[..., Any]],
        persistent: Callable[[Any], Any],
        drop: Collection[str] = (),
    ) -> None:
        self._callables = callables
        self._persistent = persistent
        self._drop = frozenset(drop)

    def load(self, data: bytes) -> Any:
        """Return the object of the pickle.

        Raises:
            RecordingError: it asks for more than plain data, or is none.
        """
        stack: list[Any] = []
        memo: dict[int, Any] = {}
        try:
            for opcode, argument, _ in pickletools.genops(data):
                if opcode.name == "STOP":
                    return stack.pop()
                self._step(opcode.name, argument, stack, memo)
        except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise RecordingError(f"it is damaged ({type(error).__name__})") from None
        raise RecordingError("it ends early")

    def _step(self, name: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:  # noqa: C901, PLR0912 - one branch per instruction
        if name in _LITERALS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in {"BINPUT", "LONG_BINPUT"}:
            memo[argument] = stack[-1]
        elif name in {"BINGET", "LONG_BINGET"}:
            stack.append(memo[argument])
        elif name == "MARK":
            stack.append(_MARK)
        elif name == "EMPTY_LIST":
            stack.append([])
        elif name == "EMPTY_DICT":
            stack.append({})
        elif name in _TUPLES:
            first = len(stack) - _TUPLES[name]
            stack[first:] = [tuple(stack[first:])]
        elif name == "TUPLE":
            stack.append(tuple(_to_mark(stack)))
        elif name in {"APPEND", "APPENDS"}:
            items = [stack.pop()] if name == "APPEND" else _to_mark(stack)
            _of(list, stack[-1]).extend(items)
        elif name in {"SETITEM", "SETITEMS"}:
            items = [*reversed([stack.pop(), stack.pop()])] if name == "SETITEM" else _to_mark(stack)
            self._set(_of(dict, stack[-1]), items)
        elif name == "GLOBAL":
            stack.append(self._named(argument))
        elif name == "BINPERSID":
            stack.append(self._persistent(stack.pop()))
        elif name == "REDUCE":
            arguments = _of(tuple, stack.pop())
            stack.append(self._callable(stack.pop())(*arguments))
        elif name != "PROTO":
            raise RecordingError(f"it asks for more than plain data (instruction {name}); it is not executed")

    def _set(self, target: dict[Any, Any], items: list[Any]) -> None:
        pairs = zip(items[::2], items[1::2], strict=True)
        target.update({key: value for key, value in pairs if key not in self._drop})

    def _named(self, argument: str) -> Callable[..., Any]:
        name = argument.replace(" ", ".")
        if name not in self._callables:
            raise RecordingError(f"it names {name}, which no recording needs; it is not executed")
        return self._callables[name]

    def _callable(self, value: Any) -> Callable[..., Any]:
        if not any(value is known for known in self._callables.values()):
            raise RecordingError("it calls what may not be called; it is not executed")
        return value  # type: ignore[no-any-return]  # it is one of the table's


def _to_mark(stack: list[Any]) -> list[Any]:
    for position in range(len(stack) - 1, -1, -1):
        if stack[position] is _MARK:
            items = stack[position + 1 :]
            del stack[position:]
            return items
    raise IndexError


def _of(kind: type, value: Any) -> Any:
    """The value, if it is exactly of that kind: a list is extended, never something that looks like one."""
    if type(value) is not kind:
        raise TypeError
    return value
