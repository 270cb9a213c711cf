"""The runbook in sections: one for each alert, with the statements that bring its evidence."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_SECTION: Final = re.compile(r"^## +(.+?)\s*$", re.MULTILINE)
_FILE_LINK: Final = re.compile(r"\[([^\]]+)\]\((?!https?://)[^)]*\)")
_SQL: Final = re.compile(r"```sql\n(.*?)```", re.DOTALL)
EXAMPLE_SERVICE: Final = "kimi-k3"
"""The deployment that the runbook's statements name."""


@dataclass(frozen=True, slots=True)
class RunbookSection:
    """What to do about one alert; ``text`` is Markdown whose links to files are plain words."""

    name: str
    text: str

    def for_service(self, service: str) -> RunbookSection:
        """The same with its statements and commands for another deployment."""
        return RunbookSection(
            self.name, self.text.replace(EXAMPLE_SERVICE, service) if service else self.text
        )

    @property
    def statements(self) -> tuple[str, ...]:
        """SQL that brings the evidence."""
        return tuple(one.strip() for one in _SQL.findall(self.text))


def read_runbook(text: str) -> Mapping[str, RunbookSection]:
    """Return the sections of a runbook by heading."""
    parts = _SECTION.split(text)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    return {name: RunbookSection(name, _FILE_LINK.sub(r"\1", body).strip()) for name, body in pairs}


def nearest(name: str, sections: Mapping[str, RunbookSection]) -> str | None:
    """Return the heading that somebody may have meant."""
    return next(iter(difflib.get_close_matches(name, sections, 1)), None)
