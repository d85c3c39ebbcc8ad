"""What `check_events.py` holds, one subject a file."""
