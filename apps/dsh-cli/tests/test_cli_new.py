"""`dsh new plugin`: whole projects that work, and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from dsh.cli._new._command import kit_beside
from dsh.cli._new._names import class_of

Cli = Any
KINDS = ("tool", "gate", "provider", "ui")
# of the contract suite of a provider, one case of each half stands for all; the wheel tests run it
SOME = {"provider": "prefix or exit_code or kill_right"}


def make(cli: Cli, name: str, kind: str, *options: str) -> Path:
    result = cli.run("new", "plugin", name, "--kind", kind, *options)
    assert result.code == 0, result.stderr
    assert result.stderr == ""
    return Path(cli.folder, name)


def manifest(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


def run_tests(cli: Cli, folder: Path, *options: str) -> str:
    known = cli.env.get("PYTHONPATH", "")
    path = os.pathsep.join(filter(None, [str(folder / "src"), known]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *options],
        cwd=folder,
        env={**cli.env, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_project_passes_its_own_tests(cli: Cli, kind: str) -> None:
    folder = make(cli, f"acme-{kind}", kind)
    options = ("-k", SOME[kind]) if kind in SOME else ()
    listed = run_tests(cli, folder, "-vv", *options)
    assert "[asyncio]" in listed
    assert "[trio]" in listed
    assert "skipped" not in listed


@pytest.mark.parametrize("kind", KINDS)
def test_a_project_is_whole(cli: Cli, kind: str) -> None:
    result = cli.run("new", "plugin", "acme-thing", "--kind", kind)
    folder = cli.folder / "acme-thing"
    written = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert {
        ".gitignore",
        "README.md",
        "pyproject.toml",
        "src/acme_thing/__init__.py",
        "src/acme_thing/_plugin.py",
        "src/acme_thing/py.typed",
        "tests/test_acme_thing.py",
    } <= written
    assert written == {line.strip() for line in result.stdout.splitlines()} & written
    for name in written:
        text = (folder / name).read_text(encoding="utf-8")
        assert text == "" or (text.endswith("\n") and not text.endswith("\n\n")), name
        assert "$cls" not in text
        assert "$module" not in text
    assert os.listdir(cli.folder) == ["acme-thing"]
    assert os.listdir(cli.home) == []
    assert folder.stat().st_mode & 0o777 == (folder / "src").stat().st_mode & 0o777 != 0o700


@pytest.mark.parametrize("kind", KINDS)
def test_the_manifest_offers_the_plugin(cli: Cli, kind: str) -> None:
    project = manifest(make(cli, "acme-thing", kind))["project"]
    groups = project["entry-points"]
    assert groups["dsh.plugins"] == {"acme-thing": "acme_thing:AcmeThing"}
    seams = {name: points for name, points in groups.items() if name.startswith("dsh.seam.")}
    provided = {"dsh.seam.bash": groups["dsh.plugins"]}
    assert seams == (provided if kind == "provider" else {})
    assert (project["name"], project["version"]) == ("acme-thing", "0.1.0")
    for need in [*project["dependencies"], project["optional-dependencies"]["test"][0]]:
        assert re.fullmatch(r"[a-z\[\]-]+>=[\d.]+,<[\d.]+", need), f"{need}: a floor and a bound"


def test_a_project_needs_what_its_code_imports(cli: Cli) -> None:
    for kind in KINDS:
        folder = make(cli, f"acme-{kind}", kind)
        code = "".join(path.read_text() for path in folder.glob("src/*/*.py"))
        needs = {need.partition(">=")[0] for need in manifest(folder)["project"]["dependencies"]}
        modules = {line.split()[1] for line in code.splitlines() if line.startswith("from ")}
        imported = {"-".join(name.replace("_", "-").split(".")[:2]) for name in modules}
        ours = {name for name in imported if name.startswith(("dsh-", "pydantic"))}
        assert needs == ours, kind


def test_what_is_said_of_it_survives_its_way_into_the_manifest(cli: Cli) -> None:
    said = r'Says "$$name", \n and $cls — 100 %'
    who = "Zoë O'Neill <zoe@example.org>"
    folder = make(cli, "acme-thing", "tool", "--description", said, "--author", who)
    project = manifest(folder)["project"]
    assert project["description"] == said
    assert project["authors"] == [{"name": "Zoë O'Neill", "email": "zoe@example.org"}]
    assert said in (folder / "README.md").read_text(encoding="utf-8")
    other = manifest(make(cli, "acme-other", "tool", "--author", "Zoë"))["project"]
    assert other["authors"] == [{"name": "Zoë"}]
    assert "authors" not in manifest(make(cli, "acme-third", "tool"))["project"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Acme_Words", "write it 'acme-words'"),
        ("acmeWords", "write it 'acme-words'"),
        ("7up", "beginning with a letter"),
        ("../up", "write it 'up'"),
        ("a--b", "write it 'a-b'"),
        ("", "small letters"),
        ("ünder", "small letters"),
        ("x" * 41, "40 characters at most"),
        ("json", "standard library"),
        ("lambda", "keyword"),
        ("match", "keyword"),
        ("tests", "folder of the project"),
        ("dsh", "dsh's own wheels"),
        ("dsh-words", "dsh's own wheels"),
        ("bash", "key of a service"),
        ("bash-local", "dsh-bash-local"),
        ("pytest", "is installed"),
    ],
)
def test_a_name_that_would_not_work_is_refused(cli: Cli, name: str, why: str) -> None:
    result = cli.run("new", "plugin", name, "--kind", "tool")
    assert result.code == 2
    assert why in result.stderr
    assert os.listdir(cli.folder) == []


@pytest.mark.parametrize("name", ["next", "plugin", "config", "none", "type-error", "deny"])
def test_a_name_that_the_code_uses_itself_still_works(cli: Cli, name: str) -> None:
    for kind in ("tool", "gate"):
        folder = make(cli, name, kind, "--into", kind).parent / kind / name
        (target,) = manifest(folder)["project"]["entry-points"]["dsh.plugins"].values()
        module, _, cls = target.partition(":")
        code = f"import {module} as m; assert m.{cls}.name == {name!r}, m.{cls}.name"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=folder / "src", capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


def test_classes_are_called_after_their_plugins() -> None:
    assert class_of("acme-words", frozenset()) == "AcmeWords"
    assert class_of("x2-y", frozenset()) == "X2Y"
    assert class_of("acme-words", frozenset({"AcmeWords"})) == "AcmeWordsPlugin"
    assert class_of("value-error", frozenset()) == "ValueErrorPlugin"


def test_nothing_is_overwritten(cli: Cli) -> None:
    for name in ("full", "file", "link"):
        (cli.folder / "elsewhere").mkdir(exist_ok=True)
        path = cli.folder / name
        if name == "full":
            path.mkdir()
            (path / "precious").write_text("mine")
        elif name == "file":
            path.write_text("mine")
        else:
            path.symlink_to(cli.folder / "elsewhere")
        result = cli.run("new", "plugin", name, "--kind", "tool")
        assert result.code == 2
        assert "exists already; nothing was written" in result.stderr
    names = {path.name for path in cli.folder.iterdir()}
    assert names == {"elsewhere", "file", "full", "link"}
    assert os.listdir(cli.folder / "full") == ["precious"]
    assert os.listdir(cli.folder / "elsewhere") == []


def test_an_empty_folder_is_used(cli: Cli) -> None:
    (cli.folder / "acme-thing").mkdir()
    assert (make(cli, "acme-thing", "tool") / "pyproject.toml").is_file()


def test_a_project_that_cannot_be_written_leaves_nothing(cli: Cli) -> None:
    # the README is longer than any file may get here, the manifest is not
    cli.env["PYTHONDONTWRITEBYTECODE"] = "1"
    limited = ("bash", "-c", 'ulimit -f 1; exec "$@"', "limited")
    result = cli.run("new", "plugin", "acme-thing", "--kind", "tool", prefix=limited)
    assert result.code == 1
    assert "cannot be written: File too large" in result.stderr
    assert os.listdir(cli.folder) == []


def test_another_folder_is_made_where_it_is_missing(cli: Cli) -> None:
    result = cli.run("new", "plugin", "acme-thing", "--kind", "ui", "--into", "a b/c")
    assert result.code == 0, result.stderr
    assert (cli.folder / "a b" / "c" / "acme-thing" / "pyproject.toml").is_file()
    assert "cd 'a b/c/acme-thing'" in result.stdout
    (cli.folder / "file").touch()
    refused = cli.run("new", "plugin", "acme-thing", "--kind", "ui", "--into", "file")
    assert refused.code == 2
    assert "is no folder" in refused.stderr


def test_the_commands_it_prints_can_be_pasted(cli: Cli) -> None:
    result = cli.run("new", "plugin", "acme-thing", "--kind", "tool")
    lines = [line.strip() for line in result.stdout.partition("next:\n")[2].splitlines()]
    enter, install, test = lines[:3]
    assert install.endswith(" -e '.[test]'")
    assert lines[-2:] == ["version: 1", "plugins: [acme-thing]"]
    assert str(cli.home / ".dsh" / "dsh.yaml") in result.stdout
    # installing needs an index, so its place is taken by the path
    script = f"{enter}\nexport PYTHONPATH=src:$PYTHONPATH\n{test} -q -p no:cacheprovider"
    done = subprocess.run(
        ["bash", "-ec", script], cwd=cli.folder, env=cli.env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


def test_a_checkout_knows_where_its_test_kit_lies(tmp_path: Path) -> None:
    module = tmp_path / "apps" / "dsh-cli" / "src" / "command.py"
    kit = tmp_path / "packages" / "dsh-testkit"
    kit.mkdir(parents=True)
    assert kit_beside(module) is None
    (kit / "pyproject.toml").touch()
    assert kit_beside(module) == kit


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("new",), "say what to make"),
        (("new", "plugin"), "NAME"),
        (("new", "plugin", "acme-x"), "--kind"),
        (("new", "plugin", "acme-x", "--kind", "tools"), "'provider'"),
        (("new", "plugin", "acme-x", "--kind", "ui", "--seam", "bash"), "--seam is for providers"),
        (("new", "plugin", "acme-x", "--kind", "provider", "--seam", "llm"), "--seam takes: bash"),
        (("new", "plugin", "acme-x", "--kind", "ui", "--description", " "), "--description"),
        (("new", "plugin", "acme-x", "--kind", "ui", "--description", "a\nb"), "--description"),
        (("new", "plugin", "acme-x", "--kind", "ui", "--author", "A <b"), "--author"),
    ],
)
def test_what_cannot_be_asked_for_is_told(cli: Cli, arguments: tuple[str, ...], why: str) -> None:
    result = cli.run(*arguments)
    assert result.code == 2
    assert why in result.stderr
    assert os.listdir(cli.folder) == []


def test_an_installed_plugin_keeps_its_name(cli: Cli) -> None:
    folder = make(cli, "acme-thing", "tool")
    info = folder / "src" / "acme_thing-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-thing\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[dsh.plugins]\nacme-thing = acme_thing:AcmeThing\n")
    known = cli.env.get("PYTHONPATH", "")
    cli.env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder / "src"), known]))
    result = cli.run("new", "plugin", "acme-thing", "--kind", "tool", "--into", "other")
    assert result.code == 2
    assert "acme-thing 0.1.0 has a plugin of that name" in result.stderr
    assert "acme-acme-thing" not in result.stderr
    assert not (cli.folder / "other").exists()
