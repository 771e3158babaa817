"""Jobs whose ranks come and go: one launch, and a study in it."""
