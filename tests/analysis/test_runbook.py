"""Sections of the runbook, and the statements in them."""

from moescope.analysis.runbook import nearest, read_runbook

TEXT = """# Runbook

One heading for each alert, as [here](alertmanager/alertmanager.yml).

## RankSilent

**Meaning.** See [settings](../docs/settings.md) or [Prometheus](https://prometheus.io/).

```sql
SELECT 13 AS n
FROM gpu WHERE service = 'kimi-k3'
```

### Not a section

```sql
SELECT 79
```

## MemoryPoolFull

Nothing to ask.
"""


def test_sections_are_found_by_the_name_of_their_alert():
    sections = read_runbook(TEXT)
    assert list(sections) == ["RankSilent", "MemoryPoolFull"]
    assert sections["MemoryPoolFull"].text == "Nothing to ask."


def test_statements_can_be_run_as_they_stand():
    statements = read_runbook(TEXT)["RankSilent"].statements
    assert statements == ("SELECT 13 AS n\nFROM gpu WHERE service = 'kimi-k3'", "SELECT 79")


def test_links_to_files_are_words_on_a_page():
    text = read_runbook(TEXT)["RankSilent"].text
    assert "See settings or [Prometheus](https://prometheus.io/)." in text


def test_statements_name_the_deployment_that_the_alert_is_about():
    section = read_runbook(TEXT)["RankSilent"].for_service("fleet-7")
    assert "service = 'fleet-7'" in section.statements[0]


def test_misspelt_name_has_a_near_one():
    sections = read_runbook(TEXT)
    assert nearest("RankSilnet", sections) == "RankSilent"
    assert nearest("x", sections) is None
