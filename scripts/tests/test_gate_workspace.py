"""`check_workspace.py` lets a sound workspace pass and names each way to be unsound."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workspace.entry_points import check_loading
from workspace.wheels import read_wheels

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_workspace.py"
SHELL = "packages/dsh-shell"
LOCAL = "packages/dsh-local-shell"


def test_a_sound_workspace_has_no_finding(findings: Any) -> None:
    assert findings() == []


def test_the_command_prints_each_finding_and_fails(tree: Any) -> None:
    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(SCRIPT), str(tree.root)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    sound = run()
    assert (sound.returncode, sound.stdout) == (0, "workspace: 0 findings\n")
    (tree.root / SHELL / "LICENSE").unlink()
    (tree.root / LOCAL / "README.md").unlink()
    broken = run()
    assert broken.returncode == 1
    assert broken.stdout.splitlines() == [
        "dsh-local-shell: README.md is missing",
        "dsh-shell: LICENSE is missing",
        "workspace: 2 findings",
    ]


def test_a_workspace_without_a_kernel(script: Any, tmp_path: Path) -> None:
    assert script("check_workspace").check(tmp_path) == ["the workspace has no dsh-core"]


# -- layout --------------------------------------------------------------------------------------


def test_a_namespace_init(tree: Any, findings: Any) -> None:
    tree.write(f"{SHELL}/src/dsh/__init__.py", "")
    assert findings() == ["dsh-shell: src/dsh/__init__.py would break every other wheel; remove it"]


@pytest.mark.parametrize("name", ["__init__.py", "py.typed"])
def test_a_package_that_is_not_whole(tree: Any, findings: Any, name: str) -> None:
    tree.wheel("dsh-bare", "library")
    tree.write_root()
    (tree.root / "packages/dsh-bare/src/dsh/bare" / name).unlink()
    assert findings() == [f"dsh-bare: bare/{name} is missing"]


@pytest.mark.parametrize("stranger", ["other/__init__.py", "helpers.py"])
def test_a_second_portion(tree: Any, findings: Any, stranger: str) -> None:
    tree.write(f"{SHELL}/src/dsh/{stranger}", "")
    (finding,) = findings()
    assert finding.startswith("dsh-shell: src/dsh must hold shell alone, not ['")
    assert stranger.split("/")[0] in finding


def test_an_unknown_role(tree: Any, findings: Any) -> None:
    tree.edit("apps/dsh-app/pyproject.toml", 'role = "app"', 'role = "door"')
    assert findings()[0].startswith("dsh-app: [tool.dsh] role 'door' is not one of ['app',")


def test_a_readme_that_says_nothing(tree: Any, findings: Any) -> None:
    tree.write(f"{SHELL}/README.md", "# dsh-shell\n\nA shell.\n")
    assert findings() == ["dsh-shell: README.md says next to nothing"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            'description = "A wheel"\n',
            'description = "A wheel."\n',
            "description must say in one line of at most 100 characters, without a full stop, what "
            "the wheel is",
        ),
        ('readme = "README.md"\n', "", "readme must be 'README.md', not None"),
        ('license = "MIT"\n', 'license = "BSD"\n', "license must be 'MIT', not 'BSD'"),
        ('["LICENSE"]', "[]", "license-files must be ['LICENSE'], not []"),
        ('">=3.11"', '">=3.10"', "requires-python must be '>=3.11', not '>=3.10'"),
        ('authors = [{ name = "somebody" }]\n', "", "authors is missing"),
        (
            '["Typing :: Typed"]',
            "[]",
            "classifiers must have 'Typing :: Typed': it ships py.typed",
        ),
        (
            '["src/dsh/shell"]',
            '["src"]',
            "the wheel must only-include src/dsh/shell, not ['src']",
        ),
    ],
)
def test_metadata_that_is_not_whole(
    tree: Any, findings: Any, old: str, new: str, told: str
) -> None:
    tree.edit(f"{SHELL}/pyproject.toml", old, new)
    assert findings() == [f"dsh-shell: {told}"]


def test_a_license_of_its_own(tree: Any, findings: Any) -> None:
    tree.write(f"{SHELL}/LICENSE", "Nothing is granted.\n")
    assert findings() == [
        "dsh-shell: LICENSE differs from the one of the workspace; copy that",
    ]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("# dsh-shell", "# The shell", "must begin with the heading '# dsh-shell'"),
        ("A wheel that exists", "- a wheel", "must say under its heading what the wheel is"),
        ("```", "", "shows no example; add a block of code, a file or a command"),
        ("## Limits", "## And", "has no section '## Limits'; say what the wheel does not do"),
    ],
)
def test_a_readme_without_what_all_have(
    tree: Any, findings: Any, old: str, new: str, told: str
) -> None:
    text = (tree.root / SHELL / "README.md").read_text(encoding="utf-8")
    tree.write(f"{SHELL}/README.md", text.replace(old, new))
    assert findings() == [f"dsh-shell: README.md {told}"]


# -- versions ------------------------------------------------------------------------------------


def test_version_drift(tree: Any, findings: Any) -> None:
    tree.edit(f"{SHELL}/pyproject.toml", 'version = "1.0"', 'version = "1.1"')
    assert findings() == ["dsh-shell: version 1.1 differs from dsh-core's 1.0"]


@pytest.mark.parametrize(
    ("requirement", "said"),
    [("dsh-core", "nothing"), ("dsh-core>=1.0", ">=1.0"), ("dsh-core==0.9", "==0.9")],
)
def test_a_missing_pin(tree: Any, findings: Any, requirement: str, said: str) -> None:
    tree.edit(f"{SHELL}/pyproject.toml", "dsh-core==1.0", requirement)
    assert findings() == [f"dsh-shell: dsh-core must be pinned ==1.0, not {said}"]


def test_a_foreign_pin(tree: Any, findings: Any) -> None:
    tree.edit("packages/dsh-core/pyproject.toml", "anyio>=4.9", "anyio==4.9")
    assert findings() == ["dsh-core: anyio==4.9 pins a foreign distribution; give a floor"]


@pytest.mark.parametrize(
    "requirement", ["anyio[trio]>=4.9", "AnyIO >=4.9", "anyio>=4.9; python_version > '3'", "anyio"]
)
def test_requirements_in_other_spellings(tree: Any, findings: Any, requirement: str) -> None:
    tree.edit("packages/dsh-core/pyproject.toml", "anyio>=4.9", requirement)
    assert findings() == []


# -- imports -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "import httpx",
        "import httpx.auth as auth",
        "from httpx.auth import Basic",
        "def late():\n    import httpx",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import httpx",
        "import importlib\nx = importlib.import_module('httpx.auth')",
        "import importlib as il\nx = il.import_module(name='httpx')",
        "from importlib import import_module as load\nx = load('httpx')",
        "import importlib\nload = importlib.import_module\nget = load\nx = get('httpx.auth')",
        "load: object = __import__\nx = load('httpx')",
        "from importlib import import_module\nx = import_module('.auth', package='httpx')",
    ],
)
def test_an_undeclared_foreign_import(tree: Any, findings: Any, code: str) -> None:
    tree.write(f"{SHELL}/src/dsh/shell/_inner.py", code + "\n")
    assert findings() == ["dsh-shell: imports httpx without declaring it"]


@pytest.mark.parametrize("code", ["import dsh.shell", "from dsh import shell"])
def test_an_undeclared_own_import(tree: Any, findings: Any, code: str) -> None:
    tree.write("packages/dsh-agent-loop/src/dsh/agent_loop/_inner.py", code + "\n")
    assert findings() == ["dsh-agent-loop: imports dsh.shell without declaring dsh-shell"]


def test_an_unused_foreign_declaration(tree: Any, findings: Any) -> None:
    tree.edit("packages/dsh-core/pyproject.toml", '["anyio>=4.9"]', '["anyio>=4.9", "rich"]')
    assert findings() == ["dsh-core: declares rich without importing it"]


def test_an_unused_own_declaration(tree: Any, findings: Any) -> None:
    tree.edit(f"{LOCAL}/src/dsh/local_shell/__init__.py", "from dsh import shell\n", "")
    assert findings() == ["dsh-local-shell: declares dsh-shell without importing it"]


def test_bundles_and_apps_may_require_what_they_only_mount(tree: Any, findings: Any) -> None:
    tree.edit("packages/dsh-agent-core/src/dsh/agent_core/__init__.py", "import dsh.agent_loop", "")
    assert findings() == []


def test_an_unknown_wheel(tree: Any, findings: Any) -> None:
    tree.write(f"{SHELL}/src/dsh/shell/_inner.py", "import os\nimport dsh.nowhere\n")
    where = "packages/dsh-shell/src/dsh/shell/_inner.py:2"
    assert findings() == [f"{where}: imports unknown wheel dsh.nowhere"]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import dsh.core._app", "dsh.core._app"),
        ("from dsh.core import _app", "dsh.core._app"),
        ("from dsh.core._app import App", "dsh.core._app.App"),
        ("from dsh.core.errors import _Hidden", "dsh.core.errors._Hidden"),
    ],
)
def test_a_private_import(tree: Any, findings: Any, code: str, name: str) -> None:
    tree.write(f"{SHELL}/src/dsh/shell/_inner.py", f"\n\n{code}\n")
    where = "packages/dsh-shell/src/dsh/shell/_inner.py:3"
    assert findings() == [f"{where}: imports {name}, which is private to dsh.core"]


@pytest.mark.parametrize(
    "path", [f"{LOCAL}/tests/test_a.py", "tests/test_a.py", "benchmarks/a.py", "examples/a/a.py"]
)
def test_a_private_import_in_tests_and_examples(tree: Any, findings: Any, path: str) -> None:
    tree.write(path, "from dsh.shell._inner import x\n")
    told = f"{path}:1: imports dsh.shell._inner.x, which is private to dsh.shell"
    assert findings() == [told]


@pytest.mark.parametrize(
    ("code", "name", "module"),
    [
        ("from dsh.core import Missing", "Missing", "dsh.core"),
        ("from dsh.core import anyio", "anyio", "dsh.core"),
        ("import dsh.core\n\nx = dsh.core.Missing.y", "Missing", "dsh.core"),
        ("from dsh.core.errors import Missing", "Missing", "dsh.core.errors"),
        ("import dsh.core.missing", "missing", "dsh.core"),
        ("def late():\n    from dsh.core import Missing", "Missing", "dsh.core"),
    ],
)
def test_an_import_of_what_is_not_public(
    tree: Any, findings: Any, code: str, name: str, module: str
) -> None:
    tree.write(f"{SHELL}/src/dsh/shell/_inner.py", f"{code}\n")
    line = code.count("\n") + 1
    where = f"packages/dsh-shell/src/dsh/shell/_inner.py:{line}"
    told = f"imports {name}, which {module} does not make public; list it in its __all__"
    assert findings() == [f"{where}: {told}"]


@pytest.mark.parametrize(
    "code",
    [
        "from dsh.core import App, errors",
        "from dsh.core.errors import Broken",
        "import dsh.core.errors",
        "import dsh.core\n\nx = dsh.core.App",
        "from dsh.core import *",
    ],
)
def test_what_is_public_may_be_imported(tree: Any, findings: Any, code: str) -> None:
    tree.write(f"{SHELL}/src/dsh/shell/_inner.py", f"{code}\n")
    assert findings() == []


def test_a_wheel_without_a_public_face(tree: Any, findings: Any) -> None:
    tree.edit(f"{SHELL}/src/dsh/shell/__init__.py", "__all__: list[str] = []\n", "")
    assert findings() == ["dsh-shell: shell/__init__.py has no __all__; list what is public"]


@pytest.mark.parametrize(
    ("code", "sound"),
    [
        ("import trio", False),
        ("class A:\n    import trio.lowlevel", False),
        ("def late():\n    import trio", True),
        ("try:\n    import trio\nexcept ImportError:\n    trio = None", True),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import trio", True),
        ("import typing\nif typing.TYPE_CHECKING:\n    pass\nelse:\n    import trio", False),
        ("import typing\nif not typing.TYPE_CHECKING:\n    import trio", False),
    ],
)
def test_an_optional_dependency_is_imported_where_it_is_used(
    tree: Any, findings: Any, code: str, sound: bool
) -> None:
    extra = '\n[project.optional-dependencies]\ntrio = ["trio>=0.30"]\n\n[tool.hatch'
    tree.edit(f"{SHELL}/pyproject.toml", "\n[tool.hatch", extra)
    tree.write(f"{SHELL}/src/dsh/shell/_inner.py", f"{code}\n")
    where = f"packages/dsh-shell/src/dsh/shell/_inner.py:{code.count(chr(10)) + 1}"
    told = "imports trio, which only an extra requires; import it where it is used"
    assert findings() == ([] if sound else [f"{where}: {told}"])


def test_a_wheels_own_privates_are_its_own(tree: Any, findings: Any) -> None:
    tree.write(f"{SHELL}/src/dsh/shell/_inner.py", "import dsh\nfrom dsh.shell._rest import x\n")
    tree.write(f"{SHELL}/tests/test_inner.py", "from dsh.shell._inner import x\n")
    assert findings() == []


@pytest.mark.parametrize(
    ("code", "foreign"),
    [
        ("import os.path\nfrom dsh.shell._helper._table import alive", None),
        ("from dsh.shell import errors", "dsh.shell.errors"),
        ("def late():\n    import trio", "trio"),
    ],
)
def test_what_a_bare_interpreter_runs_has_the_standard_library_alone(
    tree: Any, findings: Any, code: str, foreign: str | None
) -> None:
    extra = '\n[project.optional-dependencies]\ntrio = ["trio>=0.30"]\n\n[tool.hatch'
    tree.edit(f"{SHELL}/pyproject.toml", "\n[tool.hatch", extra)
    tree.write(f"{SHELL}/src/dsh/shell/_late.py", "def late():\n    import trio\n")
    tree.write(f"{SHELL}/src/dsh/shell/_helper/_root.py", f"{code}\n")
    where = f"packages/dsh-shell/src/dsh/shell/_helper/_root.py:{code.count(chr(10)) + 1}"
    told = f"imports {foreign}, where only the standard library is at hand"
    assert findings() == ([] if foreign is None else [f"{where}: {told}"])


def test_distributions_whose_module_has_another_name(tree: Any, findings: Any) -> None:
    needs = ["ruamel-yaml>=0.18", "pydantic>=2", "typing-extensions>=4"]
    code = "import ruamel.yaml\nimport pydantic_core\nimport typing_extensions\n"
    tree.wheel("dsh-files", "library", needs, code)
    tree.write_root()
    assert findings() == []


# -- roles ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "target", "below"),
    [
        ("kernel", "dsh-shell", "interface"),
        ("library", "dsh-local-shell", "provider"),
        ("interface", "dsh-local-shell", "provider"),
        ("provider", "dsh-local-shell", "provider"),
        ("consumer", "dsh-local-shell", "provider"),
        ("provider", "dsh-agent-core", "bundle"),
        ("bundle", "dsh-agent-core", "bundle"),
        ("testkit", "dsh-app", "app"),
        ("app", "dsh-app", "app"),
    ],
)
def test_a_role_above(tree: Any, findings: Any, role: str, target: str, below: str) -> None:
    module = target.removeprefix("dsh-").replace("-", "_")
    tree.wheel("dsh-new", role, [f"{target}==1.0"], f"import dsh.{module}\n")
    tree.write_root()
    assert findings() == [f"dsh-new ({role}) may not depend on {target} ({below})"]


@pytest.mark.parametrize("role", ["testkit", "app"])
def test_the_loop_is_for_bundles_alone(tree: Any, findings: Any, role: str) -> None:
    tree.wheel("dsh-new", role, ["dsh-agent-loop==1.0"], "import dsh.agent_loop\n")
    tree.write_root()
    assert findings() == ["dsh-new: only a bundle may depend on dsh-agent-loop"]


# -- entry points --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    ["dsh.local_shell.missing:Local", "dsh.local_shell", "dsh.shell:Local", "dsh.local_shell:"],
)
def test_an_entry_point_to_nowhere(tree: Any, findings: Any, value: str) -> None:
    manifest = f"{LOCAL}/pyproject.toml"
    text = (tree.root / manifest).read_text(encoding="utf-8")
    tree.write(manifest, text.replace("dsh.local_shell:Local", value))
    told = f"dsh-local-shell: entry point local-shell = {value} names no module:attribute of it"
    assert findings() == [told, told]


def test_a_command_to_nowhere(tree: Any, findings: Any) -> None:
    tree.edit("apps/dsh-app/pyproject.toml", "dsh.app:run", "dsh.app")
    assert findings() == ["dsh-app: entry point d = dsh.app names no module:attribute of it"]


@pytest.mark.parametrize(
    ("value", "sound"), [("dsh.kit", True), ("dsh.kit:hook", True), ("dsh.gone", False)]
)
def test_other_programs_groups_may_name_a_module(
    tree: Any, findings: Any, value: str, sound: bool
) -> None:
    tree.wheel("dsh-kit", "testkit", [], "", {"pytest11": {"kit": value}})
    tree.write_root()
    told = f"dsh-kit: entry point kit = {value} names no module:attribute of it"
    assert findings() == ([] if sound else [told])


@pytest.mark.parametrize("change", ["name", "value"])
def test_a_seam_that_is_no_plugin(tree: Any, findings: Any, change: str) -> None:
    plugin = {"name": 'local-shell = "dsh', "value": 'dsh.local_shell:Local"'}[change]
    other = {"name": 'shell-local = "dsh', "value": 'dsh.local_shell:Other"'}[change]
    manifest = tree.root / LOCAL / "pyproject.toml"
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(text.replace(plugin, other, 1), encoding="utf-8")
    told = "dsh-local-shell: dsh.seam.shell offers local-shell, which dsh.plugins does not"
    assert findings() == [told]


def test_a_group_that_nobody_reads(tree: Any, findings: Any) -> None:
    tree.edit(f"{LOCAL}/pyproject.toml", '"dsh.seam.shell"', '"dsh.seems.shell"')
    told = "dsh-local-shell: nobody reads the entry-point group dsh.seems.shell"
    assert findings() == [told]


def test_a_bundle_from_a_wheel_that_is_none(tree: Any, findings: Any) -> None:
    tree.edit(f"{LOCAL}/pyproject.toml", '"dsh.seam.shell"', '"dsh.bundles"')
    told = "dsh-local-shell: offers the bundle local-shell; its role must be 'bundle'"
    assert findings() == [told]


POINT = "dsh-new: {group} new = dsh.new:found {told}"
BASE = "from dsh.core import Plugin, Service\n\n\n"


@pytest.mark.parametrize(
    ("group", "code", "told"),
    [
        ("dsh.plugins", "found = 3", "is neither a Plugin class nor a function"),
        (
            "dsh.plugins",
            "class found: ...",
            "is no Plugin class; derive it from dsh.core.Plugin",
        ),
        (
            "dsh.plugins",
            "class found(Plugin):\n    name = 'old'",
            "has the name 'old'; give the class and its entry point one name",
        ),
        (
            "dsh.plugins",
            "import abc\nclass found(Plugin, abc.ABC):\n    name = 'new'\n"
            "    @abc.abstractmethod\n    def run(self): ...",
            "is abstract; implement run",
        ),
        (
            "dsh.seam.shell",
            "class found(Plugin):\n    name = 'new'",
            "is no Service class, so it cannot provide anything",
        ),
        (
            "dsh.seam.shell",
            "class found(Service):\n    name = 'new'\n    service_key = 'other'",
            "provides the key 'other'; declare it under dsh.seam.other",
        ),
        (
            "dsh.defaults",
            "found = ['a']",
            "is no mapping of service keys to the names of their providers",
        ),
        ("dsh.commands", "found = 3", "cannot be called"),
        ("scripts", "found = 3", "cannot be called"),
        (
            "dsh.plugins",
            "raise RuntimeError('no')",
            "cannot be imported: RuntimeError: no",
        ),
        (
            "dsh.plugins",
            "other = 3",
            "cannot be imported: AttributeError: module 'dsh.new' has no attribute 'found'",
        ),
    ],
)
def test_an_entry_point_to_something_else(tree: Any, group: str, code: str, told: str) -> None:
    tree.wheel("dsh-new", "provider", [], BASE + code + "\n", {group: {"new": "dsh.new:found"}})
    shown = "console" if group == "scripts" else group
    assert check_loading(read_wheels(tree.root)) == [POINT.format(group=shown, told=told)]


@pytest.mark.parametrize(
    ("group", "code"),
    [
        ("dsh.plugins", "class found(Plugin):\n    name = 'new'"),
        ("dsh.plugins", "async def found(ctx, config): ..."),
        ("dsh.seam.shell", "class found(Service):\n    name = 'new'"),
        ("dsh.defaults", "found = {'shell': 'new'}"),
        ("dsh.commands", "def found(commands): ..."),
        ("pytest11", "found = 3\nprint('something is said at import')"),
    ],
)
def test_an_entry_point_to_what_its_group_says(tree: Any, group: str, code: str) -> None:
    tree.wheel("dsh-new", "provider", [], BASE + code + "\n", {group: {"new": "dsh.new:found"}})
    assert check_loading(read_wheels(tree.root)) == []


def test_an_import_that_ends_the_process(tree: Any) -> None:
    code = "import os, sys\nsys.stderr.write('gone')\nsys.stderr.flush()\nos._exit(7)\n"
    tree.wheel("dsh-new", "provider", [], code, {"dsh.plugins": {"new": "dsh.new:found"}})
    (finding,) = check_loading(read_wheels(tree.root))
    assert finding == "entry points: importing them ended with code 7\ngone"


# -- the root ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "label"),
    [('    "dsh-shell",\n', "dependencies"), ("dsh-shell = { workspace = true }\n", "sources")],
)
def test_a_root_list_that_forgets_a_wheel(tree: Any, findings: Any, line: str, label: str) -> None:
    label = {"sources": "tool.uv.sources"}.get(label, label)
    tree.edit("pyproject.toml", line, "")
    assert findings() == [f"pyproject.toml: {label} and the workspace disagree about dsh-shell"]


def test_root_lists_that_remember_a_wheel_that_is_gone(tree: Any, findings: Any) -> None:
    tree.names.append("dsh-gone")
    tree.write_root()
    assert findings() == [
        "pyproject.toml: dependencies and the workspace disagree about dsh-gone",
        "pyproject.toml: tool.uv.sources and the workspace disagree about dsh-gone",
    ]


def test_this_workspace_is_what_the_gate_reads() -> None:
    wheels = read_wheels(SCRIPT.parent.parent)
    assert {"dsh-core", "dsh-cli", "dsh-testkit"} <= {wheel.name for wheel in wheels}
