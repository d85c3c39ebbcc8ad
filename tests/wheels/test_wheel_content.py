"""What lies in the wheels and the source distributions, and what they say about themselves."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import tomllib
import zipfile
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.wheels

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = sorted(p.parent for d in ("packages", "apps") for p in ROOT.glob(f"{d}/*/pyproject.toml"))
each = pytest.mark.parametrize("folder", FOLDERS, ids=[folder.name for folder in FOLDERS])


def manifest(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def plain(requirement: Requirement) -> str:
    requirement.name = canonicalize_name(requirement.name)
    return str(requirement)


class Exact(ConfigParser):
    """Keeps the case of names."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def content(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_no_file_is_in_two_wheels_and_none_outside_of_its_portion(wheels: Any) -> None:
    assert set(wheels.by_name) == {folder.name for folder in FOLDERS}
    owners: dict[str, str] = {}
    for name, path in wheels.by_name.items():
        portion = f"dsh/{name.removeprefix('dsh-').replace('-', '_')}/"
        for file in content(path):
            assert file.startswith(portion) or ".dist-info/" in file, (name, file)
            assert owners.setdefault(file, name) == name


@each
def test_a_wheel_holds_its_sources_and_nothing_else(folder: Path, wheels: Any) -> None:
    wheel = wheels.by_name[folder.name]
    files = content(wheel)
    version = manifest(folder)["version"]
    info = f"{folder.name.replace('-', '_')}-{version}.dist-info"
    source = folder / "src"
    expected = {
        str(path.relative_to(source)): path.read_bytes()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name: data for name, data in files.items() if not name.startswith(info)} == expected
    assert any(name.endswith("/py.typed") for name in files)
    names = {name.removeprefix(f"{info}/") for name in files if name.startswith(info)}
    assert names - {"entry_points.txt"} == {"METADATA", "WHEEL", "RECORD", "licenses/LICENSE"}
    assert files[f"{info}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert b"Tag: py3-none-any" in files[f"{info}/WHEEL"]


@each
def test_the_record_of_a_wheel_is_right(folder: Path, wheels: Any) -> None:
    files = content(wheels.by_name[folder.name])
    (record,) = [name for name in files if name.endswith(".dist-info/RECORD")]
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(files[record].decode()))}
    assert set(rows) == set(files)
    for name, (digest, size) in rows.items():
        if name == record:
            continue
        found = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=")
        assert (digest, int(size)) == (f"sha256={found.decode()}", len(files[name])), name


@each
def test_the_metadata_is_valid_and_says_what_the_manifest_says(folder: Path, wheels: Any) -> None:
    files = content(wheels.by_name[folder.name])
    (raw,) = [data for name, data in files.items() if name.endswith(".dist-info/METADATA")]
    metadata = Metadata.from_email(raw, validate=True)
    project = manifest(folder)
    assert (metadata.name, str(metadata.version)) == (project["name"], project["version"])
    assert metadata.summary == project["description"]
    assert str(metadata.requires_python) == project["requires-python"] == ">=3.11"
    assert metadata.license_expression == "MIT"
    assert metadata.license_files == ["LICENSE"]
    found = metadata.requires_dist or []
    markers = {item: str(item.marker or "") for item in found}
    assert {plain(item) for item in found if "extra ==" not in markers[item]} == {
        plain(Requirement(line)) for line in project["dependencies"]
    }
    extras = {
        name for marker in markers.values() for name in re.findall(r'extra == "([^"]+)"', marker)
    }
    assert extras == set(project.get("optional-dependencies", {}))
    assert metadata.description_content_type == "text/markdown"
    assert metadata.description == (folder / "README.md").read_text(encoding="utf-8")


@each
def test_the_entry_points_are_those_of_the_manifest(folder: Path, wheels: Any) -> None:
    project = manifest(folder)
    declared: dict[str, dict[str, str]] = {**project.get("entry-points", {})}
    if "scripts" in project:
        declared["console_scripts"] = project["scripts"]
    files = content(wheels.by_name[folder.name])
    parser = Exact(delimiters=("=",))
    for name, data in files.items():
        if name.endswith(".dist-info/entry_points.txt"):
            parser.read_string(data.decode("utf-8"))
    assert {group: dict(parser[group]) for group in parser.sections()} == declared


@each
def test_a_source_distribution_builds_the_same_wheel(
    folder: Path,
    wheels: Any,
    sdists: dict[str, Path],
    build_wheel: Callable[[Path, Path], Path],
    tmp_path: Path,
) -> None:
    again = build_wheel(sdists[folder.name], tmp_path / "dist")
    assert again.name == wheels.by_name[folder.name].name
    assert content(again) == content(wheels.by_name[folder.name])
