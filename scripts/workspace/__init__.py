"""The rules of the workspace, one module each; `check_workspace.py` runs them."""
