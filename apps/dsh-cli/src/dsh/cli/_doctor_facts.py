"""The facts that `dsh doctor` reports."""

from __future__ import annotations

import argparse
import os
import pkgutil
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from dsh.cli._failures import describe, unwrap
from dsh.cli._keys import key_file
from dsh.cli._recording import RECORD
from dsh.cli._settings import read_settings, working_folder
from dsh.cli.errors import UsageError
from dsh.core import DshError, entry_points, requirements_of, version_of
from dsh.core.json import JsonObject
from dsh.loader import (
    FILE_NAME,
    Deployment,
    LoadedApp,
    PinError,
    Row,
    SeamChoice,
    check_pins,
    explain_bundle,
    explain_choice,
    installed_seam_keys,
)
from dsh.paths import StateFileError, read_private, state_folder, user_folder

_PROGRAMS: Final = {"bash": "the bash tool runs every command with it"}
_ADAPTER: Final = "llm-deepseek"


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the report."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is needed and missing, or in the way."""

    text: str
    hint: str | None = None


class Examination:
    """Looks at everything once; never raises for what it finds.

    Args:
        args: The options of the command.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self.sections: dict[str, list[Fact]] = {}
        self.notes: list[str] = []
        self.problems: list[Problem] = []

    def run(self) -> None:
        """Look at everything."""
        self._installation()
        self._shadows()
        self._programs()
        deployment = self._settings()
        if deployment is not None:
            self._seams(deployment)
            self._keys(deployment)
            self._start(deployment)

    def as_json(self) -> JsonObject:
        """Return the report as one JSON object."""
        sections: dict[str, Any] = {
            title: {fact.name: fact.text for fact in facts}
            for title, facts in self.sections.items()
        }
        return {
            "ok": not self.problems,
            **sections,
            "notes": list(self.notes),
            "problems": [asdict(problem) for problem in self.problems],
        }

    # -- what is installed -------------------------------------------------------------------

    def _installation(self) -> None:
        version = version_of("dsh-cli") or "unknown"
        self._fact("program", "dsh", version)
        self._fact("program", "python", f"{platform.python_version()} ({sys.executable})")
        self._fact("program", "system", f"{platform.system()} {platform.release()}")
        for name, found in sorted(_wheels().items()):
            self._fact("wheels", name, found)
            self._pins(name)

    def _pins(self, wheel: str) -> None:
        """Tell which wheels are of other versions than one requires, and note what is not there."""
        try:
            check_pins(wheel)
        except PinError as error:
            self._problem(error.message, error.hint)
        absent = [
            f"{item.name} {item.pin or ''}".rstrip()
            for item in requirements_of(wheel)
            if item.installed is None
        ]
        if absent:
            self.notes.append(f"{wheel} requires {', '.join(absent)}, which is not installed")

    def _shadows(self) -> None:
        for file in foreign_packages():
            owner = _owner_of(file)
            self._problem(
                f"{file} (from {owner or 'an unknown distribution'}) makes `dsh` its own package "
                "and can hide ours",
                f"uninstall {owner}" if owner else "remove the file",
            )

    def _programs(self) -> None:
        for name, purpose in _PROGRAMS.items():
            found = shutil.which(name)
            self._fact("programs", name, found or "not found")
            if found is None:
                self._problem(f"the program {name} is not installed: {purpose}", f"install {name}")

    # -- settings ----------------------------------------------------------------------------

    def _settings(self) -> Deployment | None:
        folder = user_folder()
        self._fact("settings", "user folder", str(folder) if folder else "unknown: no HOME")
        self._fact("settings", "state folder", str(state_folder() or "unknown: no HOME"))
        try:
            where = working_folder(self._args.cwd)
            deployment = read_settings(self._args, where)
        except DshError as error:
            self._problem(error.message, error.hint)
            return None
        self._fact("settings", "working folder", str(where))
        for number, layer in enumerate(deployment.layers, 1):
            partly = " (not trusted: only model and limits)" if layer.tighten_only else ""
            self._fact("settings", f"layer {number}", layer.label + partly)
        if folder is not None and not (folder / FILE_NAME).exists():
            self._fact("settings", "user file", f"{folder / FILE_NAME} (none)")
        self._bundle(deployment)
        model = self._args.model or deployment.model
        source = "--model" if self._args.model else deployment.where(("model",))
        self._fact("settings", "model", f"{model} ({source})")
        self.notes.extend(deployment.notes)
        return deployment

    def _bundle(self, deployment: Deployment) -> None:
        try:
            choice = explain_bundle(deployment)
        except DshError as error:
            self._fact("settings", "bundle", "undecided")
            self._problem(error.message, error.hint)
            return
        told = f"none ({deployment.where(('bundle',))})" if choice is None else _told(choice)
        self._fact("settings", "bundle", told)

    def _seams(self, deployment: Deployment) -> None:
        for key in installed_seam_keys():
            try:
                self._fact("seams", key, _told(explain_choice(deployment, key)))
            except DshError as error:
                self._fact("seams", key, "undecided")
                self._problem(error.message, error.hint)

    def _keys(self, deployment: Deployment) -> None:
        for row in deployment.rows:
            if row.use == _ADAPTER and not row.disabled:
                provider = str(row.config.get("provider", "deepseek"))
                self._fact("keys", provider, _key_source(deployment, row, provider))

    def _start(self, deployment: Deployment) -> None:
        """Start the app without an agent, and ask whether the model could be called."""
        # only this check needs the machinery
        import anyio

        from dsh.cli._logs import Logs

        try:
            with Logs():
                anyio.run(self._try, deployment)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            message, _, hint = describe(unwrap(error))
            self._problem(message, hint)

    async def _try(self, deployment: Deployment) -> None:
        from dsh.llm import LlmService
        from dsh.loader import open_app

        async with open_app(deployment) as app:
            for name, mount in app.rows.items():
                self._fact("plugins", name, mount.state.value)
            self._sessions(app)
            service = app.get(LlmService)
            model = self._args.model or deployment.model
            if service is None or model is None:
                self._problem("no model is named", "set `model` in dsh.yaml, or use --model")
                return
            problem = service.preflight(model, deployment.effort)
            if problem is not None:
                self._problem(problem.message, problem.hint)

    def _sessions(self, app: LoadedApp) -> None:
        """Say who keeps the sessions, and where one of this folder would be."""
        from dsh.session import SessionHeader
        from dsh.session_persistence import SessionPersistence

        store = app.get(SessionPersistence)
        if store is None:
            row = any(row.use == RECORD for row in app.deployment.rows)
            why = "disabled" if row else "not in the settings"
            self._fact("sessions", "recorded", f"no: the row `{RECORD}` is {why}")
            return
        made_up = "0" * 32  # one of the form that ids have: a store may escape others
        header = SessionHeader(id=made_up, created_at=0, cwd=str(working_folder(self._args.cwd)))
        place = store.locate(header) or "the store does not say"
        self._fact("sessions", "recorded", f"yes, by {store.name}")
        self._fact("sessions", "place", place.replace(made_up, "ID"))

    def _fact(self, section: str, name: str, text: str) -> None:
        self.sections.setdefault(section, []).append(Fact(name, text))

    def _problem(self, text: str, hint: str | None = None) -> None:
        problem = Problem(text, hint)
        if problem not in self.problems:  # the start meets what was seen before
            self.problems.append(problem)


def _told(choice: SeamChoice) -> str:
    """Return what was chosen, why, and what was not."""
    point = choice.provider
    others = [other.name for other in choice.candidates if other.name != point.name]
    beside = f"; also installed: {', '.join(others)}" if others else ""
    source = f"{point.dist_name} {point.dist_version}".rstrip()
    return f"{point.name} from {source}: {choice.detail}{beside}"


def foreign_packages() -> list[Path]:
    """Return every `dsh/__init__.py` on the import path; our namespace has none."""
    found = [Path(folder or ".", "dsh", "__init__.py") for folder in sys.path]
    return list(dict.fromkeys(file for file in found if file.is_file()))


def _key_source(deployment: Deployment, row: Row, provider: str) -> str:
    if row.config.get("api_key") is not None:
        return f"the setting api_key ({deployment.where(('plugins', row.id, 'config', 'api_key'))})"
    variable = str(row.config.get("api_key_env", "DEEPSEEK_API_KEY"))
    if os.environ.get(variable, "").strip():
        return f"the environment variable {variable}"
    file = row.config.get("key_file")
    if file is None:
        return "none"
    try:
        data = read_private(Path(os.path.expanduser(str(file))))
        kept = key_file(provider)
    except (StateFileError, UsageError) as error:
        return error.message
    if not data or not data.strip():
        return "none"
    return f"{file} (dsh login)" if str(kept) == str(file) else f"the file {file}"


def _own_wheels() -> set[str]:
    """Return the names of the wheels that share the namespace."""
    import dsh

    return {f"dsh-{item.name.replace('_', '-')}" for item in pkgutil.iter_modules(dsh.__path__)}


def _wheels() -> dict[str, str]:
    """Return the version of each wheel of the namespace and of each that offers something."""
    found: dict[str, str] = {}
    for name in _own_wheels():
        version = version_of(name)
        if version is not None:
            found[name] = version
    for group in ("dsh.plugins", "dsh.commands", "dsh.defaults"):
        found.update({point.dist_name: point.dist_version for point in entry_points(group)})
    return found


def _owner_of(file: Path) -> str | None:
    """Return the distribution whose record lists a file of the import path."""
    for record in sorted(file.parent.parent.glob("*.dist-info/RECORD")):
        try:
            lines = record.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        if any(line.startswith("dsh/__init__.py,") for line in lines):
            return record.parent.name.partition("-")[0]
    return None
