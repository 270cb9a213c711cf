"""Pages of real engines, and what a meter was told of them."""

from pathlib import Path

import pytest

from moescope.collector.scrape.follow import Follower
from moescope.collector.scrape.page import Page, parse_page
from moescope.collector.scrape.tables import choose_table
from moescope.collector.tally import Tally
from moescope.schemas.records import Distribution

PAGES = Path(__file__).parent / "pages"


def page(name: str) -> Page:
    return parse_page((PAGES / f"{name}.prom").read_text())


class Told:
    """What the meters of one scraped page were told, by engine index."""

    def __init__(self) -> None:
        self.tallies: dict[str, Tally] = {}
        self.followers: dict[str, Follower] = {}

    def follow(self, *pages: Page) -> "Told":
        for one in pages:
            table = choose_table(one)
            for index, part in table.engines(one).items():
                if index not in self.followers:
                    self.tallies[index] = Tally()
                    self.followers[index] = Follower(
                        table, self.tallies[index], is_new=len(self.followers) > 0
                    )
                self.followers[index].follow(part)
        return self

    def window(self, index: str = "0") -> dict:
        """Values by metric name and attribute values; (count, sum) of a distribution."""
        window = {}
        for record in self.tallies[index].close_window(snapshot=True):
            words = [v for k, v in record.attributes.items() if not k.startswith("gen_ai.") and v != "none"]
            key = " ".join([record.metric.name, *words])
            window[key] = (
                (int(record.bucket_counts.sum()), record.sum)
                if isinstance(record, Distribution)
                else record.value
            )
        return window


@pytest.fixture
def told() -> Told:
    return Told()
