"""ClickHouse's own JavaScript client, from npm, under node."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.server.otlp_requests import expert_request

VERSION = "1.23.1"
COUNTS = np.array([[13, 0, 23], [0, 79, 1]])
PROGRAM = """
const { createClient } = require('@clickhouse/client');
const client = createClient({ url: process.argv[2], compression: { response: true } });
const failure = async (promise) => {
  try { await promise; return null } catch (e) { return [e.code, e.type] }
};
(async () => {
  const rows = await client.query({
    query: `SELECT layer, expert, sum(activations) AS n FROM expert_activations_per_minute
            WHERE service = {service:String} GROUP BY ALL HAVING n > 0 ORDER BY ALL`,
    query_params: { service: 'javascript' },
    format: 'JSONEachRow',
  });
  const streamed = await client.query({ query: 'SELECT number FROM numbers(5000)', format: 'CSV' });
  let lines = 0;
  for await (const batch of streamed.stream()) { lines += batch.length }
  const settings = await client.query({
    query: "SELECT getSetting('max_threads') AS n", format: 'JSON', clickhouse_settings: { max_threads: 1 },
  });
  console.log(JSON.stringify({
    ping: (await client.ping()).success,
    rows: await rows.json(),
    summary: (await client.exec({ query: 'SELECT 1' })).summary !== undefined,
    lines,
    threads: (await settings.json()).data[0].n,
    unknown: await failure(client.query({ query: 'SELECT * FROM nowhere' })),
    create: await failure(client.command({ query: 'CREATE TABLE t (a UInt8) ENGINE = Memory' })),
    insert: await failure(client.insert({
      table: 'otel_metrics_sum', values: [{ Value: 1 }], format: 'JSONEachRow',
    })),
    file: await failure(client.query({ query: "SELECT file('/etc/hostname')" })),
    readonly: await failure(client.command({ query: 'SET readonly = 0' })),
  }));
  await client.close();
})();
"""


@pytest.fixture(scope="session")
def client_folder() -> Path:
    """Where the client is installed; kept between runs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "moescope-tests"
    folder = cache / f"clickhouse-client-{VERSION}"
    if not (folder / "node_modules" / "@clickhouse" / "client" / "package.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [
                "npm",
                "install",
                "--no-audit",
                "--no-fund",
                "--prefix",
                folder,
                f"@clickhouse/client@{VERSION}",
            ],
            check=True,
            timeout=100,
        )
    return folder


@pytest.fixture(scope="module")
def answers(server, client_folder):
    server.export(expert_request("javascript", COUNTS))
    program = client_folder / "program.cjs"
    program.write_text(PROGRAM)
    done = subprocess.run(
        ["node", program, f"http://127.0.0.1:{server.ports.sql}"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return json.loads(done.stdout)


@pytest.mark.tools
def test_counts_are_what_was_sent(answers):
    assert [[row["layer"], row["expert"], int(row["n"])] for row in answers["rows"]] == [
        *([1, 0, 13], [1, 2, 23]),
        *([2, 1, 79], [2, 2, 1]),
    ]


@pytest.mark.tools
def test_ping_stream_settings_and_summary_work(answers):
    assert answers["ping"] is True
    assert answers["lines"] == 5000
    assert int(answers["threads"]) == 1
    assert answers["summary"] is True


@pytest.mark.tools
def test_errors_have_clickhouses_code_and_type(answers):
    assert answers["unknown"] == ["60", "UNKNOWN_TABLE"]


@pytest.mark.tools
@pytest.mark.parametrize("attempt", ["create", "insert", "file", "readonly"])
def test_writes_are_refused_with_clickhouses_own_error(answers, attempt):
    assert answers[attempt] == ["164", "READONLY"]
