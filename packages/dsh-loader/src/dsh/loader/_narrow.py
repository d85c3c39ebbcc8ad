"""A deployment reduced to the providers of some services."""

from __future__ import annotations

from dsh.core.json import JsonObject, JsonValue
from dsh.loader._boot import explain_choice
from dsh.loader._deployment import Deployment, Row
from dsh.loader._plugins import load_plugin
from dsh.loader._seams import candidates_for


def only_providers(deployment: Deployment, *keys: str) -> Deployment:
    """Return a deployment that mounts the providers of some services and nothing else.

    They are the ones that `deployment` would use, with the settings it gives them; there is no
    bundle and no other row. For commands that need one part of an app, a store for example, and
    shall not start the rest for it.

    Args:
        deployment: What to take from.
        keys: The service keys.

    Raises:
        SeamError: Nothing serves one of the keys, or several providers do equally well.
        PluginNameError: A row names a plugin that is not installed.
        RowError: A row that names code did not load.
    """
    data: JsonObject = {"bundle": None}
    rows: JsonObject = {}
    seams: JsonObject = {}
    for key in keys:
        own = [row for row in deployment.rows if not row.disabled and _provides(row, key)]
        rows.update({row.id: _written(row) for row in own})
        if not own:
            seams[key] = explain_choice(deployment, key).provider.name
        section = deployment.section(key)
        if section:
            data[key] = section
    if rows:
        data["plugins"] = rows
    if seams:
        data["seams"] = seams
    return Deployment(data, deployment.layers, deployment.origins, deployment.app)


def _provides(row: Row, key: str) -> bool:
    if any(point.name == row.use for point in candidates_for(key)):
        return True
    if ":" not in row.use and not row.use.startswith((".", "/", "~")):
        return False
    # a row that names code says only once it is imported what it provides
    return getattr(load_plugin(row), "service_key", None) == key


def _written(row: Row) -> JsonObject:
    written: dict[str, JsonValue] = {"use": row.use}
    if row.config:
        written["config"] = row.config
    return written
