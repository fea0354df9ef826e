"""The reader's side: the command line, tables, figures, the HTML report and the figure cards."""
