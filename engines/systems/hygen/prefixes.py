"""HyGen's prefix sharing maximization: offline requests form a tree by their prefixes, and are served depth first."""

from collections import Counter
from collections.abc import Iterable

from engines.core.policy import RequestView

Path = tuple[tuple[int, int], ...]
"""Where a request lies in the tree: each time it leaves the way of another one, (-depth, number of who went there
first), and where it ends. Ascending order is depth first: who leaves a common way later comes earlier, then who came
first at a fork."""


class PrefixTree:
    """The offline requests that are there, running ones included, by the hashes of their blocks.

    A hash is of all that is before it too, so that the hashes are the nodes.
    """

    def __init__(self) -> None:
        self._paths: dict[str, Path] = {}
        self._nodes: dict[str, tuple[bytes, ...]] = {}
        self._first: dict[bytes, int] = {}
        self._through: Counter[bytes] = Counter()
        self._number = 0

    def keep(self, requests: Iterable[RequestView]) -> None:
        """These and no others; who is new goes in as it came."""
        here = {request.id: request for request in requests}
        for gone in self._paths.keys() - here.keys():
            self._remove(gone)
        new = [request for id, request in here.items() if id not in self._paths]
        for request in sorted(new, key=lambda request: (request.ready_s, request.id)):
            self._add(request)

    def path(self, request: RequestView) -> Path:
        return self._paths[request.id]

    def _add(self, request: RequestView) -> None:
        number, path = self._number, []
        self._number += 1
        nodes = self._nodes[request.id] = tuple(request.hashes)
        for depth, node in enumerate(nodes):
            first = self._first.setdefault(node, number)
            if not path or path[-1][1] != first:
                path.append((-depth, first))
        self._through.update(nodes)
        self._paths[request.id] = (*path, (-len(nodes), number))

    def _remove(self, id: str) -> None:
        del self._paths[id]
        for node in self._nodes.pop(id):
            self._through[node] -= 1
            if not self._through[node]:
                del self._through[node], self._first[node]
