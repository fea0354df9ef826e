"""Rules of routing, a file each. What they are made with is a stage's replicas, or what stands for them."""

from rehearsal.engines.core.routers.dynamo import Dynamo
from rehearsal.engines.core.routers.least_load import LeastLoad
from rehearsal.engines.core.routers.least_work import LeastWork
from rehearsal.engines.core.routers.omniproxy import OmniProxy, OmniProxyByLoad, OmniProxyOfCode
from rehearsal.engines.core.routers.prefix_match import PrefixMatch
from rehearsal.engines.core.routers.round_robin import RoundRobin
from rehearsal.engines.core.routers.session_affinity import SessionAffinity

RULES = {
    "session_affinity": SessionAffinity,
    "round_robin": RoundRobin,
    "least_load": LeastLoad,
    "least_work": LeastWork,
    "prefix_match": PrefixMatch,
    "dynamo": Dynamo,
    "omniproxy": OmniProxy,
    "omniproxy_load": OmniProxyByLoad,
    "omniproxy_oss": OmniProxyOfCode,
}
