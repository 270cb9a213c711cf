"""A store to read the sums from, tiny models, and vLLM in processes of its own."""

import importlib.util
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from moescope.schemas.attributes import COMPONENT, ENCODING
from tests.server_process import ServerProcess

HERE = Path(__file__).parent
# The server has an environment of its own. Not a setting: it must not be there for moescope to read.
CORE_PYTHON = os.environ.pop("MOESCOPE_CORE_PYTHON", sys.executable)

# Where no engine is installed there is nothing here to collect, let alone to run.
collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py"]

# A layer index, a phase: its counts by expert.
Sums = dict[tuple[int, str], list[int]]


class Store:
    """Where the engines report to, and what SQL says has arrived."""

    def __init__(self, server):
        self.server = server
        # Of one protocol each, so that both are seen: what runs in this process, and what does not.
        self.environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        }
        self.http_environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.http_port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }

    def sums(self, service) -> Sums:
        """Activations by layer and phase, of those that have any."""
        rows = self.server.sql(
            "SELECT layer, phase, groupArray(activations) FROM ("
            "SELECT layer, phase, expert, sum(activations) AS activations FROM expert_activations_per_minute "
            f"WHERE service = '{service}' GROUP BY ALL ORDER BY ALL"
            ") GROUP BY ALL HAVING sum(activations) > 0"
        )
        return {(int(layer), phase): json.loads(counts) for layer, phase, counts in rows}

    def tokens(self, service) -> dict[str, int]:
        """Token rows by phase, or by why they are excluded."""
        rows = self.server.sql(
            "SELECT if(excluded = 'none', phase, excluded), sum(tokens) FROM token_count "
            f"WHERE service = '{service}' GROUP BY ALL HAVING sum(tokens) > 0"
        )
        return {key: int(count) for key, count in rows}

    def health(self, service) -> dict[str, int | str]:
        """What the store thinks of the reports of one service's ranks."""
        rows = self.server.sql(
            "SELECT expected_assignments, missing_assignments, state FROM telemetry_health "
            f"WHERE service = '{service}' AND component = 'rank'"
        )
        return [(int(expected), int(missing), state) for expected, missing, state in rows]

    def distributions(self, service) -> dict[str, tuple[int, float]]:
        """How many values of each metric that arrived as a plain histogram, and their sum."""
        rows = self.server.sql(
            "SELECT MetricName, sum(Count), sum(Sum) FROM otel_metrics_histogram "
            f"WHERE ServiceName = '{service}' AND NOT mapContains(Attributes, '{ENCODING}') GROUP BY ALL"
        )
        return {name: (int(count), float(total)) for name, count, total in rows}

    def counters(self, service, metric, attribute) -> dict[str, float]:
        """Sums of a counter by one of its attributes."""
        rows = self.server.sql(
            f"SELECT Attributes['{attribute}'], sum(Value) FROM otel_metrics_sum "
            f"WHERE ServiceName = '{service}' AND MetricName = '{metric}' AND IsMonotonic GROUP BY ALL"
        )
        return {key: float(total) for key, total in rows if float(total)}

    def states(self, service, metric, attribute="") -> dict[str, list[float]]:
        """What a state was, window by window, by one of its attributes."""
        rows = self.server.sql(
            f"SELECT Attributes['{attribute}'], groupArray(Value) FROM ("
            "SELECT Attributes, Value FROM otel_metrics_sum "
            f"WHERE ServiceName = '{service}' AND MetricName = '{metric}' AND NOT IsMonotonic "
            "ORDER BY TimeUnix) GROUP BY ALL"
        )
        return {key: json.loads(values) for key, values in rows}

    def resources(self, service, component) -> list[dict[str, str]]:
        """Who reported as such a component: the resource attributes of each instance."""
        rows = self.server.sql(
            "SELECT DISTINCT toJSONString(ResourceAttributes) FROM otel_metrics_sum "
            f"WHERE ServiceName = '{service}' AND ResourceAttributes['{COMPONENT}'] = '{component}'"
        )
        return [json.loads(text) for (text,) in rows]


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """One server for every engine; each run reports as a service of its own."""
    server = ServerProcess(tmp_path_factory.mktemp("store"), CORE_PYTHON).start()
    yield Store(server)
    server.stop()


@pytest.fixture
def service(request):
    """A deployment's name that no other test uses."""
    return f"{request.node.name[:60]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def tiny_qwen3_moe(tmp_path_factory):
    """A random Qwen3-MoE of four layers, the second dense, with a tokenizer of 512 words."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3MoeConfig, Qwen3MoeForCausalLM

    torch.manual_seed(13)
    config = Qwen3MoeConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=64,
        moe_intermediate_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=16,
        num_experts_per_tok=4,
        max_position_embeddings=512,
        mlp_only_layers=[1],
    )
    folder = tmp_path_factory.mktemp("tiny") / "tiny-qwen3-moe"
    model = Qwen3MoeForCausalLM(config)
    for layer in (0, 2, 3):
        # Zeros, as a new router has them, would choose the same experts for every token.
        torch.nn.init.normal_(model.model.layers[layer].mlp.gate.weight, std=0.3)
    model.to(torch.bfloat16).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(512)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", eos_token="w1").save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_qwen3_next(tmp_path_factory):
    """A random Qwen3-Next: three layers of gated delta nets, one of full attention, all MoE.

    As small as vLLM's kernels take it; keys and values are large beside a state, so that blocks are short.
    """
    import torch
    from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

    torch.manual_seed(23)
    config = Qwen3NextConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=64,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
        num_hidden_layers=4,
        full_attention_interval=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=64,
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        linear_key_head_dim=64,
        linear_value_head_dim=64,
        num_experts=16,
        num_experts_per_tok=4,
        max_position_embeddings=512,
    )
    folder = tmp_path_factory.mktemp("tiny") / "tiny-qwen3-next"
    Qwen3NextForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def plugin_path(tmp_path_factory):
    """A folder for PYTHONPATH: the recounting plug-in, and the name that the CPU build's wheel lacks."""
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "recount_plugin.py").symlink_to(HERE / "recount" / "recount_plugin.py")
    for name, version, entry in (
        ("recount", "0", "[vllm.general_plugins]\nrecount = recount_plugin:load\n"),
        ("vllm", "0.32.0+cpu", ""),
    ):
        distribution = folder / f"{name}-{version}.dist-info"
        distribution.mkdir()
        (distribution / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (distribution / "entry_points.txt").write_text(entry)
    return folder


class Run:
    """One run of vLLM: its environment, its output, and what its routers returned."""

    def __init__(self, folder, environ):
        self.environ = environ
        self.folder = folder
        self.log = folder / "log.txt"
        self.recount_file = folder / "recount.json"
        self.result_file = folder / "result.json"
        self.environ |= {"RECOUNT_FILE": str(self.recount_file), "RESULT_FILE": str(self.result_file)}

    def start(self, *command):
        with self.log.open("w") as log:
            return subprocess.Popen(
                [str(part) for part in command],
                env=self.environ,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def generate(self, model, rounds, program="generate.py", **options):
        """Run the offline engine to its normal end; returns what it says of its tokens."""
        program = HERE / "programs" / program
        process = self.start(sys.executable, program, model, json.dumps(options), json.dumps(rounds))
        try:
            assert process.wait(240) == 0, self.log.read_text()[-5000:]
        finally:
            process.kill()
        return json.loads(self.result_file.read_text())

    @property
    def recount(self):
        return json.loads(self.recount_file.read_text())

    @property
    def expected_sums(self) -> Sums:
        return {(layer, phase): counts for layer, phase, counts in self.recount["counts"]}

    def said_by_moescope(self):
        return [line for line in self.log.read_text().splitlines() if "moescope" in line]


@pytest.fixture(scope="session")
def make_run(plugin_path, store):
    """Makes runs that report to the store: ``make_run(folder, service)``."""

    def make(folder, service):
        return Run(
            folder,
            {
                **{k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "MOESCOPE_"))},
                **store.environ,
                "OTEL_SERVICE_NAME": service,
                # Before what this process was told to take, so that the same tree is tested everywhere.
                "PYTHONPATH": os.pathsep.join(filter(None, [str(plugin_path), os.environ.get("PYTHONPATH")])),
                "VLLM_CPU_KVCACHE_SPACE": "1",
                # Of its own: code that another run has compiled is another run's.
                "VLLM_CACHE_ROOT": str(folder / "cache"),
                "VLLM_NO_USAGE_STATS": "1",
            },
        )

    return make


@pytest.fixture
def run(tmp_path, make_run, service):
    """A run that reports to the store as ``service``."""
    return make_run(tmp_path, service)


@pytest.fixture
def serve(monkeypatch):
    """Publish a deployment's arguments to SGLang, and this process's rank in it, while a test runs."""
    import torch

    from tests.engines.sglang_engine import Deployment

    # What torch's CPU module lacks of the device modules that SGLang knows.
    monkeypatch.setattr(torch.cpu, "is_current_stream_capturing", lambda: False, raising=False)
    monkeypatch.setattr(torch.cpu, "empty_cache", lambda: None, raising=False)
    monkeypatch.setattr(torch, "get_device_module", lambda *_: torch.cpu)
    deployment = Deployment(monkeypatch)
    yield deployment.publish
    deployment.end()


@pytest.fixture
def hooked():
    """A hook for SGLang, and what it reports."""
    from tests.engines.sglang_engine import Hooked

    made = Hooked()
    yield made
    made.close()
