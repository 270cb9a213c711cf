"""Rule files: YAML with Prometheus's keys, SQL where Prometheus has PromQL, and ``no_data``."""

from __future__ import annotations

import glob
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from moescope.alerting.expression import Expression
from moescope.alerting.rule import DEFAULT_LIMIT, AlertRule, NoData, RuleGroup
from moescope.alerting.template import Template, TemplateProblem, parse_template
from moescope.alerting.yaml_keys import (
    Key,
    check_keys,
    duration_seconds,
    is_count,
    is_duration,
    is_interval,
    is_list,
    is_mapping,
    is_text,
    read_document,
    refuse_file,
    top,
    value_at,
)
from moescope.checking.yaml_document import Document, KeyPath, Problem
from moescope.schemas.errors import AlertRuleError

SHIPPED_FOLDER: Final = Path(__file__).parent / "rules"
TEST_SUFFIX: Final = "_test.yaml"
RESERVED_LABELS: Final = frozenset({"alertname"})

_LABEL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPAN: Final = "a span of time, as in 30s, 5m or 1h30m, up to a year"
_NO_DATA: Final = tuple(choice.value for choice in NoData)
_ROOT_KEYS: Final = {"groups": Key("a list of groups", is_list, is_needed=True)}
_GROUP_KEYS: Final = {
    "name": Key("the name of the group", is_text, is_needed=True),
    "interval": Key(f"{_SPAN}; at least 1s", is_interval),
    "query_offset": Key(_SPAN, is_duration),
    "limit": Key("a whole number above 0: most alerts of a rule", is_count),
    "labels": Key("a mapping from label to text", is_mapping),
    "rules": Key("a list of rules", is_list, is_needed=True),
}
_RULE_KEYS: Final = {
    "alert": Key(
        "the alert's name, as in ExpertHot",
        lambda value: is_text(value) and bool(_LABEL.fullmatch(value)),
        is_needed=True,
    ),
    "expr": Key("one SELECT", is_text, is_needed=True),
    "for": Key(_SPAN, is_duration),
    "keep_firing_for": Key(_SPAN, is_duration),
    "labels": Key("a mapping from label to text", is_mapping),
    "annotations": Key("a mapping from name to text", is_mapping),
    "no_data": Key(f"one of {', '.join(_NO_DATA)}", lambda value: value in _NO_DATA),
}


def find_rule_files(names: str | Sequence[str]) -> list[Path]:
    """The files that names, patterns and folders mean; those that moescope ships if there are none.

    Args:
        names: a list, or one text with commas as the setting has it. Of a folder its ``*.yaml`` count,
            without the tests beside them.

    Raises:
        AlertRuleError: a name that means no file.
    """
    parts = names.split(",") if isinstance(names, str) else names
    wanted = [part.strip() for part in parts if part.strip()] or [str(SHIPPED_FOLDER)]
    found: dict[Path, None] = {}
    for name in wanted:
        path = Path(name).expanduser()
        pattern = str(path / "*.yaml") if path.is_dir() else str(path)
        matches = sorted(Path(match) for match in glob.glob(pattern))  # noqa: PTH207 - absolute patterns too
        if path.is_dir() or glob.has_magic(str(path)):
            matches = [match for match in matches if not match.name.endswith(TEST_SUFFIX)]
        if not matches:
            raise AlertRuleError(
                f"no rule file at {name}; name a file, a folder or a pattern such as rules/*.yaml"
            )
        found.update(dict.fromkeys(matches))
    return list(found)


def find_test_files(names: Sequence[str]) -> list[Path]:
    """The files of tests that names, patterns and folders mean; those of the shipped rules if there are none.

    Raises:
        AlertRuleError: a name that means no file.
    """
    found: list[Path] = []
    for name in names or [str(SHIPPED_FOLDER)]:
        path = Path(name).expanduser()
        pattern = str(path / f"*{TEST_SUFFIX}") if path.is_dir() else str(path)
        matches = sorted(Path(match) for match in glob.glob(pattern))  # noqa: PTH207 - absolute patterns too
        if not matches:
            raise AlertRuleError(f"no file of tests at {name}; they are called …{TEST_SUFFIX}")
        found += matches
    return found


def read_rule_files(paths: Sequence[Path]) -> tuple[RuleGroup, ...]:
    """Read and check files of rules.

    Raises:
        AlertRuleError: everything that is wrong with the first file that is not right, or a group of the same
            name in two files.
    """
    groups: dict[str, RuleGroup] = {}
    for path in paths:
        for group in read_rule_file(path):
            other = groups.setdefault(group.name, group)
            if other is not group:
                raise AlertRuleError(
                    f"{path}: group {group.name} is in {other.file} too; the name tells their states apart, "
                    "so rename one of them"
                )
    return tuple(groups.values())


def read_rule_file(path: Path) -> tuple[RuleGroup, ...]:
    """Read and check one file.

    Raises:
        AlertRuleError: everything that is wrong with it, line by line.
    """
    document = read_document(path)
    problems = [*document.problems, *_problems(document)]
    if problems:
        raise refuse_file(path, problems)
    return tuple(_group(document, place) for place in range(len(document.value["groups"])))


def _problems(document: Document) -> Iterator[Problem]:
    if not isinstance(document.value, dict):
        yield Problem(top(document), "", "the file is a mapping with one key, groups")
        return
    yield from check_keys(document, (), "", _ROOT_KEYS)
    groups = document.value.get("groups")
    names: Counter[str] = Counter()
    for place, group in enumerate(groups if isinstance(groups, list) else []):
        path: KeyPath = ("groups", place)
        name = _named("group", group, "name", place)
        yield from check_keys(document, path, name, _GROUP_KEYS)
        if not isinstance(group, dict):
            continue
        names[name] += 1
        if names[name] > 1:
            yield Problem(document.place_of_value(path), name, "stands twice; its name tells its state apart")
        yield from _text_problems(document, (*path, "labels"), name, are_labels=True)
        rules = group.get("rules")
        for number, rule in enumerate(rules if isinstance(rules, list) else []):
            yield from _rule_problems(
                document, (*path, "rules", number), f"{name}, {_named('rule', rule, 'alert', number)}"
            )


def _rule_problems(document: Document, path: KeyPath, where: str) -> Iterator[Problem]:
    yield from check_keys(document, path, where, _RULE_KEYS)
    rule = value_at(document, path)
    if not isinstance(rule, dict):
        return
    if is_text(rule.get("expr")):
        for message in Expression(rule["expr"]).problems():
            yield Problem(document.place_of_value((*path, "expr")), f"{where}: expr", message)
    yield from _text_problems(document, (*path, "labels"), where, are_labels=True)
    yield from _text_problems(document, (*path, "annotations"), where, are_labels=False)


def _text_problems(document: Document, path: KeyPath, where: str, *, are_labels: bool) -> Iterator[Problem]:
    texts = value_at(document, path[:-1]).get(path[-1])
    for name, text in texts.items() if isinstance(texts, dict) else ():
        key = f"{where}: {path[-1]}.{name}"
        place = document.place_of_key((*path, name))
        if not _LABEL.fullmatch(name) or (are_labels and name in RESERVED_LABELS):
            yield Problem(
                place, key, "no name for one; letters, digits and _, and alertname is the rule's own"
            )
        if isinstance(text, dict | list) or text is None:
            yield Problem(place, key, "takes text")
            continue
        try:
            template = parse_template(str(text))
        except TemplateProblem as problem:
            yield Problem(document.place_of_value((*path, name)), key, str(problem))
            continue
        if are_labels and (template.names_value or template.info):
            yield Problem(place, key, "a label must not change while the alert lasts: no $value and no $info")


def _named(kind: str, value: Any, key: str, place: int) -> str:
    name = value.get(key) if isinstance(value, dict) else None
    return f"{kind} {name}" if is_text(name) else f"{kind} number {place + 1}"


def _group(document: Document, place: int) -> RuleGroup:
    value = document.value["groups"][place]
    seen: Counter[str] = Counter()
    rules = []
    for number, rule in enumerate(value["rules"]):
        seen[rule["alert"]] += 1
        line = document.place_of_value(("groups", place, "rules", number)).line
        rules.append(_rule(value, rule, seen[rule["alert"]], line))
    offset = value.get("query_offset")
    return RuleGroup(
        name=value["name"],
        file=document.path,
        rules=tuple(rules),
        interval_seconds=duration_seconds(value["interval"]) if "interval" in value else None,
        delay_seconds=None if offset is None else duration_seconds(offset),
        limit=value.get("limit", DEFAULT_LIMIT),
    )


def _rule(group: Mapping[str, Any], rule: Mapping[str, Any], number: int, line: int) -> AlertRule:
    labels = {**group.get("labels", {}), **rule.get("labels", {})}
    return AlertRule(
        name=rule["alert"],
        key=f"{group['name']}/{rule['alert']}" + (f"#{number}" if number > 1 else ""),
        expression=Expression(rule["expr"]),
        for_seconds=duration_seconds(rule.get("for", 0)) or 0.0,
        keep_firing_seconds=duration_seconds(rule.get("keep_firing_for", 0)) or 0.0,
        labels=_templates(labels),
        annotations=_templates(rule.get("annotations", {})),
        no_data=NoData(rule.get("no_data", NoData.KEEP)),
        line=line,
    )


def _templates(texts: Mapping[str, Any]) -> dict[str, Template]:
    return {name: parse_template(_as_text(text)) for name, text in texts.items()}


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()
