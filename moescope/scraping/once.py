"""Read pages once, for a look at what would be reported; nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moescope.collector.scrape.page import Page, parse_page
from moescope.collector.scrape.rows import Counted, EngineTable, Observed, State
from moescope.collector.scrape.tables import choose_table
from moescope.schemas.errors import PageError
from moescope.scraping.fetch import Address, fetch
from moescope.scraping.target import ScrapePlan, identify


def read_once(addresses: Sequence[Address], plan: ScrapePlan) -> dict[str, Any]:
    """Read every page once and send nothing.

    Returns:
        ``{"pages": [{"url", "engine", "index", "service", "model", "instance", "ep_rank", "role", "remarks",
        "values"}], "errors": [{"url", "reason", "message"}]}``. A value is ``{"metric", "unit",
        "attributes"}`` with ``value``, or with ``count``, ``sum`` and ``bucket_counts``; totals are as the
        page has them.
    """
    pages: list[dict[str, Any]] = []
    errors: list[dict[str, str]] = []
    for address in addresses:
        try:
            pages += _read(address, plan)
        except PageError as error:
            errors.append({"url": address.url, "reason": error.reason, "message": str(error)})
    return {"pages": pages, "errors": errors}


def _read(address: Address, plan: ScrapePlan) -> list[dict[str, Any]]:
    body = fetch(address, plan.timeout_seconds)
    page = parse_page(body.text, body.content_type)
    table = choose_table(page, plan.engine)
    parts = table.engines(page)
    answer = []
    for index, part in parts.items():
        who = identify(address, plan, table, parts, index, start_id="once")
        answer.append(
            {
                "url": address.url,
                "engine": table.engine,
                "index": index,
                "service": who.service,
                "model": who.model,
                "instance": who.instance,
                "ep_rank": who.grid.ep_rank,
                "role": who.role.value,
                "remarks": list(table.remarks(part)),
                "values": [_value(item) for item in _everything(table, part)],
            }
        )
    return answer


def _everything(table: EngineTable, page: Page) -> list[Counted | Observed | State]:
    return [*table.totals(page), *table.now(page)]


def _value(item: Counted | Observed | State) -> dict[str, Any]:
    value: dict[str, Any] = {
        "metric": item.metric.name,
        "unit": item.metric.unit,
        "attributes": dict(item.attributes),
    }
    if isinstance(item, Observed):
        counts = item.bucket_counts.tolist()
        return {**value, "count": sum(counts), "sum": item.sum, "bucket_counts": counts}
    return {**value, "value": item.value}


def as_text(answer: dict[str, Any]) -> str:
    """The answer of :func:`read_once` for a person."""
    lines: list[str] = []
    for page in answer["pages"]:
        index = f" engine {page['index']}" if page["index"] else ""
        lines.append(f"{page['url']}{index}: {page['engine']}, service {page['service']}")
        for value in page["values"]:
            attributes = ", ".join(
                str(text) for name, text in value["attributes"].items() if not name.startswith("gen_ai.")
            )
            amount = (
                f"{value['count']} observations, mean {value['sum'] / value['count']:.6g} {value['unit']}"
                if value.get("count")
                else f"{value.get('value', 0):.12g} {value['unit']}"
            )
            lines.append(f"  {value['metric'] + (f' ({attributes})' if attributes else ''):<52} {amount}")
        lines += [f"  note: {remark}" for remark in page["remarks"]]
    lines += [f"{error['url']}: {error['message']}" for error in answer["errors"]]
    return "\n".join(lines)
