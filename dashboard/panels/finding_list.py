"""What is wrong, in sentences, each with a link to its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import streamlit as st

from moescope.analysis import words
from moescope.analysis.finding import Finding, Severity
from moescope.dashboard.links import EVIDENCE, link_to
from moescope.dashboard.view import View, link_params

_ICON: Final = {
    Severity.PROBLEM: ":red[:material/error:]",
    Severity.WARNING: ":orange[:material/warning:]",
    Severity.NOTE: ":gray[:material/info:]",
}
_WORD: Final = {Severity.PROBLEM: "problem", Severity.WARNING: "warning", Severity.NOTE: "note"}


def headline(findings: Sequence[Finding]) -> str:
    """``2 problems, 1 warning`` or that nothing is wrong."""
    counts = {severity: sum(one.severity is severity for one in findings) for severity in Severity}
    serious = [
        words.count(number, _WORD[severity])
        for severity, number in counts.items()
        if number and severity is not Severity.NOTE
    ]
    return ", ".join(serious) if serious else "Nothing is wrong"


def show_findings(findings: Sequence[Finding], view: View) -> None:
    """Draw the headline and one card a finding."""
    worst = min((one.severity for one in findings), default=Severity.NOTE)
    icon = ":green[:material/check_circle:]" if worst is Severity.NOTE else _ICON[worst]
    st.subheader(f"{icon} {headline(findings)}", anchor=False)
    for finding in findings:
        _show_finding(finding, view)


def show_statement(finding: Finding) -> None:
    """Draw one finding on the page that is its evidence: without a link."""
    with st.container(border=True, gap="xxsmall"):
        st.markdown(f"{_ICON[finding.severity]}&ensp;**{finding.title}**")
        st.caption(finding.detail)


def _show_finding(finding: Finding, view: View) -> None:
    with st.container(border=True, gap="xxsmall"):
        with st.container(
            horizontal=True, horizontal_alignment="distribute", vertical_alignment="center", wrap=False
        ):
            st.markdown(f"{_ICON[finding.severity]}&ensp;**{finding.title}**")
            params = link_params(
                view,
                ep_group=finding.ep_group,
                phase=finding.phase,
                layer=finding.layer,
                expert=finding.expert,
                rank=finding.rank,
            )
            page = EVIDENCE[finding.subject]
            link_to(page, f"Evidence: {page.title}", params)
        st.caption(finding.detail)
