"""The page that shows a trace and the study beside it; `app.serve` is the way in."""
