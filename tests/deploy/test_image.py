"""The image's recipe: it gets every file that the package is made of, and no other."""

import re
import tomllib

from tests.deploy.grafana_boards import DEPLOY

ROOT = DEPLOY.parent
RECIPE = (DEPLOY / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def allowed() -> set[str]:
    lines = [line.strip() for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()]
    assert lines[1] == "*", "nothing goes in that is not named"
    return {line.removeprefix("!") for line in lines if line.startswith("!")}


def test_everything_that_the_package_links_to_goes_in():
    needed = {"moescope", "pyproject.toml", "constraints.txt", PROJECT["readme"], *PROJECT["license-files"]}
    rooms = {path.resolve() for path in (ROOT / "moescope").iterdir() if path.is_symlink()}
    needed |= {str(path.relative_to(ROOT)) for path in rooms}
    for room in rooms:
        links = [path.resolve() for path in room.rglob("*") if path.is_symlink()]
        needed |= {str(path.relative_to(ROOT)) for path in links}
    assert needed == allowed()


def test_recipe_installs_extras_that_exist_and_runs_without_root():
    [extras] = re.findall(r"'\.\[([\w,]+)\]'", RECIPE)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    assert re.findall(r"^USER (\S+)", RECIPE, re.MULTILINE) == ["10001:10001"]
    assert 'ENTRYPOINT ["moescope"]' in RECIPE
    assert "moescope" in PROJECT["scripts"]
    bases = re.findall(r"^FROM (\S+)", RECIPE, re.MULTILINE)
    assert all(re.search(r":\d+\.\d+", base) for base in bases)
