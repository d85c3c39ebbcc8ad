"""`check_docs.py` runs what the pages show and follows where they point."""

from __future__ import annotations

import os
from pathlib import Path
from select import select
from typing import Any

import pytest

from check_docs import main

ROOT = Path(__file__).resolve().parents[2]


class Pages:
    """A small project with documentation."""

    def __init__(self, root: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self._capture = capture

    def page(self, text: str, path: str = "README.md") -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        return target

    def run(self, *arguments: str, **variables: str) -> tuple[int, str]:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            code = main(["--root", str(self.root), *arguments])
        printed = self._capture.readouterr()
        assert printed.err == ""
        return code, printed.out

    def told(self, *arguments: str, **variables: str) -> str:
        """Run the gate, which must fail, and return what it says without its last line."""
        code, out = self.run(*arguments, **variables)
        assert code == 1, out
        return out.rpartition("docs: ")[0]


def block(*lines: str, info: str = "python") -> str:
    return "\n".join([f"```{info}", *lines, "```", ""])


@pytest.fixture
def pages(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Pages:
    return Pages(tmp_path, capfd)


def test_pages_that_hold_what_they_say_pass(pages: Any) -> None:
    pages.page(
        "# Front page\n\nSee [the map](docs/map.md#how-it-works), [below](#read-on), "
        "[the index](https://example.invalid/nowhere) and [a mail](mailto:nobody@example.invalid)."
        "\n\n## Read on\n\n"
        + block("import os", "value = os.getcwd()")
        + block("assert value == os.getcwd()")
        + block("raise SystemExit(3)", info="python no-run")
        + block("curl https://example.invalid/", info="sh no-run")
        + block("[no link](nowhere.md)", info="text")
    )
    pages.page("# Docs\n\n[map](map.md)\n", "docs/README.md")
    pages.page("# Map\n\n## How it works?\n\n[up](../README.md)\n", "docs/map.md")
    pages.page("# Wheel\n", "packages/dsh-a/README.md")
    pages.page("# Door\n", "apps/dsh-b/README.md")
    pages.page("# Costs\n", "benchmarks/README.md")
    assert pages.run() == (0, "docs: 6 pages, 5 blocks, 0 problems\n")


# ----- Python


def test_code_that_fails(pages: Any) -> None:
    path = pages.page("# Page\n\nText.\n\n" + block("x = 1", "assert x == 2, 'not two'"))
    told = pages.told()
    assert told.startswith("README.md:7: fails\n")
    assert f'File "{path}", line 7, in <module>' in told
    assert "AssertionError: not two" in told


def test_the_line_of_a_failure_inside_a_function_of_the_page(pages: Any) -> None:
    pages.page(block("def half(x: int) -> float:", "    return 1 / x", "", "half(0)"))
    assert pages.told().startswith("README.md:3: fails\n")


def test_code_that_exits_by_itself(pages: Any) -> None:
    pages.page(block("import sys", "sys.exit(4)"))
    told = pages.told()
    assert told.startswith("README.md:3: fails\n")
    assert "exits 4" in told


def test_code_whose_process_dies(pages: Any) -> None:
    pages.page(block("import os", "os._exit(9)"))
    told = pages.told()
    assert told.startswith("README.md:2: fails\n")
    assert "ended with 9" in told


@pytest.mark.parametrize("info", ["python", "python no-run", "python file=f.py"])
def test_code_that_does_not_compile(pages: Any, info: str) -> None:
    pages.page("# Page\n\n" + block("x = 1", "def f(:", info=info))
    assert pages.told().startswith("README.md:5: does not compile: invalid syntax\n")


@pytest.mark.parametrize("info", ["python", "python no-run", "python file=src/f.py"])
def test_code_that_does_not_type_check(pages: Any, info: str) -> None:
    pages.page("# Page\n\n" + block("", "x: int = 'one'", info=info))
    told = pages.told()
    assert told.startswith("README.md:5: ")
    assert "reportAssignmentType" in told
    assert len(told.split("README.md:")) == 2


def test_a_no_run_block_stands_by_itself(pages: Any) -> None:
    pages.page(block("value = 1") + block("print(value)", info="python no-run"))
    assert pages.told().startswith('README.md:5: "value" is not defined')


def test_types_see_the_files_of_their_page_alone(pages: Any) -> None:
    path = pages.page(
        block("def f() -> int: ...", info="python file=src/lib.py")
        + block("from lib import f", "x: str = f()", info="python no-run"),
        "docs/README.md",
    )
    pages.page(block("from lib import f", info="python no-run"))
    first, second = pages.told().splitlines()[0], pages.told(str(path)).splitlines()[0]
    assert first == 'README.md:2: Import "lib" could not be resolved (reportMissingImports)'
    assert second.startswith('docs/README.md:6: Type "int" is not assignable')


def test_what_a_command_made_may_be_imported_but_not_what_dsh_lacks(pages: Any) -> None:
    made = block("from made import f", "from dsh.core import App", info="python no-run")
    missing = block("from dsh.cores import App", info="python no-run")
    pages.page(block("touch made.py", info="sh") + made + missing)
    told = pages.told().splitlines()
    assert told == ['README.md:9: Import "dsh.cores" could not be resolved (reportMissingImports)']


def test_code_that_hangs_past_the_limit(pages: Any) -> None:
    pages.page(block("import threading", "threading.Event().wait()"))
    told = pages.told("--limit", "0.5")
    assert told == "README.md:2: still runs after 0.5 s for the whole page\n"


def test_the_blocks_of_a_page_share_their_names_and_those_of_another_do_not(pages: Any) -> None:
    pages.page(block("shared = 1") + block("assert shared == 1"), "docs/README.md")
    pages.page(block("print(shared)"))
    told = pages.told()
    assert "README.md:2: fails\n" in told
    assert "NameError: name 'shared' is not defined" in told
    assert "docs/README.md:" not in told


def test_examples_run_in_an_empty_folder_without_key_or_settings(pages: Any) -> None:
    pages.page(
        block(
            "import os, pathlib, sys",
            "names = [n for n in os.environ if n.startswith(('DSH_', 'DEEPSEEK_'))]",
            "assert names == ['DSH_HOME'], names",
            "assert not any('KEY' in n or 'TOKEN' in n for n in os.environ)",
            "assert os.listdir() == [], os.listdir()",
            "assert os.environ['HOME'] == os.getcwd()",
            "assert os.environ['DSH_HOME'] == os.path.join(os.getcwd(), '.dsh')",
            "assert sys.stdin.read() == ''",
            "pathlib.Path('left').write_text('x')",
        )
    )
    code, out = pages.run(
        DEEPSEEK_API_KEY="sk-1", OTHER_TOKEN="t", DSH_INVARIANTS="full", DSH_HOME="/elsewhere"
    )
    assert (code, out) == (0, "docs: 1 pages, 1 blocks, 0 problems\n")
    assert os.listdir(pages.root) == ["README.md"]


# ----- shell


def test_commands_run_in_the_folder_of_the_page_with_the_programs_of_dsh(pages: Any) -> None:
    pages.page(
        block("answer = 41", info="python file=src/words.py")
        + block('test "$PWD" = "$HOME"', "cd src", "python -c 'import words'", info="sh")
        + block("command -v dsh pytest uv > found", info="sh")
        + block("assert len(open('found').readlines()) == 3")
    )
    assert pages.run() == (0, "docs: 1 pages, 4 blocks, 0 problems\n")


def test_a_command_that_fails(pages: Any) -> None:
    pages.page("# Page\n\n" + block("cat gone", "touch never", info="sh"))
    told = pages.told()
    assert told.startswith("README.md:4: fails\n")
    assert "gone: No such file or directory" in told
    assert "exit code 1, not 0" in told


def test_the_exit_code_that_is_shown(pages: Any) -> None:
    pages.page(block("exit 2", info="sh exit=2"))
    assert pages.run()[0] == 0
    pages.page(block("true", info="sh exit=2"))
    assert "exit code 0, not 2" in pages.told()


@pytest.mark.parametrize("info", ["sh", "sh no-run"])
def test_what_is_no_shell(pages: Any, info: str) -> None:
    pages.page(block("true", "if true; fi", info=info))
    assert pages.told().startswith("README.md:3: no shell: ")


def assert_nobody_writes(reader: int) -> None:
    """Wait until nobody holds the other end of a pipe; who was killed lets go of it soon."""
    assert select([reader], [], [], 30)[0]
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_a_command_that_hangs_is_killed_with_its_children(pages: Any, tmp_path: Path) -> None:
    fifo = tmp_path / "held"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    pages.page(block(f"exec 9> {fifo}", "sleep 1000 &", "wait", info="sh"))
    told = pages.told("--limit", "0.5")
    assert told == "README.md:2: still runs after 0.5 s for the whole page\n"
    assert_nobody_writes(reader)


def test_what_a_block_leaves_running_ends_with_its_page(pages: Any, tmp_path: Path) -> None:
    fifo = tmp_path / "held"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    pages.page(block(f"exec 9> {fifo}", "sleep 1000 &", info="sh") + block("true", info="sh"))
    assert pages.run()[0] == 0
    assert_nobody_writes(reader)


# ----- output


def test_the_output_that_is_shown(pages: Any) -> None:
    pages.page(
        block("print('one')", "print('two  ')")
        + "\n"
        + block("one", "two", info="text output")
        + block("echo first", "echo id-17 >&2", "echo middle", "echo last", info="sh")
        + block("first", "id-...", "...", "last", info="text output")
        + block("seq 9", info="sh")
        + block("1", "...", info="text output")
    )
    assert pages.run() == (0, "docs: 1 pages, 3 blocks, 0 problems\n")


@pytest.mark.parametrize("shown", [["one"], ["one", "two", "three"], ["one", "tw"], ["two", "..."]])
def test_other_output_than_shown(pages: Any, shown: list[str]) -> None:
    pages.page(block("echo one", "echo two", info="sh") + "\n" + block(*shown, info="text output"))
    told = pages.told()
    assert told.startswith("README.md:7: prints something else\n  shown:\n")
    assert told.endswith("  printed:\n    one\n    two\n")


@pytest.mark.parametrize(
    "before",
    [
        "",
        block("echo", info="sh no-run"),
        block("echo", info="sh") + "\nText.\n",
        block("{}", info="json"),
    ],
)
def test_output_that_no_block_prints(pages: Any, before: str) -> None:
    pages.page(before + "\n" + block("x", info="text output"))
    line = before.count("\n") + 3
    assert pages.told().startswith(f"README.md:{line}: `output` follows no block that runs\n")


# ----- data and the form of blocks


@pytest.mark.parametrize(
    ("info", "line", "told"),
    [
        ("yaml", "a: [1", "no YAML"),
        ("toml", "a = ", "no TOML"),
        ("json", "{'a': 1}", "no JSON"),
        ("jsonl", '{"a": }', "no JSON"),
        ("yaml file=a.yaml", "a: [1", "no YAML"),
    ],
)
def test_data_that_does_not_parse(pages: Any, info: str, line: str, told: str) -> None:
    pages.page("# Page\n\n" + block("", line, info=info))
    place, _, text = pages.told().partition(": ")
    assert place in {"README.md:5", "README.md:6"}
    assert text.startswith(told)


def test_data_that_parses(pages: Any) -> None:
    pages.page(
        block("a: [1]", info="yaml")
        + block("a = 1", info="toml")
        + block("{}", info="json")
        + block("{}", "[1]", info="jsonl")
        + block("version: 1", "model: a/${env:NAME}", info="yaml")
        + block("version: 1", "no-such-key: 1", info="yaml no-check")
    )
    assert pages.run() == (0, "docs: 1 pages, 6 blocks, 0 problems\n")


def test_a_deployment_that_dsh_does_not_read(pages: Any) -> None:
    pages.page("# Page\n\n" + block("version: 1", "plugin: [a]", info="yaml"))
    told = pages.told()
    assert told.startswith("README.md:5: no valid deployment: ")
    assert "plugins" in told


MANIFEST = block(
    '[project.entry-points."dsh.plugins"]',
    'acme-terms-list = "acme:List"',
    'bash-idle = "acme:Idle"',
    '[project.entry-points."dsh.seam.acme_terms"]',
    'acme-terms-list = "acme:List"',
    '[project.entry-points."dsh.seam.bash"]',
    'bash-idle = "acme:Idle"',
    info="toml",
)


@pytest.mark.parametrize(
    ("lines", "line", "told"),
    [
        (["bash: {timout_ms: 1}"], 6, "bash: Additional properties are not allowed ('timout_ms'"),
        (
            ["bash:", "  timeout_ms: soon"],
            7,
            "bash.timeout_ms: 'soon' is not what this setting takes",
        ),
        (["bash:", "  local: {drain: 1}"], 7, "bash.local: Additional properties are not"),
        (["plugins:", "  - llm-replay", "  - nobody"], 8, "no installed plugin is called"),
        (["plugins: [{use: nobody}]"], 6, "no installed plugin is called 'nobody'"),
        (["plugins:", "  - {use: llm-deepseek, config: {key: a}}"], 7, "('key' was unexpected)"),
        (["agent: {personality: kind}"], 6, "agent: Additional properties are not allowed"),
        (["seams: {bash: bash-nobody}"], 6, "no installed plugin is called 'bash-nobody'"),
        (["bundle: nobody"], 6, "no installed plugin is called 'nobody'"),
        (["acme_terms: {a: 1}"], 6, "acme_terms: unknown key"),
    ],
)
def test_a_deployment_whose_names_or_settings_are_wrong(
    pages: Any, lines: list[str], line: int, told: str
) -> None:
    pages.page("# Page\n\nText.\n\n" + block("version: 1", *lines, info="yaml"))
    said = pages.told()
    assert said.startswith(f"README.md:{line + 1}: no valid deployment: ")
    assert told in said


def test_a_deployment_that_holds(pages: Any) -> None:
    pages.page(
        block(
            "version: 1",
            "agent: {persona: You are terse.}",
            "bash: {timeout_ms: 1000, local: {drain_ms: 5}}",
            "seams: {bash: bash-local}",
            "plugins:",
            "  - {use: llm-deepseek, config: {api_key: '${env:KEY}'}}",
            "  - {use: ./mine.py, config: {a: 1}}",
            "  - acme.module:Plugin",
            info="yaml",
        )
    )
    assert pages.run() == (0, "docs: 1 pages, 1 blocks, 0 problems\n")


def test_what_a_page_writes_may_be_named_on_it(pages: Any) -> None:
    deployment = block(
        "version: 1",
        "acme_terms: {a: 1}",
        "seams: {acme_terms: list, bash: bash-idle}",
        "bash: {idle: {niceness: 3}}",
        "plugins: [{use: acme-words, config: {b: 1}}]",
        info="yaml",
    )
    made = block("dsh new plugin acme-words --kind tool", info="sh no-run")
    pages.page(deployment)
    assert "acme_terms: unknown key" in pages.told()
    pages.page(MANIFEST + made + deployment)
    assert pages.run()[0] == 0
    pages.page(MANIFEST + deployment)
    assert "no installed plugin is called 'acme-words'" in pages.told()
    wrong = deployment.replace("bash: {idle", "bash: {timout_ms: 1, idle")
    pages.page(MANIFEST + made + wrong)
    assert "bash: Additional properties are not allowed ('timout_ms' was" in pages.told()


@pytest.mark.parametrize(
    "lines",
    [
        ["> ```python", "> 1 / 0", "> ```"],
        ["> ```python", "> 1 / 0"],
        ["- ```python", "", "  1 / 0", "  ```"],
        ["1. ```python", "   1 / 0", "   ```"],
        ["> - ```sh", ">   false", ">   ```"],
        ["\t```python", "\t1 / 0", "\t```"],
    ],
)
def test_a_block_where_none_is_read_is_refused(pages: Any, lines: list[str]) -> None:
    pages.page("\n".join(["# Page", "", *lines, "", block("x = 1"), "[a](nowhere.md)"]))
    first, second = pages.told().splitlines()
    assert first.startswith("README.md:3: a block in a quote, behind a tab or beside the mark")
    assert second.endswith("link to nowhere.md, which does not exist")


def test_the_indented_block_of_a_list_item_runs(pages: Any) -> None:
    pages.page("# Page\n\n- First:\n\n  ```python\n  1 / 0\n  ```\n")
    assert pages.told().startswith("README.md:6: fails\n")


def test_a_command_that_fails_inside_of_a_pipe(pages: Any) -> None:
    pages.page(block("false | cat", "echo reached", info="sh"))
    assert pages.told().startswith("README.md:2: fails\nexit code 1, not 0")


def test_links_by_label_and_in_html(pages: Any) -> None:
    pages.page("# Other\n", "docs/README.md")
    pages.page(
        "# Page\n\n[a][known], [Known Too][], [b][unknown] and [gone][].\n\n"
        '<a href="docs/README.md">x</a> <a href="docs/no.md">y</a>\n'
        '<img alt="z" src=\'no.png\'>\n`<img src="code.png">` `[c][code]`\n\n'
        "[known]: docs/README.md\n[known   too]: docs/README.md\n"
    )
    assert pages.told().splitlines() == [
        "README.md:3: link by the label [unknown], which is not defined",
        "README.md:3: link by the label [gone], which is not defined",
        "README.md:5: link to docs/no.md, which does not exist",
        "README.md:6: link to no.png, which does not exist",
    ]


@pytest.mark.parametrize(
    ("info", "told"),
    [
        ("console", "a block in 'console': write sh"),
        ("", "a block in '': write text"),
        ("python norun", "a python block cannot be 'norun'"),
        ("python exit=1", "a python block cannot be 'exit=1'"),
        ("sh exit=no", "a sh block cannot be 'exit=no'"),
        ("json file=../a.json", "file=../a.json is outside of the page's folder"),
        ("text file=/etc/x", "file=/etc/x is outside of the page's folder"),
    ],
)
def test_a_block_that_is_not_understood(pages: Any, info: str, told: str) -> None:
    pages.page("# Page\n\n" + block("0", info=info))
    assert pages.told().splitlines()[0] == f"README.md:3: {told}"


def test_a_block_that_is_never_closed(pages: Any) -> None:
    pages.page("# Page\n\n```python\nx = 1\n")
    assert pages.told() == "README.md:3: this block is never closed\n"


def test_a_block_within_a_block_and_one_in_a_list(pages: Any) -> None:
    pages.page(
        "````md file=a.md\n```python\n1 / 0\n```\n````\n\n- an item\n\n"
        "  ```python\n  assert '1 / 0' in open('a.md').read()\n  ```\n"
    )
    assert pages.run() == (0, "docs: 1 pages, 2 blocks, 0 problems\n")


# ----- links


@pytest.mark.parametrize("link", ["gone.md", "docs/gone.md#there", "../outside.py"])
@pytest.mark.parametrize("mark", ["", "!"])
def test_a_dead_link(pages: Any, link: str, mark: str) -> None:
    pages.page(f"# Page\n\nSee {mark}[there]({link}).\n")
    target = link.partition("#")[0]
    assert pages.told() == f"README.md:3: link to {target}, which does not exist\n"


def test_a_dead_link_whose_text_is_code_or_an_image(pages: Any) -> None:
    pages.page("[`code`](a.md)\n[![alt](b.png)](c.md)\n[name]: d.md\n`[no link](e.md)`\n")
    assert [line.split()[3] for line in pages.told().splitlines()] == [
        "a.md,", "c.md,", "b.png,", "d.md,",
    ]  # fmt: skip


@pytest.mark.parametrize("link", ["#nowhere", "other.md#nowhere", "other.md#Two-Words"])
def test_a_dead_anchor(pages: Any, link: str) -> None:
    pages.page(f"# Page\n\nSee [there]({link}) and [here](other.md#two-words-1).\n")
    pages.page("# Other\n\n## Two `words`\n\n## Two words\n\n" + block("# nowhere", info="text"),
               "other.md")  # fmt: skip
    assert pages.told() == f"README.md:3: link to {link}, which has no such heading\n"


def test_a_page_that_nobody_links_to(pages: Any) -> None:
    pages.page("# Docs\n\n[a](../packages/dsh-a/README.md) [d](deep)\n", "docs/README.md")
    pages.page("# A\n\n[b](../../docs/b.md)\n", "packages/dsh-a/README.md")
    pages.page("# B\n", "docs/b.md")
    pages.page("# Deep\n", "docs/deep/README.md")
    pages.page("# Lost\n\n[b](b.md)\n", "docs/lost.md")
    told = "docs/lost.md: no chain of links from docs/README.md leads here\n"
    assert pages.told() == told


def test_documentation_without_an_index(pages: Any) -> None:
    pages.page("# A\n", "docs/a.md")
    assert pages.told() == "docs/README.md: missing: the index of the documentation\n"


def test_a_docstring_that_names_a_page_that_is_gone(pages: Any) -> None:
    pages.page("# Docs\n", "docs/README.md")
    source = '"""See docs/README.md and docs/gone.md."""\n\nX = "docs/data.md"\n'
    pages.page(source, "packages/dsh-a/src/dsh/a/__init__.py")
    assert pages.told() == (
        "packages/dsh-a/src/dsh/a/__init__.py:1: names docs/gone.md, which does not exist\n"
    )


def test_only_the_pages_that_are_named(pages: Any) -> None:
    sound = pages.page("# Sound\n", "docs/sound.md")
    pages.page("[dead](gone.md)\n")
    assert pages.run(str(sound)) == (0, "docs: 1 pages, 0 blocks, 0 problems\n")


# ----- own environments


@pytest.mark.wheels
def test_a_page_with_an_environment_of_its_own(pages: Any) -> None:
    project = (
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "my-words"\nversion = "1"\n'
        '[project.entry-points."dsh.plugins"]\nwords = "my_words:Words"'
    )
    page = pages.page(
        "# Page\n\n<!-- docs: own environment -->\n\n"
        + block(project, info="toml file=pyproject.toml")
        + block("class Words: ...", info="python file=my_words.py")
        + block("uv pip install -q -e .", "dsh plugins | grep words", info="sh")
        + block("words ...", info="text output")
        + block(
            "import sys, my_words", "assert sys.prefix == __import__('os').environ['VIRTUAL_ENV']"
        )
    )
    assert pages.run("--root", str(ROOT), str(page)) == (0, "docs: 1 pages, 4 blocks, 0 problems\n")
