"""What each command does, as functions that Python programs can call: no terminal, no options."""
