"""Tables: which metrics they show, and how a number is written."""
