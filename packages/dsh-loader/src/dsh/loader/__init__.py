"""Deployments: a data file, layered and checked, turned into a running app.

`open_app` is the way in for embedders, `read_deployment` for front doors that follow a person's
own files, `run_sync` for scripts and notebooks. `dsh.loader.schema` describes the file to editors.
"""

from dsh.loader._app import LoadedApp, open_app
from dsh.loader._boot import explain_choice
from dsh.loader._bundles import (
    bundle_hint,
    check_pins,
    choose_bundle,
    explain_bundle,
    load_bundle,
)
from dsh.loader._choice import SeamChoice, installed_seam_keys
from dsh.loader._deployment import Deployment, Limits, Origin, Row, compose
from dsh.loader._layers import read_deployment
from dsh.loader._narrow import only_providers
from dsh.loader._paths import FILE_NAME, find_project_file
from dsh.loader._seams import SPINE_KEYS
from dsh.loader._show import render_deployment
from dsh.loader._sources import (
    Layer,
    LayerKind,
    RawFile,
    file_layer,
    mapping_layer,
    read_file,
)
from dsh.loader._sync import run_sync
from dsh.loader._trust import TrustRecord, TrustStore
from dsh.loader._untrusted import untrusted_layer
from dsh.loader._yaml import parse_yaml
from dsh.loader.errors import (
    BootError,
    ConfigFileError,
    ConfigKeyError,
    InterpolationError,
    PinError,
    PluginNameError,
    Problem,
    RowError,
    SeamError,
)

__all__ = [
    "FILE_NAME",
    "SPINE_KEYS",
    "BootError",
    "ConfigFileError",
    "ConfigKeyError",
    "Deployment",
    "InterpolationError",
    "Layer",
    "LayerKind",
    "Limits",
    "LoadedApp",
    "Origin",
    "PinError",
    "PluginNameError",
    "Problem",
    "RawFile",
    "Row",
    "RowError",
    "SeamChoice",
    "SeamError",
    "TrustRecord",
    "TrustStore",
    "bundle_hint",
    "check_pins",
    "choose_bundle",
    "compose",
    "explain_bundle",
    "explain_choice",
    "file_layer",
    "find_project_file",
    "installed_seam_keys",
    "load_bundle",
    "mapping_layer",
    "only_providers",
    "open_app",
    "parse_yaml",
    "read_deployment",
    "read_file",
    "render_deployment",
    "run_sync",
    "untrusted_layer",
]
