"""Device sockets: the engines of virtual time behind real sockets, for the same experiment.

The server is a process of its own with the modelled devices on the wall clock; users reach it in dialect rehearsal,
which tells it how long each reply is. Network delays of the trace are added by the clients, as in virtual time.
"""

from harness.experiments.experiment import Point
from harness.kinds import kind_of
from harness.live.run.measure import measure_target
from harness.live.target import TargetParams
from harness.records.record import Measurement
from harness.serving import ServeConfig, ServerProcess


def measure_sockets(point: Point) -> Measurement:
    """Start a server for `point`, play its users against it, and stop the server; raises as `measure_live`."""
    trace = point.trace()
    kind = kind_of(trace)
    timing = kind.timing(point.system, point.server, trace)
    # Users who hang up are gone a moment later than the next ones come.
    most = 2 * (point.client.c or len(trace.sessions)) + 8
    config = ServeConfig.model_validate(
        {
            "engine": point.engine,
            "settings": {**point.server_params, **point.engine_params},
            "profile": point.profile,
            "seed": point.seed,
            "limits": {"max_sessions": most},
            **kind.serve_settings(trace),
        }
    )
    with ServerProcess(config) as server:
        said = {"url": server.url, "dialect": "rehearsal", "scrape": server.metrics_url}
        return measure_target(point, TargetParams.model_validate(said), timing=timing)
