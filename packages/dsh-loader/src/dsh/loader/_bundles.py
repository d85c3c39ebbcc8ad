"""Which installed bundle mounts the spine, and whether its parts are the ones it was made for."""

from __future__ import annotations

from collections.abc import Iterable

from dsh.core import EntryPoint, PluginLike, requirements_of, version_of
from dsh.loader._choice import BUNDLE, Defaults, SeamChoice, choose
from dsh.loader._deployment import Deployment
from dsh.loader._plugins import load_point
from dsh.loader.errors import PinError


def choose_bundle(
    named: str | None = None,
    *,
    where: str = "the deployment",
    app: str | None = None,
    defaults: Iterable[Defaults] | None = None,
) -> SeamChoice:
    """Pick the bundle, by the rule of `choose_provider`; candidates are the `dsh.bundles`.

    Args:
        named: What the deployment names; `module:attribute` names a bundle no wheel lists.
        where: Where it does, for messages.
        app: Name of the app being started.
        defaults: Declared defaults; the installed ones if not given.

    Raises:
        SeamError: No bundle is installed, the named one is not, or several are equally good.
    """
    if named is None or ":" not in named:
        return choose(BUNDLE, named=named, where=where, app=app, defaults=defaults)
    points = BUNDLE.candidates
    unlisted = EntryPoint(named, named, BUNDLE.group, "no wheel", "")
    point = next((item for item in points if item.value == named), unlisted)
    return SeamChoice(BUNDLE.key, point, "named", f"named in {where}", points)


def explain_bundle(
    deployment: Deployment, *, defaults: Iterable[Defaults] | None = None
) -> SeamChoice | None:
    """Return which bundle `deployment` would use, without importing it; `None` for `bundle: null`.

    Where no layer names a bundle, a row that mounts one settles it.

    Args:
        deployment: The deployment.
        defaults: Declared defaults; the installed ones if not given.

    Raises:
        SeamError: As `choose_bundle`.
    """
    if deployment.without_bundle:
        return None
    points = {point.name: point for point in BUNDLE.candidates}
    rows = [row for row in deployment.rows if row.use in points and not row.disabled]
    if deployment.bundle is None and rows:
        point, detail = points[rows[0].use], f"a row in {rows[0].where}"
        return SeamChoice(BUNDLE.key, point, "named", detail, BUNDLE.candidates)
    return choose_bundle(
        deployment.bundle,
        where=deployment.where(("bundle",)),
        app=deployment.app,
        defaults=defaults,
    )


def load_bundle(choice: SeamChoice, where: str = "the deployment") -> PluginLike:
    """Import a bundle, once it is sure that the wheels it pins are there in these versions.

    Args:
        choice: What `choose_bundle` returned.
        where: What named it, for messages.

    Raises:
        PinError: A wheel has another version than the bundle's wheel pins.
        RowError: The code raised, whatever it raised.
    """
    check_pins(choice.provider.dist_name)
    return load_point(choice.provider, choice.provider.name, where)


def check_pins(distribution: str) -> None:
    """Refuse wheels in other versions than an installed distribution requires with `==`.

    What is not installed at all is left to the import that needs it, so that a deployment may
    replace a wheel it does not want.

    Args:
        distribution: Name of the distribution.

    Raises:
        PinError: Names each such wheel, its version and the one that is needed.
    """
    wrong = [
        item
        for item in requirements_of(distribution)
        if item.installed is not None and not item.met
    ]
    if wrong:
        raise PinError(distribution, version_of(distribution) or "unknown", wrong)


def bundle_hint() -> str:
    """Return how to get a bundle mounted: the line that names one, or what to install."""
    names = [point.name for point in BUNDLE.candidates]
    if not names:
        return "install dsh-agent-core"
    return "set " + " or ".join(BUNDLE.line(name) for name in names)
