"""The figures and tables of the ConServe paper."""
