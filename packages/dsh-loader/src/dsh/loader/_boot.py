"""Bringing a deployment to life: import everything, check everything, mount, settle, diagnose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from dsh.core import App, DshError, Mount, MountState, PluginLike
from dsh.core.json import JsonObject
from dsh.loader._bundles import bundle_hint, explain_bundle, load_bundle
from dsh.loader._choice import (
    Defaults,
    SeamChoice,
    find_candidate,
    installed_defaults,
    no_candidate,
    seam_slot,
)
from dsh.loader._deployment import Deployment, Row
from dsh.loader._plugins import checked_config, load_plugin, load_point
from dsh.loader._seams import (
    SPINE_KEYS,
    candidates_for,
    choose_provider,
    provider_config,
    short_name,
)
from dsh.loader._sources import Layer, LayerKind
from dsh.loader._suggest import nearest
from dsh.loader._yaml import KeyPath
from dsh.loader.errors import (
    BootError,
    ConfigKeyError,
    PinError,
    Problem,
    RowError,
    SeamError,
    deepest_cause,
)


class Boot:
    """One start of a deployment in an app that has been entered and is empty.

    Args:
        app: Where to mount.
        deployment: What to mount.
        extra: Plugins given as objects, with their settings, mounted after the rows.
    """

    def __init__(
        self,
        app: App,
        deployment: Deployment,
        extra: Iterable[tuple[PluginLike, object]] = (),
    ) -> None:
        self._app = app
        self._deployment = deployment
        self._extra = tuple(extra)
        self._defaults: tuple[Defaults, ...] | None = None
        self.rows: dict[str, Mount] = {}
        """The mount of each row, of the bundle and of each chosen provider, by name."""
        self.seams: dict[str, SeamChoice] = {}
        """The provider chosen for each service key that needed one."""
        self.bundle: SeamChoice | None = None
        """The bundle, once it is chosen; none where the deployment wants none."""

    async def run(self) -> None:
        """Mount everything and wait until it is active.

        Raises:
            PluginNameError: A row names a plugin that is not installed.
            PinError: A wheel has another version than the bundle pins.
            RowError: A plugin could not be imported.
            ConfigKeyError: A setting is unknown or does not fit.
            SeamError: Several providers of a service, or several bundles, are equally good, or the
                named one is absent.
            BootError: Something did not become active; says what and why.
        """
        self.bundle = explain_bundle(self._deployment, defaults=self._all_defaults())
        for part in self._loaded():
            self._mount(part)
        for plugin, config in self._extra:
            mount = self._app.mount(plugin, config)
            self.rows.setdefault(mount.name, mount)
        for key in self._deployment.seams:
            self._provide(key)
        await self._settle()
        while self._provide_missing():
            await self._settle()
        self._check_unused_sections()
        if self._app.root.ending:
            return  # a plugin closed the app while it started, which is its right
        problems = self._audit()
        if problems:
            raise BootError(problems)

    # -- importing and mounting --------------------------------------------------------------

    def _loaded(self) -> list[_Part]:
        """Import every enabled row, and check its settings, before any of them starts."""
        loaded: list[tuple[Row, PluginLike, _PathOf]] = []
        failures: list[tuple[Row, DshError]] = []
        for row, base in self._wanted():
            try:
                plugin = self._load(row)
            except PinError:
                raise  # whatever else does not load may be due to it
            except DshError as error:
                failures.append((row, error))
            else:
                loaded.append((row, plugin, self._path_of(base)))
        if len(failures) == 1:
            raise failures[0][1]
        if failures:
            raise BootError(
                [Problem(row.id, "failed", str(error), error) for row, error in failures]
            )
        return [_checked(row.id, plugin, row.config, path_of) for row, plugin, path_of in loaded]

    def _wanted(self) -> Iterable[tuple[Row, KeyPath]]:
        rows = self._deployment.rows
        name = self._bundle_name
        if name is not None and all(row.use != name for row in rows):
            origin = self._deployment.origins.get(("bundle",))
            layer = origin.layer if origin is not None else _BUILT_IN
            yield Row(name, name, self._deployment.agent, False, layer), ("agent",)
        for row in rows:
            if not row.disabled:
                yield self._with_section(row), ("plugins", row.id, "config")

    def _load(self, row: Row) -> PluginLike:
        if self.bundle is not None and row.use == self._bundle_name and ":" not in row.use:
            return load_bundle(self.bundle, row.where)
        return load_plugin(row)

    @property
    def _bundle_name(self) -> str | None:
        return None if self.bundle is None else self.bundle.provider.name

    def _with_section(self, row: Row) -> Row:
        """Lay the settings of a row over the section of the service key it provides, if any."""
        for key in self._deployment.data:
            points = candidates_for(key)
            if any(point.name == row.use for point in points):
                section = provider_config(key, self._deployment.section(key), row.use, points)
                return Row(row.id, row.use, {**section, **row.config}, row.disabled, row.layer)
        return row

    def _mount(self, part: _Part) -> None:
        mount = self._app.mount(part.plugin, part.config)
        mount.name = part.name
        self.rows[part.name] = mount

    def _path_of(self, base: KeyPath) -> _PathOf:
        def path_of(location: KeyPath) -> tuple[str, str]:
            path = (*base, *location)
            return self._deployment.where(path), ".".join(path)

        return path_of

    # -- seams -------------------------------------------------------------------------------

    def _provide_missing(self) -> bool:
        """Mount a provider for each service key that something waits for; tell if any was."""
        before = len(self.seams)
        for mount in self._app.mounts:
            if mount.state is not MountState.PENDING:
                continue
            for key in mount.missing():
                if key not in self.seams and not self._is_offered(key) and candidates_for(key):
                    self._provide(key)
        return len(self.seams) > before

    def _is_offered(self, key: str) -> bool:
        """Whether something mounted will provide `key` once it is active."""
        return any(_would_provide(mount, key) for mount in self._app.mounts)

    def _choose(self, key: str) -> SeamChoice:
        return _chosen(self._deployment, key, self.bundle, self._all_defaults())

    def _provide(self, key: str) -> None:
        choice = self.seams[key] = self._choose(key)
        if not self._is_offered(key):  # by a row of the deployment, which then is the provider
            self._mount(self._provider(choice))

    def _provider(self, choice: SeamChoice) -> _Part:
        """Import what was chosen and check its settings."""
        key, provider = choice.key, choice.provider
        section = self._deployment.section(key)
        config = provider_config(key, section, provider.name, choice.candidates)
        where = self._deployment.where((key,) if section else ("seams", key))
        plugin = load_point(provider, provider.name, where)
        path_of = self._section_path_of(key, provider.name, section)
        try:
            return _checked(provider.name, plugin, config, path_of)
        except ConfigKeyError as error:
            name = error.path.removeprefix(f"{key}.")
            if isinstance(section.get(name), dict) and error.unknown:
                error = self._no_such_provider(choice, name, error)
            raise error from error.__cause__

    def _no_such_provider(
        self, choice: SeamChoice, name: str, error: ConfigKeyError
    ) -> ConfigKeyError:
        """Say of a mapping in a section that it is neither a field nor a provider's settings."""
        names = [short_name(choice.key, point.name) for point in choice.candidates]
        close = nearest(name, names)
        return ConfigKeyError(
            error.where,
            error.path,
            "neither a field nor the settings of an installed provider, which are "
            + ", ".join(names),
            hint=f"did you mean {close!r}?" if close else error.hint,
            unknown=True,
        )

    def _check_unused_sections(self) -> None:
        """Check the settings of services nobody asked for, so that a slip is told all the same."""
        for key in self._deployment.data:
            if not candidates_for(key) or key in self.seams or self._is_offered(key):
                continue
            with suppress(SeamError, RowError):
                self._provider(self._choose(key))

    def _section_path_of(self, key: str, provider: str, section: JsonObject) -> _PathOf:
        def path_of(location: KeyPath) -> tuple[str, str]:
            short = short_name(key, provider)
            path = (key, *location)
            for name in (provider, short):
                own = section.get(name)
                if isinstance(own, dict) and location and location[0] in own:
                    path = (key, name, *location)
                    break
            else:
                if location and location[0] not in section:  # nobody wrote it: it is missing
                    path = (key, short, *location)
            where = self._deployment.where(path) if section else f"settings of {provider}"
            return where, ".".join(path)

        return path_of

    def _all_defaults(self) -> Iterator[Defaults]:
        """Yield what is declared; read once, and not before somebody wants to know."""
        if self._defaults is None:
            self._defaults = installed_defaults()
        yield from self._defaults

    # -- settling and diagnosis --------------------------------------------------------------

    async def _settle(self) -> None:
        while True:
            busy = [mount for mount in self._app.mounts if mount.busy]
            if not busy:
                return
            for mount in busy:
                with suppress(Exception):  # the audit tells it, with all the others
                    await mount.settled()

    def _audit(self) -> list[Problem]:
        failed: list[Problem] = []
        pending: list[Problem] = []
        for mount in self._app.mounts:
            if mount.definition.target is None or mount.state is MountState.ACTIVE:
                continue
            if mount.state is MountState.FAILED:
                failed.append(
                    Problem(self._name_of(mount), "failed", _told(mount.error), mount.error)
                )
            elif mount.state is MountState.PENDING:
                pending.append(Problem(self._name_of(mount), "pending", self._waiting(mount)))
            else:
                pending.append(
                    Problem(self._name_of(mount), "missing", f"is still {mount.state.value}")
                )
        gone = [
            Problem(name, "missing", "was disposed while the app started")
            for name, mount in self.rows.items()
            if mount.state is MountState.DISPOSED
        ]
        return [*failed, *gone, *pending]

    def _name_of(self, mount: Mount) -> str:
        for name, row in self.rows.items():
            if row is mount:
                return name
            if row.owns(mount):
                return f"{name} > {mount.name}"
        return mount.name

    def _waiting(self, mount: Mount) -> str:
        missing = mount.missing()
        if not missing:
            return "pending, although nothing is missing"
        told = [f"{key!r} ({self._who_provides(key, mount)})" for key in missing]
        noun = "service" if len(told) == 1 else "services"
        text = f"waits for the {noun} " + ", ".join(told)
        for cycle in self._app.explain().cycles:
            if mount.name in cycle:
                ring = " -> ".join((*cycle, cycle[0]))
                return f"{text}; a cycle: {ring}"
        return text

    def _who_provides(self, key: str, waiting: Mount) -> str:
        for mount in self._app.mounts:
            if mount is not waiting and _would_provide(mount, key):
                return f"{self._name_of(mount)} would provide it but is {mount.state.value}"
        if key in SPINE_KEYS:
            if self._bundle_name is None:
                return f"a bundle provides it; {bundle_hint()}"
            row = self.rows.get(self._bundle_name)
            failed = row is not None and row.state is MountState.FAILED
            fault = "did not start" if failed else "does not provide it"
            return f"the bundle {self._bundle_name} {fault}"
        points = candidates_for(key)
        if points:
            chosen = self.seams.get(key)
            provider = None if chosen is None else self.rows.get(chosen.provider.name)
            active = provider is not None and provider.state is MountState.ACTIVE
            if chosen is not None and active:
                point = chosen.provider
                return (
                    f"{point.name} from {point.dist_name} is offered for it and active, but "
                    f"{point.value} does not provide it: derive it from the class with that key"
                )
            names = ", ".join(f"{point.name} from {point.dist_name}" for point in points)
            return f"installed, but out of its reach: {names}"
        error = no_candidate(
            seam_slot(key), self._all_defaults(), app=self._deployment.app, bundle=self._bundle_name
        )
        return f"nothing installed provides it; {error.hint}"


def explain_choice(deployment: Deployment, key: str) -> SeamChoice:
    """Return which provider `deployment` would use for a service key, without importing it.

    Raises:
        SeamError: Nothing serves the key, or several do equally well.
    """
    points = candidates_for(key)
    served = ((row, find_candidate(key, row.use, points)) for row in deployment.rows)
    row, point = next(((row, point) for row, point in served if point), (None, None))
    if row is not None and point is not None and not row.disabled:
        return SeamChoice(key, point, "named", f"a row in {row.where}", points)
    bundle: SeamChoice | None = None
    with suppress(SeamError):  # two bundles leave the provider as it is, unless it is their default
        bundle = explain_bundle(deployment)
    return _chosen(deployment, key, bundle, None)


def _chosen(
    deployment: Deployment,
    key: str,
    bundle: SeamChoice | None,
    defaults: Iterable[Defaults] | None,
) -> SeamChoice:
    return choose_provider(
        key,
        named=deployment.seams.get(key),
        where=deployment.where(("seams", key)),
        app=deployment.app,
        bundle=None if bundle is None else bundle.provider.name,
        defaults=defaults,
    )


_PathOf = Callable[[KeyPath], tuple[str, str]]
_BUILT_IN: Final = Layer(LayerKind.DEFAULTS, "the bundle", {})


@dataclass(frozen=True, slots=True)
class _Part:
    """A plugin that is imported and whose settings are checked, ready to be mounted."""

    name: str
    plugin: PluginLike
    config: object


def _checked(name: str, plugin: PluginLike, config: JsonObject, path_of: _PathOf) -> _Part:
    try:
        return _Part(name, plugin, checked_config(plugin, config, path_of))
    except TypeError as error:  # it is no plugin, or injects what is no service
        raise RowError(name, path_of(())[0], str(error)) from error


def _would_provide(mount: Mount, key: str) -> bool:
    declared = getattr(mount.definition.target, "service_key", None) == key
    return declared or any(registration.impl.key == key for registration in mount.impls)


def _told(error: BaseException | None) -> str:
    if error is None:
        return "failed without saying why"
    if isinstance(error, DshError):
        return str(error)
    cause = deepest_cause(error)
    text = f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
    place = _place(cause)
    return f"{text} ({place})" if place else text


def _place(error: BaseException) -> str:
    """Return where an error was raised, as `file:line in function`."""
    trace = error.__traceback__
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return f"{code.co_filename}:{trace.tb_lineno} in {code.co_name}"
