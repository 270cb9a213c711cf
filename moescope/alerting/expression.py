"""The SQL of a rule, and the values that are bound to its ``{name:Type}`` parameters."""

from __future__ import annotations

import dataclasses
import difflib
import re
from dataclasses import dataclass
from typing import Final

from moescope.schemas.settings import Settings

AT: Final = "at"
"""The moment that a rule looks at: its evaluation less the delay."""

_PARAMETER: Final = re.compile(r"\{\s*([A-Za-z_]\w*)\s*:\s*([^{}]+?)\s*\}")
_SETTINGS: Final = tuple(field.name for field in dataclasses.fields(Settings))


@dataclass(frozen=True, slots=True)
class Expression:
    """One SELECT, as it stands in the rule file."""

    sql: str

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its parameters, each once."""
        return tuple(dict.fromkeys(match[1] for match in _PARAMETER.finditer(self.sql)))

    @property
    def looks_at_a_time(self) -> bool:
        """Whether it is bound to the moment of its evaluation; otherwise it cannot be replayed."""
        return AT in self.parameters

    def problems(self) -> list[str]:
        """Parameters that nobody can bind, each with the nearest name."""
        found = []
        for name in self.parameters:
            if name != AT and name not in _SETTINGS:
                near = difflib.get_close_matches(name, (AT, *_SETTINGS), n=1)
                hint = f"did you mean {{{near[0]}:…}}?" if near else "docs/settings.md lists the settings"
                found.append(f"{{{name}:…}} is neither {{{AT}:DateTime64(3)}} nor a setting; {hint}")
        return found

    def bind(self, settings: Settings, at_seconds: float) -> dict[str, str | float]:
        """Values of the parameters.

        Args:
            settings: each can be bound by its name.
            at_seconds: Unix time that the rule looks at. It is sent as such: a text would be read in the time
                zone of the server.
        """
        values: dict[str, str | float] = {}
        for name in self.parameters:
            value = f"{at_seconds:.3f}" if name == AT else getattr(settings, name)
            values[name] = int(value) if isinstance(value, bool) else value
        return values

    def as_query(self, limit: int) -> str:
        """The query that runs: whatever is no SELECT cannot stand in a subquery."""
        return f"SELECT * FROM (\n{self.sql.strip().rstrip(';')}\n) LIMIT {limit}"
