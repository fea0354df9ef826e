"""The pages: report.html of a run, of a group of cards, of a profile."""
