"""A store to read the sums from, tiny models, and vLLM in processes of its own."""

import importlib.util
import json
import os
import subprocess
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent

# Where no engine is installed there is nothing here to collect, let alone to run.
collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py"]

# A layer index, a phase: its counts by expert.
Sums = dict[tuple[int, str], list[int]]


class Store:
    """Where the engines report to, and what arrived."""

    def __init__(self):
        self.sums_of = {}
        self.tokens_of = {}
        store = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                store.take(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.server.server_port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }

    def take(self, body):
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        def plain(attributes):
            return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in attributes}

        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            service = plain(resource.resource.attributes)["service.name"]
            sums, tokens = self.sums_of.setdefault(service, {}), self.tokens_of.setdefault(service, {})
            for metric in (m for scope in resource.scope_metrics for m in scope.metrics):
                if metric.name == "moe.expert.tokens":
                    for point in metric.histogram.data_points:
                        a = plain(point.attributes)
                        key = (a["moe.layer"], a["moe.phase"])
                        sums[key] = sums.get(key, 0) + np.array(point.bucket_counts)
                if metric.name == "moe.tokens":
                    for point in metric.sum.data_points:
                        a = plain(point.attributes)
                        key = a.get("moe.phase") or a["moe.excluded"]
                        tokens[key] = tokens.get(key, 0) + point.as_int

    def sums(self, service) -> Sums:
        """Activations by layer and phase."""
        sums = self.sums_of.get(service, {})
        return {key: counts.tolist() for key, counts in sums.items() if counts.any()}

    def tokens(self, service) -> dict[str, int]:
        """Token rows by phase, or by why they are excluded."""
        return {key: count for key, count in self.tokens_of.get(service, {}).items() if count}


@pytest.fixture(scope="session")
def store():
    """One store for every engine; each run reports as a service of its own."""
    return Store()


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

    def generate(self, model, rounds, **options):
        """Run the offline engine to its normal end; returns what it says of its tokens."""
        program = HERE / "programs" / "generate.py"
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


@pytest.fixture
def run(tmp_path, plugin_path, store, service):
    """A run that reports to the store as ``service``."""
    return Run(
        tmp_path,
        {
            **{k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "MOESCOPE_"))},
            **store.environ,
            "OTEL_SERVICE_NAME": service,
            "PYTHONPATH": str(plugin_path),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            # Of its own: code that another run has compiled is another run's.
            "VLLM_CACHE_ROOT": str(tmp_path / "cache"),
            "VLLM_NO_USAGE_STATS": "1",
        },
    )
