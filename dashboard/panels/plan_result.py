"""A plan that was made: what to do with it, what it changes, what it costs, and its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import streamlit as st

from moescope.analysis import words
from moescope.analysis.plan_advice import PlanVerdict
from moescope.analysis.plan_facts import list_facts
from moescope.analysis.plan_numbers import PlanNumbers, number_plan
from moescope.analysis.plan_result import PlanResult
from moescope.dashboard.export import show_figure
from moescope.dashboard.figures.replication import draw_heat, draw_memory, draw_moves, draw_ratios
from moescope.planning.files import PlanFile, PlannedFiles
from moescope.planning.output import say_next_step
from moescope.planning.question import PlanQuestion
from moescope.planning.request import OutputFormat


@dataclass(frozen=True, slots=True)
class _Download:
    """How a format is named, its file, and what kind of file that is."""

    name: str
    file: str
    mime: str = "application/json"


_DOWNLOADS: Final = {
    OutputFormat.VLLM: _Download("vLLM", "placement-vllm.json"),
    OutputFormat.SGLANG: _Download("SGLang", "placement-sglang.json"),
    OutputFormat.TRTLLM: _Download("TensorRT-LLM", "moe_load_balancer.yaml", "application/yaml"),
    OutputFormat.JSON: _Download("JSON", "plan.json"),
}
_ICONS: Final = {
    PlanVerdict.APPLY: ":green[:material/check_circle:]",
    PlanVerdict.LEAVE_IT: ":material/block:",
    PlanVerdict.ONLY_REPLICAS: ":orange[:material/content_copy:]",
}
_UNKNOWN: Final = "–"


def show_plan(made: PlannedFiles, question: PlanQuestion) -> None:
    """Draw a plan, the advice first."""
    plan = made.plan
    verdict, _, reason = plan.advice.sentence.partition(": ")
    st.subheader(f"{_ICONS[plan.advice.verdict]} {verdict}", anchor=False)
    st.markdown(f"{reason[:1].upper()}{reason[1:]}")
    st.caption(plan.source)
    _show_numbers(number_plan(plan))
    with st.container(border=True, gap="xsmall"):
        st.caption("Without colour is even: each rank computes the mean of its layer.")
        show_figure(
            draw_heat(plan),
            key="heat",
            name="plan-heat",
            alt="Load of every rank in every layer, now and with the plan, in multiples of the layer's mean.",
        )
        show_figure(
            draw_ratios(plan),
            key="ratios",
            name="plan-ratios",
            alt="Imbalance of each layer now, with the plan, and what no placement could go below.",
        )
    _show_costs(plan)
    _show_facts(plan)
    _show_files(made, question)


def _show_numbers(numbers: PlanNumbers) -> None:
    ratio, gain, moves, memory, safety = st.columns(5)
    ratio.metric(
        "Max / mean, this load",
        f"{numbers.ratio_before:.2f} → {numbers.ratio_after:.2f}",
        help="Mean of the layers on the load that was planned for; later traffic differs.",
    )
    ratio.caption(f"no placement goes below {numbers.bound:.2f}")
    tested = numbers.backtest
    gain.metric(
        "Gain, back-tested",
        _UNKNOWN if tested is None else f"{tested.net_gain:.2f}",
        help="Fall of max / mean in windows that the plan was not made from, beyond noise.",
    )
    if tested is None:
        gain.caption("takes counts of several windows")
    else:
        between = f"{tested.gain_low:.2f} … {tested.gain_high:.2f} in 90 % of windows; "
        gain.caption(f"{between if numbers.has_range else ''}{tested.verdict.value}")
    moves.metric(
        "Copies to move", words.integer(numbers.moved), help="Copies that ranks must receive, in all layers."
    )
    size = "" if numbers.moved_bytes is None else f", {words.si_bytes(numbers.moved_bytes)}"
    moves.caption(f"{words.percent(numbers.moved_share)} of the copies{size}")
    memory.metric(
        "Experts on a rank",
        _UNKNOWN if numbers.memory_after is None else words.si_bytes(numbers.memory_after),
        help="Memory of the copies on the fullest rank, all layers together.",
    )
    memory.caption(
        "their size is not reported"
        if numbers.memory_before is None
        else f"{words.si_bytes(numbers.memory_before)} now"
    )
    safety.metric(
        "Traffic with a second rank",
        words.percent(numbers.covered_after),
        help="Part of the traffic whose experts have copies on two ranks or more.",
    )
    safety.caption(f"{words.percent(numbers.covered_before)} now")


def _show_costs(plan: PlanResult) -> None:
    memory = draw_memory(plan)
    columns = st.columns(1 if memory is None else 2, gap="medium")
    with columns[0].container(border=True, gap="xsmall"):
        show_figure(
            draw_moves(plan), key="moves", name="plan-moves", alt="Copies that each rank must receive."
        )
    if memory is not None:
        with columns[1].container(border=True, gap="xsmall"):
            show_figure(
                memory,
                key="plan_memory",
                alt="Memory that experts take on each rank, now and with the plan.",
            )


def _show_facts(plan: PlanResult) -> None:
    st.markdown("\n".join(f"- **{name.capitalize()}:** {text}" for name, text in list_facts(plan)))


def _show_files(made: PlannedFiles, question: PlanQuestion) -> None:
    st.subheader("Take it along", anchor=False)
    tabs = st.tabs([one.name for one in _DOWNLOADS.values()])
    for tab, output_format in zip(tabs, _DOWNLOADS, strict=True):
        with tab:
            _show_file(made.files[output_format], output_format, question)


def _show_file(file: PlanFile, output_format: OutputFormat, question: PlanQuestion) -> None:
    download = _DOWNLOADS[output_format]
    if file.refusal or file.plan is None:
        st.info(f"No file for {download.name}: {file.refusal}", icon=":material/info:")
        return
    st.download_button(
        f"Download {download.file}",
        data=file.text,
        file_name=download.file,
        mime=download.mime,
        key=f"download_{output_format.value}",
        on_click="ignore",
        icon=":material/download:",
    )
    st.caption("The same file by the command line, against the same store (`MOESCOPE_DSN`):")
    st.code(question.command(output_format, download.file), language="bash", wrap_lines=True)
    start = say_next_step(file.plan, output_format, Path(download.file))
    if start:
        st.caption(f"Start {download.name} with it:")
        st.code(start, language="bash", wrap_lines=True)
