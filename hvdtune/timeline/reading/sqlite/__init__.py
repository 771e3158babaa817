"""Profiles that GPU profilers export as SQLite databases."""
