"""The public API of the workspace, read without importing it, and the rules it keeps."""
