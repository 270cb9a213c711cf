"""One plan in every format: what ``moescope plan --format …`` would write for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from moescope.analysis.plan_result import PlanResult
from moescope.planning.load import PlanLoad
from moescope.planning.make import Progress, make_plan
from moescope.planning.output import render_plan
from moescope.planning.request import OutputFormat, PlanRequest
from moescope.schemas.errors import UsageError

_NO_WIDTH: Final = 0
"""Only text has one."""


@dataclass(frozen=True, slots=True, eq=False)
class PlanFile:
    """One file, or why there is none.

    Attributes:
        text: its content; empty where the engine could not be served from the plan.
        refusal: the reason then.
        plan: what it was made of; None where there is no such plan.
    """

    text: str
    refusal: str
    plan: PlanResult | None


@dataclass(frozen=True, slots=True, eq=False)
class PlannedFiles:
    """A plan and its files.

    Attributes:
        plan: what ``moescope plan`` prints.
        files: by format, all but ``text``.
    """

    plan: PlanResult
    files: Mapping[OutputFormat, PlanFile]


def make_files(load: PlanLoad, request: PlanRequest, progress: Progress) -> PlannedFiles:
    """Plan, weigh the plan, and write it in each format.

    Engines need every slot filled, so their plan is one of its own; it is not weighed again.

    Args:
        load: of one window or several.
        request: what is asked of the plan; its format does not matter.
        progress: see :func:`~moescope.planning.make.make_plan`.

    Raises:
        UsageError: rules that no plan can keep, or something that must be said and is not.
    """
    plan = make_plan(load, replace(request, output_format=OutputFormat.JSON), progress)
    files = {OutputFormat.JSON: PlanFile(render_plan(plan, OutputFormat.JSON, _NO_WIDTH), "", plan)}
    engines = [one for one in OutputFormat if one.is_engine]
    try:
        of_engine = make_plan(
            load, replace(request, output_format=engines[0]), _renamed(progress), is_weighed=False
        )
    except UsageError as error:
        return PlannedFiles(plan, files | {one: PlanFile("", str(error), None) for one in engines})
    return PlannedFiles(plan, files | {one: _render(of_engine, one) for one in engines})


def _render(plan: PlanResult, engine: OutputFormat) -> PlanFile:
    try:
        return PlanFile(render_plan(plan, engine, _NO_WIDTH), "", plan)
    except UsageError as error:
        return PlanFile("", str(error), plan)


def _renamed(progress: Progress) -> Progress:
    return lambda what, done, total: progress(f"{what} for engines", done, total)
