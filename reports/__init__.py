"""What a reader sees: the command line, tables, figures, the HTML report and the figure cards."""
