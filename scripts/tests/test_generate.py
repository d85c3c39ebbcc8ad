"""The generator: what it writes, what it finds, and that it says the same everywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
STATIC = {
    file: f"catalog.{module}"
    for file, module in {
        "classes-and-functions.md": "classes_page",
        "data-structures.md": "data_page",
        "errors.md": "errors_page",
        "events-and-services.md": "events_page",
        "kernel-api.md": "kernel_page",
        "modules.md": "modules_page",
        "session-events.md": "session_page",
    }.items()
}
"""Pages that are made from the model alone."""
SMALL = {"events.md": "catalog.events_page", "data.md": "catalog.data_page"}
CODE = '''
@dataclass(frozen=True)
class Lit(Emit, name="lamp/lit"):
    """There is light."""

    lamp: str
    """Which lamp."""
'''
COMMAND = "run: uv run python scripts/generate.py"

Script = Callable[[str], ModuleType]
Declared = Callable[..., Path]


@pytest.fixture
def generate(script: Script, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Return a function that runs the generator and returns its code and output."""

    def run(*argv: object, pages: Mapping[str, str] = SMALL) -> tuple[int, str]:
        code = script("generate").main([str(item) for item in argv], pages)
        return code, capsys.readouterr().out

    return run


Generate = Callable[..., tuple[int, str]]


def pages_of(root: Path) -> dict[str, bytes]:
    folder = root / "docs/catalog"
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_what_was_written_is_up_to_date(declared: Declared, generate: Generate) -> None:
    root = declared(CODE, ["Lit"])
    assert generate(root) == (0, "docs/catalog: 2 pages written\n")
    assert "### Event lamp/lit\n" in (root / "docs/catalog/events.md").read_text(encoding="utf-8")
    assert generate("--check", root) == (0, "docs/catalog: 2 pages are up to date\n")


def test_an_unchanged_page_is_not_written_again(declared: Declared, generate: Generate) -> None:
    root = declared(CODE, ["Lit"])
    generate(root)
    page = root / "docs/catalog/events.md"
    os.utime(page, (1, 1))
    generate(root)
    assert page.stat().st_mtime == 1


def test_checking_writes_nothing(declared: Declared, generate: Generate) -> None:
    root = declared(CODE, ["Lit"])
    code, said = generate("--check", root)
    assert code == 1
    assert "docs/catalog/events.md is missing:" in said
    assert said.endswith(COMMAND + "\n")
    assert not (root / "docs").exists()


def test_a_stray_file_is_a_finding(declared: Declared, generate: Generate) -> None:
    root = declared(CODE, ["Lit"])
    generate(root)
    (root / "docs/catalog/old.md").write_text("old", encoding="utf-8")
    for argv in (["--check", root], [root]):
        code, said = generate(*argv)
        assert code == 1
        assert "docs/catalog/old.md: no page of scripts/generate.py makes it; delete it" in said


def test_a_hole_fails_also_when_writing(declared: Declared, generate: Generate) -> None:
    root = declared(CODE.replace('    """Which lamp."""\n', ""), ["Lit"])
    for argv in ([root], ["--check", root]):
        code, said = generate(*argv)
        assert code == 1
        assert (
            said == "packages/dsh-lamp/src/dsh/lamp/_lamp.py: field Lit.lamp of event lamp/lit "
            "has no docstring\n"
        )


@pytest.mark.parametrize("where", ["catalog.no_such_page", "catalog.kernel_page"])
def test_a_page_that_cannot_be_made_is_a_finding(
    declared: Declared, generate: Generate, where: str
) -> None:
    """The second one lists classes that the small kernel has not."""
    root = declared(CODE, ["Lit"])
    core = root / "packages/dsh-core/src/dsh/core/__init__.py"
    text = core.read_text(encoding="utf-8").replace(
        "__all__: list[str] = []", '__all__ = ["LIMIT"]'
    )
    core.write_text(f'{text}\nLIMIT = 1\n"""A limit."""\n', encoding="utf-8")
    code, said = generate(root, pages={**SMALL, "more.md": where})
    assert code == 1
    assert said.startswith(f"docs/catalog/more.md: {where} cannot make it: ")
    assert (root / "docs/catalog/events.md").is_file()


def test_a_page_may_be_a_function(declared: Declared, generate: Generate) -> None:
    root = declared(CODE, ["Lit"])
    pages = {"deep/events.md": "catalog.events_page:render"}
    assert generate(root, pages=pages)[0] == 0
    assert (root / "docs/catalog/deep/events.md").is_file()
    assert generate("--check", root, pages=pages)[0] == 0


def test_one_page_alone(declared: Declared, generate: Generate) -> None:
    root = declared(CODE, ["Lit"])
    assert generate("--only", "data.md", root) == (0, "docs/catalog: 1 pages written\n")
    assert list(pages_of(root)) == ["data.md"]


def test_a_long_difference_is_cut(declared: Declared, generate: Generate) -> None:
    root = declared(CODE, ["Lit"])
    generate(root)
    page = root / "docs/catalog/events.md"
    page.write_text("line\n" * 500, encoding="utf-8")
    _, said = generate("--check", root)
    assert "more lines\n" in said
    assert len(said.splitlines()) < 70


def test_every_row_of_the_table_can_be_loaded(script: Script) -> None:
    generator = script("generate")
    for where in generator.PAGES.values():
        assert callable(generator.load_page(where))


@pytest.fixture(scope="module")
def written(
    script: Script,
    copy_workspace: Callable[[Path], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A copy of this workspace with its pages; whoever changes it puts it back."""
    root = copy_workspace(tmp_path_factory.mktemp("copy"))
    assert script("generate").main([str(root)], STATIC) == 0
    return root


CHANGES: list[tuple[str, dict[str, str], str]] = [
    (
        "packages/dsh-tools/src/dsh/tools/events.py",
        {"Allow, deny or ask before a tool runs.": "Allow or refuse before a tool runs."},
        "+Allow or refuse before a tool runs. The base allows.",
    ),
    (
        "packages/dsh-agent/src/dsh/agent/events.py",
        {"    steering: bool\n": "    loud: bool\n"},
        "+| `loud` | `bool` | required |",
    ),
    (
        "packages/dsh-agent/src/dsh/agent/events.py",
        {
            'class AgentError(Emit, name="agent/error"': (
                'class AgentError(Parallel, name="agent/error"'
            ),
            "from dsh.core import Emit,": "from dsh.core import Emit, Parallel,",
        },
        "+- Listener: `async def listener(event: AgentError) -> None`.",
    ),
    (
        "packages/dsh-bash-local/pyproject.toml",
        {'[project.entry-points."dsh.seam.bash"]\nbash-local = "dsh.bash_local:LocalBash"\n': ""},
        "+- `dsh.bash_local.LocalBash` of `dsh-bash-local`, installed as plugin "
        "[`bash-local`](config.md#plugin-bash-local).",
    ),
]
"""A docstring, a field, a mode and an entry point: file, replacements, what a page then says."""


def test_a_change_of_the_sources_makes_a_page_stale(written: Path, generate: Generate) -> None:
    before: dict[Path, str] = {}
    for file, replacements, _ in CHANGES:
        path = written / file
        text = path.read_text(encoding="utf-8")
        before.setdefault(path, text)
        for old, new in replacements.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")
    code, said = generate("--check", written, pages=STATIC)
    for path, text in before.items():
        path.write_text(text, encoding="utf-8")
    assert code == 1
    assert "docs/catalog/events-and-services.md is out of date:" in said
    assert [shows for _, _, shows in CHANGES if shows not in said] == []
    assert said.endswith(COMMAND + "\n")
    assert generate("--check", written, pages=STATIC) == (
        0,
        f"docs/catalog: {len(STATIC)} pages are up to date\n",
    )


@pytest.mark.parametrize(("seed", "locale"), [("1", "C"), ("2", "C.UTF-8")])
def test_the_pages_depend_on_the_sources_alone(
    written: Path, tmp_path: Path, seed: str, locale: str
) -> None:
    root = tmp_path / "elsewhere"
    shutil.copytree(written, root, ignore=shutil.ignore_patterns("docs"))
    environment = {**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale, "PYTHONUTF8": "0"}
    only = [word for file in STATIC for word in ("--only", file)]
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/generate.py"), *only, str(root)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert pages_of(root) == pages_of(written)
