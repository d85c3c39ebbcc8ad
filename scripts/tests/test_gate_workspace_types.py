"""`check_workspace.py` on requirements that nothing but a type checker imports."""

from __future__ import annotations

from typing import Any

import pytest

LOCAL = "packages/dsh-local-shell"


@pytest.mark.parametrize(
    ("code", "alone"),
    [
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import rich", True),
        ("import typing\nif typing.TYPE_CHECKING:\n    from rich import a", True),
        ("import typing\nif not typing.TYPE_CHECKING:\n    pass\nelse:\n    import rich", True),
        ("import typing\nif typing.TYPE_CHECKING:\n    pass\nelse:\n    import rich", False),
        (
            "import typing\nif typing.TYPE_CHECKING:\n    import rich\n"
            "def late():\n    import rich",
            False,
        ),
    ],
)
def test_a_requirement_for_type_checkers_alone(
    tree: Any, findings: Any, code: str, alone: bool
) -> None:
    tree.edit("packages/dsh-core/pyproject.toml", '["anyio>=4.9"]', '["anyio>=4.9", "rich"]')
    tree.write("packages/dsh-core/src/dsh/core/_inner.py", code + "\n")
    told = "dsh-core: declares rich, which it imports for type checkers alone; do without it"
    assert findings() == ([told] if alone else [])


def test_an_own_requirement_for_type_checkers_alone(tree: Any, findings: Any) -> None:
    tree.edit(
        f"{LOCAL}/src/dsh/local_shell/__init__.py",
        "from dsh import shell\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dsh import shell\n",
    )
    (finding,) = findings()
    assert finding.startswith("dsh-local-shell: declares dsh-shell, which it imports for type chec")
