"""The answer to a protocol as JUnit XML for CI systems: a suite a section, a case a check."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Final

from moescope.analysis.readiness import Readiness
from moescope.analysis.readiness_check import Check, CheckStatus, Section

_NOT_IN_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Everything that is no Char of XML 1.0, §2.2: control characters, surrogates, U+FFFE and U+FFFF."""


def as_junit(readiness: Readiness) -> bytes:
    """UTF-8 with a declaration; what was not checked is skipped, and failed under ``--strict``."""
    root = ET.Element("testsuites", {"name": _clean(f"moescope check {readiness.protocol.name}")})
    totals = {"tests": 0, "failures": 0, "skipped": 0}
    for section in Section:
        checks = readiness.of_section(section)
        if checks:
            suite = _suite(section, checks, readiness)
            root.append(suite)
            for name in totals:
                totals[name] += int(suite.attrib[name])
    _count(root, totals)
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _suite(section: Section, checks: tuple[Check, ...], readiness: Readiness) -> ET.Element:
    suite = ET.Element("testsuite", {"name": section.value})
    _properties(suite, {"source": readiness.source, "protocol": readiness.protocol.name})
    cases = [_case(check, is_strict=readiness.is_strict) for check in checks]
    suite.extend(cases)
    _count(
        suite,
        {
            "tests": len(cases),
            "failures": sum(case.find("failure") is not None for case in cases),
            "skipped": sum(case.find("skipped") is not None for case in cases),
        },
    )
    return suite


def _count(element: ET.Element, totals: dict[str, int]) -> None:
    for name, number in totals.items():
        element.set(name, str(number))
    element.set("errors", "0")
    element.set("time", "0")


def _case(check: Check, *, is_strict: bool) -> ET.Element:
    scope = f" [{check.scope}]" if check.scope else ""
    case = ET.Element(
        "testcase",
        {"classname": f"moescope.{check.section.value}", "name": _clean(f"{check.name}{scope}"), "time": "0"},
    )
    if check.measured is not None and check.limit is not None and check.unit and check.bound:
        _properties(
            case,
            {
                "measured": f"{check.measured:.6g}",
                "limit": f"{check.bound.value} {check.limit:.6g}",
                "unit": check.unit.value,
            },
        )
    if check.status is CheckStatus.FAILED or (is_strict and check.status is CheckStatus.NOT_CHECKED):
        failure = ET.SubElement(
            case, "failure", {"message": _clean(check.evidence), "type": check.status.value}
        )
        failure.text = _clean("\n".join(filter(None, (check.evidence, check.action))))
    elif check.status is CheckStatus.NOT_CHECKED:
        ET.SubElement(case, "skipped", {"message": _clean(check.evidence)})
    else:
        ET.SubElement(case, "system-out").text = _clean(check.evidence)
    return case


def _properties(element: ET.Element, values: dict[str, str]) -> None:
    properties = ET.SubElement(element, "properties")
    for name, value in values.items():
        ET.SubElement(properties, "property", {"name": name, "value": _clean(value)})


def _clean(text: str) -> str:
    return _NOT_IN_XML.sub("", text)
