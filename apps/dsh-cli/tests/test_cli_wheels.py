"""What installing and removing other wheels does, with no change anywhere else."""

from __future__ import annotations

import json
import os
import pty
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.llm_replay import server as wire
from dsh.llm_replay.server import ThreadedServer

Cli = Any
Serve = Callable[..., ThreadedServer]

PROVIDER = """
from dataclasses import replace
from dsh.bash_local import LocalBash

class {cls}(LocalBash):
    name = "{name}"

    def resolve(self, request):
        return super().resolve(replace(request, env={{**(request.env or {{}}), "WHO": "{name}"}}))
"""

BUNDLE = """
from typing import ClassVar
from dsh.agent_core import AgentCore

class Bundle(AgentCore):
    name: ClassVar[str] = "{name}"

    async def start(self):
        print("{name} stands", flush=True)
        await super().start()
"""

COMMAND = """
def register(commands):
    parser = commands.add_parser("hello", help="say hello")
    parser.add_argument("name")
    parser.set_defaults(run=lambda args: print("hello", args.name, flush=True) or 0)
"""


class Wheels:
    """A folder on the import path that stands for installed wheels."""

    def __init__(self, cli: Cli, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        known = cli.env.get("PYTHONPATH", "")
        cli.env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), known]))

    def install(self, wheel: str, module: str, source: str, **groups: str) -> None:
        (self.folder / f"{module}.py").write_text(source, encoding="utf-8")
        info = self.describe(wheel, "1.0")
        lines = [f"[{group.replace('__', '.')}]\n{entry}\n" for group, entry in groups.items()]
        (info / "entry_points.txt").write_text("".join(lines), encoding="utf-8")

    def describe(self, wheel: str, version: str, *requirements: str) -> Path:
        """Write the metadata of a wheel; in front of a real one of its name it hides that."""
        info = self.folder / f"{wheel.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {wheel}", f"Version: {version}"]
        lines += [f"Requires-Dist: {item}" for item in requirements]
        (info / "METADATA").write_text("\n".join([*lines, "", ""]), encoding="utf-8")
        return info

    def install_bundle(self, name: str) -> None:
        module = name.replace("-", "_")
        entry = f"{name} = {module}:Bundle"
        source = BUNDLE.format(name=name)
        self.install(f"{name}-wheel", module, source, dsh__plugins=entry, dsh__bundles=entry)

    def install_provider(self, name: str) -> None:
        module, cls = name.replace("-", "_"), name.title().replace("-", "")
        entry = f"{name} = {module}:{cls}"
        source = PROVIDER.format(cls=cls, name=name)
        self.install(f"acme-{name}", module, source, dsh__plugins=entry, dsh__seam__bash=entry)

    def remove(self, wheel: str) -> None:
        info = self.folder / f"{wheel.replace('-', '_')}-1.0.dist-info"
        for file in info.iterdir():
            file.unlink()
        info.rmdir()


@pytest.fixture
def wheels(cli: Cli, tmp_path: Path) -> Wheels:
    return Wheels(cli, tmp_path / "site")


def test_a_second_provider_swaps_the_backend_and_a_third_is_a_question(
    cli: Cli, serve: Serve, wheels: Wheels
) -> None:
    def who() -> str:
        arguments = {"command": "echo who: ${WHO:-local}", "description": "d"}
        serve([wire.tool_call_success("bash", arguments), wire.success("ok")])
        result = cli.run("run", "go")
        assert result.code == 0, result.stderr
        return str(result.stderr.splitlines()[-1].rpartition("who: ")[2])

    assert who() == "local"
    wheels.install_provider("bash-second")
    assert who() == "bash-second"
    assert "nobody's default" in cli.run("doctor").stdout
    wheels.install_provider("bash-third")
    result = cli.run("run", "go")
    assert result.code == 2
    assert "bash-second (from acme-bash-second 1.0)" in result.stderr
    assert "bash-third (from acme-bash-third 1.0)" in result.stderr
    assert "pick one in dsh.yaml: seams: {bash: bash-second}" in result.stderr
    cli.settings("seams: {bash: third}\n")
    assert who() == "bash-third"
    (cli.home / ".dsh" / "dsh.yaml").unlink()
    wheels.remove("acme-bash-third")
    wheels.remove("acme-bash-second")
    assert who() == "local"


def test_a_second_bundle_takes_over_and_a_third_is_a_question(
    cli: Cli, serve: Serve, wheels: Wheels
) -> None:
    def run(*options: str) -> Any:
        serve(wire.success("ok"))
        return cli.run("run", *options, "go")

    assert "stands" not in run().stdout + run().stderr
    wheels.install_bundle("acme-core")
    assert "acme-core stands" in run().stderr
    report = json.loads(cli.run("doctor", "--json").stdout)
    assert report["settings"]["bundle"] == (
        "acme-core from acme-core-wheel 1.0: the only installed bundle that is nobody's default; "
        "also installed: agent-core"
    )
    shown = cli.run("config", "show").stdout
    assert "# bundle: acme-core, the only installed bundle that is nobody's default\n" in shown
    lines = [json.loads(line) for line in cli.run("plugins", "--json").stdout.splitlines()]
    used = {line["name"]: line["used"] for line in lines}
    assert (used["acme-core"], used["agent-core"], used["agent-loop"]) == ("bundle", None, None)

    wheels.install_bundle("zeta-core")
    result = run()
    assert result.code == 2
    assert (
        "several installed wheels provide a bundle: acme-core (from acme-core-wheel 1.0), zeta"
        in (result.stderr)
    )
    assert "pick one in dsh.yaml: bundle: acme-core" in result.stderr
    report = json.loads(cli.run("doctor", "--json").stdout)
    assert report["settings"]["bundle"] == "undecided"
    assert "# bundle: undecided: several" in cli.run("config", "show").stdout
    assert cli.run("plugins").code == 0

    assert "zeta-core stands" in run("--set", "bundle=zeta-core").stderr
    cli.settings("bundle: agent-core\n")
    assert "stands" not in run().stderr
    named = cli.run("config", "show").stdout
    assert f"bundle: agent-core  # {cli.home}/.dsh/dsh.yaml, line 1" in named


def test_a_wheel_of_another_version_is_refused(cli: Cli, serve: Serve, wheels: Wheels) -> None:
    serve(wire.success("never"))
    wheels.describe("dsh-tools", "0.0.9")
    result = cli.run("run", "go")
    assert result.code == 2
    told = "dsh-agent-core 0.1.0 needs dsh-tools 0.1.0 (0.0.9 is installed)"
    assert told in result.stderr
    assert "run: pip install dsh-tools==0.1.0" in result.stderr
    doctor = cli.run("doctor")
    assert doctor.code == 1
    assert f"problem: {told}" in doctor.stdout
    assert "problem: dsh-tool-bash 0.1.0 needs dsh-tools 0.1.0 (0.0.9" in doctor.stdout


def test_a_wheel_that_is_required_and_replaced_is_a_note(cli: Cli, wheels: Wheels) -> None:
    cli.env["DEEPSEEK_API_KEY"] = "sk-test-0123456789abcdef"
    wheels.install("acme-extra", "acme_extra", "", dsh__plugins="acme-extra = acme_extra:Extra")
    metadata = wheels.folder / "acme_extra-1.0.dist-info" / "METADATA"
    metadata.write_text(
        "Metadata-Version: 2.1\nName: acme-extra\nVersion: 1.0\n"
        "Requires-Dist: acme-gone==2.0\nRequires-Dist: acme-any\n\n",
        encoding="utf-8",
    )
    result = cli.run("doctor")
    assert result.code == 0, result.stdout
    assert "note: acme-extra requires acme-gone 2.0, acme-any, which is not installed" in (
        result.stdout
    )


def test_a_wheel_can_add_a_command(cli: Cli, wheels: Wheels) -> None:
    wheels.install("acme-hello", "acme_hello", COMMAND, dsh__commands="hello = acme_hello:register")
    result = cli.run("hello", "world")
    assert (result.code, result.stdout, result.stderr) == (0, "hello world\n", "")
    assert "say hello" in cli.run().stdout
    assert "hello" in cli.run("completion", "bash").stdout


def test_a_wheel_with_a_broken_command_is_told_and_harms_no_other(cli: Cli, wheels: Wheels) -> None:
    broken = "raise ImportError('no luck')\n"
    wheels.install("acme-broken", "acme_broken", broken, dsh__commands="b = acme_broken:r")
    wheels.install("acme-hello", "acme_hello", COMMAND, dsh__commands="hello = acme_hello:register")
    result = cli.run("hello", "world")
    assert (result.code, result.stdout) == (0, "hello world\n")
    assert "the command 'b' is not available" in result.stderr
    assert cli.run("--version").code == 0
    assert cli.run("plugins").code == 0


def test_a_wheel_whose_plugin_does_not_import_is_named(
    cli: Cli, serve: Serve, wheels: Wheels
) -> None:
    serve(wire.success("ok"))
    wheels.install(
        "acme-bad", "acme_bad", "import numpy_of_nowhere\n", dsh__plugins="acme-bad = acme_bad:Bad"
    )
    assert cli.run("run", "go").code == 0  # installed, but nobody asked for it
    result = cli.run("run", "--set", "plugins.acme-bad.disabled=false", "go")
    assert result.code == 1
    assert "No module named 'numpy_of_nowhere'" in result.stderr
    assert "acme-bad 1.0" in result.stderr


def test_a_missing_wheel_is_named(cli: Cli, serve: Serve, wheels: Wheels) -> None:
    # an empty record in front hides the real one: discovery takes the first of a name
    serve(wire.success("never"))
    info = wheels.folder / "dsh_tool_bash-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: dsh-tool-bash\nVersion: 0.1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[dsh.nothing]\n", encoding="utf-8")
    result = cli.run("run", "go")
    assert result.code == 2
    assert "the plugin 'tool-bash' is not installed" in result.stderr
    assert "install dsh-tool-bash" in result.stderr
    lines = [json.loads(line) for line in cli.run("plugins", "--json").stdout.splitlines()]
    assert "tool-bash" not in {line["name"] for line in lines}


PRINTING = """
import sys
from dsh.core import DshError

class Broken(DshError):
    code = "BROKEN"
    exit_code = 7

def run(args):
    what = args.what
    if what == "fail":
        raise Broken("it broke", hint="mend it")
    if what == "settings":
        print(args.read_settings(args).model)
    elif what == "bytes":
        print("before", end=" ")
        sys.stdout.buffer.write(b"\\xff\\x00\\n")
    elif what == "note":
        print("a note: sk-test-0123456789abcdef", file=sys.stderr)
    elif what == "warn":
        import logging
        logging.getLogger("dsh.acme").warning("careful")
    else:
        args.read_settings(args)
        print("\\x1b[1mbold\\x1b[0m \\x1b[8mhidden \\x1b[2J sk-test-0123456789abcdef")
    return 0

def register(commands):
    parser = commands.add_parser("acme")
    parser.add_argument("what")
    parser.add_argument("--set", action="append", default=[], dest="sets")
    parser.set_defaults(run=run)
"""


@pytest.fixture
def acme(cli: Cli, wheels: Wheels) -> Cli:
    """Return a command to which a wheel has added `dsh acme`."""
    wheels.install("acme-cmd", "acme_cmd", PRINTING, dsh__commands="acme = acme_cmd:register")
    cli.env["DEEPSEEK_API_KEY"] = "sk-test-0123456789abcdef"
    return cli


def test_a_command_of_a_wheel_reads_the_settings_as_a_run_does(acme: Cli) -> None:
    assert acme.run("acme", "settings").stdout == "deepseek/deepseek-flash\n"
    assert acme.run("acme", "settings", "--set", "model=a/b").stdout == "a/b\n"
    assert acme.run("acme", "settings", "--set", "nonsense=1").code == 2


def test_its_errors_have_hints_and_exit_codes_of_their_own(acme: Cli) -> None:
    result = acme.run("acme", "fail")
    assert (result.code, result.stdout) == (7, "")
    assert result.stderr == "dsh: it broke\n     mend it\n"


def test_what_it_prints_has_no_secrets_and_drives_no_terminal(acme: Cli) -> None:
    assert "sk-test" not in acme.run("acme", "colours").stdout
    assert "[8mhidden" in acme.run("acme", "colours").stdout
    master, slave = pty.openpty()
    with acme.start("acme", "colours", stdout=os.fdopen(slave, "wb", closefd=False)) as process:
        assert process.wait(60) == 0
    os.close(slave)
    shown = os.read(master, 4096).decode()
    os.close(master)
    assert "\x1b[1mbold\x1b[0m \\x1b[8mhidden \\x1b[2J" in shown
    assert "sk-test" not in shown


def test_its_bytes_arrive_as_they_are_and_in_order(acme: Cli, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        assert acme.run("acme", "bytes", stdout=file).code == 0
    assert (tmp_path / "out").read_bytes() == b"before \xff\x00\n"


def test_its_notes_and_warnings_are_short_lines(acme: Cli) -> None:
    assert acme.run("acme", "note").stderr.startswith("a note: ")
    assert acme.run("acme", "warn").stderr == "dsh: warning: careful\n"


def test_a_full_disk_is_told_for_it_too(acme: Cli) -> None:
    if os.path.exists("/dev/full"):
        with open("/dev/full", "wb") as full:
            result = acme.run("acme", "colours", stdout=full)
        assert result.code == 1
        assert "stdout cannot be written: No space left on device" in result.stderr
