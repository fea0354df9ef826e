"""The cost of batch to users: their P99, or continuity, over the tokens per second of the documents served with
them."""

from reports.cost.batch_cost import BATCH, GAIN, beside, user_columns
from reports.figures.drawing import few_loads, legend, load_colours, sheet
from reports.figures.picture import LeftOut, Picture
from reports.live.live_record import all_of
from reports.runs.measured import Run
from reports.tables.labels import setting

NAME = "batch_cost"
TITLE = "Cost of batch jobs for the users"


def draw(run: Run) -> Picture | LeftOut:
    counted = [point for point in run.points if point.error is None]
    points = run.finished
    axes = [axis for axis, _ in run.cells[0]]
    rows = beside(points, axes)
    if not any(row.documents for row in rows):
        return LeftOut(NAME, TITLE, "no point with documents counts")
    users = user_columns(points)
    figure, panels = sheet(len(users), TITLE, 3.3, len(users))
    cells = few_loads(list(dict.fromkeys(row.cell for row in rows)))
    for column, panel in zip(users, panels, strict=True):
        for cell, colour in zip(cells, load_colours(len(cells)), strict=True):
            known = [
                (GAIN.rounded(gain), column.rounded(value), row.documents)
                for row in rows
                if row.cell == cell
                and (gain := row.spreads[GAIN.metric].median) is not None
                and (value := row.spreads[column.metric].median) is not None
            ]
            label = setting(dict(zip([axis for axis in axes if axis != BATCH], cell, strict=True)))
            gains, values = [x for x, _, _ in known], [y for _, y, _ in known]
            panel.plot(gains, values, "o-", ms=5, lw=1.6, color=colour, label=label)
            for x, y, documents in known:
                panel.annotate(str(documents), (x, y), (5, 5), textcoords="offset points", fontsize=9)
        panel.set(xlabel="batch tokens per second", ylabel=f"{column.heading}, {column.unit}", ylim=(0, None))
    legend(figure)
    caption = (
        "Numbers at the markers are documents in flight; the users are the same at each, and 0 is "
        f"without documents. Medians over seeds. {all_of(counted)}"
    )
    return Picture(NAME, TITLE, figure, caption)
