"""What the files beside the code say of the project agrees with it."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
import yaml
from packaging.utils import canonicalize_name

import tuner

ROOT = Path(__file__).parents[2]


def test_the_citation_names_this_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == tuner.__version__


def test_the_changelog_has_a_section_for_this_version() -> None:
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert any(line.startswith((f"## [{tuner.__version__}]", "## [Unreleased]")) for line in headings)


@pytest.mark.parametrize("form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda p: p.name)
def test_an_issue_form_is_one_that_github_shows(form: Path) -> None:
    content = yaml.safe_load(form.read_text())
    assert content["name"]
    assert content["description"]
    fields = [field for field in content["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields) > 0
    assert all(field["attributes"]["label"] for field in fields)


def test_ci_on_github_runs_what_runs_here() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert {"run": ".ci/run"} in workflow["jobs"]["everything"]["steps"]


def test_every_extra_that_a_page_names_is_found_by_any_pip() -> None:
    """pip before 23.3 looks for an extra as it is typed, and the wheel has its normal form."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = set(setup["options.extras_require"])
    assert {name for name in extras if name != canonicalize_name(name)} == set()
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    named = [name for page in pages for name in re.findall(r"(?:tuner|'\.)\[([\w,-]+)\]", page.read_text())]
    assert len(named) >= 8
    assert {name for group in named for name in group.split(",")} <= extras
