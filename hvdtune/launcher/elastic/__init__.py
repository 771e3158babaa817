"""Jobs whose ranks come and go: who is in the next generation, and how it is brought together."""
