"""The pages, each declared once, and links between them that carry what they point at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

import streamlit as st
from streamlit.errors import StreamlitAPIException

from moescope.analysis.finding import Subject


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the dashboard.

    Attributes:
        file: below the dashboard's folder; the file's stem is the page's address.
        title: its name in the navigation.
        icon: a Material symbol.
        question: what it answers.
    """

    file: str
    title: str
    icon: str
    question: str

    @property
    def address(self) -> str:
        """Its name in the address."""
        return PurePosixPath(self.file).stem


OVERVIEW: Final = Page("pages/overview.py", "Overview", "monitor_heart", "What is wrong now?")
EXPERT_LOAD: Final = Page("pages/expert_load.py", "Experts", "grid_on", "Which experts are hot, and where?")
RANKS: Final = Page("pages/ranks.py", "Ranks", "lan", "Who has most to do, who is late, and who waits?")
LATENCY: Final = Page("pages/latency.py", "Latency", "timer", "What do requests wait for?")
TRAFFIC: Final = Page("pages/traffic.py", "Traffic", "swap_horiz", "Who sends how much to whom?")
MEMORY: Final = Page("pages/memory.py", "Memory", "memory", "What is full, and what ends first?")
FAILOVER: Final = Page(
    "pages/failover.py", "Failover", "power_off", "What is lost when a rank or node fails?"
)
REPLICATION: Final = Page(
    "pages/replication.py", "Replication", "content_copy", "Where should copies of experts be?"
)
COMPARE: Final = Page(
    "pages/compare.py", "Compare", "compare_arrows", "Is it worse than before, or elsewhere?"
)
ALERTS: Final = Page("pages/alerts.py", "Alerts", "notifications", "What fires, and what is to be done?")
SQL: Final = Page("pages/sql.py", "SQL", "database", "What else is stored?")
HEALTH: Final = Page("pages/health.py", "Health", "troubleshoot", "Can these numbers be believed?")

PAGES: Final = (
    OVERVIEW,
    EXPERT_LOAD,
    RANKS,
    TRAFFIC,
    LATENCY,
    MEMORY,
    FAILOVER,
    REPLICATION,
    COMPARE,
    ALERTS,
    SQL,
    HEALTH,
)
"""In the order of the navigation; the first is what opens without a name in the address."""

EVIDENCE: Final[Mapping[Subject, Page]] = {
    Subject.EXPERT_LOAD: EXPERT_LOAD,
    Subject.RANKS: RANKS,
    Subject.LATENCY: LATENCY,
    Subject.DRIFT: COMPARE,
    Subject.MEMORY: MEMORY,
    Subject.REPLICATION: REPLICATION,
    Subject.FAILOVER: FAILOVER,
    Subject.QUALITY: HEALTH,
}
"""The page that shows what a finding is about."""


def link_to(page: Page, label: str, params: Mapping[str, str]) -> None:
    """Draw a link to a page; nothing where a page runs alone, without the others."""
    try:
        st.page_link(
            page.file,
            label=label,
            icon=":material/arrow_forward:",
            query_params=dict(params),
            help=f"{page.title}: {page.question}",
        )
    except (StreamlitAPIException, KeyError):
        st.caption(label)
