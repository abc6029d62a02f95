"""One set of dependencies, in pyproject.toml, constraints.txt and environment.yml alike."""

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import kvlab

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def requirements(*extras: str) -> list[Requirement]:
    """The direct dependencies of the package and of these extras, without kvlab itself."""
    lines = PROJECT["dependencies"] + [line for extra in extras for line in EXTRAS[extra]]
    found = [Requirement(line) for line in lines]
    return [requirement for requirement in found if requirement.name != "kvlab"]


def constraints() -> dict[str, str]:
    """constraints.txt as package -> version."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert all(len(pin) == 2 for pin in pins), "every line is NAME==VERSION"
    return {canonicalize_name(name): version for name, version in pins}


def conda() -> tuple[list[str], list[str]]:
    """environment.yml's own dependencies and the lines that it hands to pip."""
    content = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert content["name"] == "kvlab"
    own = [entry for entry in content["dependencies"] if isinstance(entry, str)]
    (pip,) = [entry["pip"] for entry in content["dependencies"] if isinstance(entry, dict)]
    return own, pip


def test_environment_yml_has_the_dependencies_of_the_package_its_lab_and_its_server() -> None:
    _, pip = conda()
    found = {str(Requirement(line)) for line in pip if not line.startswith("-")}
    assert found == {str(requirement) for requirement in requirements("lab", "serve")}


def test_environment_yml_installs_this_clone_in_the_constrained_versions() -> None:
    own, pip = conda()
    (python,) = [line.removeprefix("python=") for line in own if line.startswith("python=")]
    assert python in SpecifierSet(PROJECT["requires-python"])
    assert "-e ." in pip
    assert "-c constraints.txt" in pip


def test_constraints_pin_every_direct_dependency_within_its_range() -> None:
    pins = constraints()
    for requirement in requirements(*EXTRAS):
        name = canonicalize_name(requirement.name)
        assert name in pins, f"constraints.txt has no {name}"
        assert pins[name] in requirement.specifier, f"{name} {pins[name]} is outside {requirement}"


def test_constraints_fit_cpu_and_cuda_builds_of_torch_alike() -> None:
    pins = constraints()
    assert pins["torch"] == "2.13.0"
    assert pins["triton"] == "3.7.1"  # the one that torch 2.13.0 asks for
    assert not [name for name in pins if name.startswith(("nvidia", "cuda"))]
    assert not [name for name, version in pins.items() if "+" in version]


def test_dev_holds_every_other_extra() -> None:
    (own,) = [Requirement(line) for line in EXTRAS["dev"] if line.startswith("kvlab[")]
    assert own.extras == set(EXTRAS) - {"dev"}


def test_version_is_the_same_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", changelog, flags=re.MULTILINE)
    assert "version" in PROJECT["dynamic"]  # read from kvlab/__init__.py
    assert str(citation["version"]) == kvlab.__version__
    assert newest and newest[1] == kvlab.__version__


def test_citation_names_what_its_format_requires() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "license"} <= set(citation)
    assert all("name" in author for author in citation["authors"])
