"""Figures: each module turns frames into one plotly Figure and does nothing else."""
