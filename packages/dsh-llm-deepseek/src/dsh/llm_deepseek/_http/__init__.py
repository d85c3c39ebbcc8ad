"""What speaks HTTP: everything in this folder loads the HTTP library.

Nothing outside of it imports it before the first request, so that a program which never asks a
model pays for none of that.
"""
