"""What `docker compose up` starts, its dashboard and the images fit the program."""

import json
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import NoReturn

import pytest
import typer
import yaml
from prometheus_client.parser import text_string_to_metric_families

from engines.endpoint.server_stats import Pool
from harness import serving
from harness.request_tables.playback import CONTINUITY_GAP_S
from harness.serving import ServeConfig
from tests.conftest import Rehearse
from tests.live.sockets import Running, fetch, opened
from tests.waiting import run

ROOT = Path(__file__).parents[2]
SERVICES = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
DASHBOARD = json.loads((ROOT / "compose" / "grafana" / "dashboards" / "server.json").read_text())
PROMETHEUS = yaml.safe_load((ROOT / "compose" / "prometheus.yml").read_text())
PANELS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
ALERTS = yaml.safe_load((ROOT / "compose" / "alerts.yml").read_text())["groups"][0]["rules"]
EXPRESSIONS = PANELS + [alert["expr"] for alert in ALERTS if not alert["expr"].startswith("up{")]


def happened(running: Running) -> None:
    """One of everything that has labels, as series come into being with the first."""
    running.stats.turns["completed"] += 1
    running.stats.step(0.0, 0.01, "thinker", *[1] * 9)
    running.stats.pools["thinker", 0] = Pool(1, 8)
    running.server.refused["full"] += 1
    running.server.closed[1000] += 1


@pytest.fixture(scope="module")
def published() -> dict[str, dict[str, set[str]]]:
    """Names of a server's series -> names of their labels -> their values."""

    async def page() -> str:
        async with opened() as running:
            before = running.server.closed.copy()
            happened(running)
            _, text = await fetch(running, "/metrics")
            running.server.closed = before
        return text

    series: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for family in text_string_to_metric_families(run(page())):
        for sample in family.samples:
            labels = series[sample.name]
            for name, value in sample.labels.items():
                labels[name].add(value)
    return series


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_panel_and_alert_asks_for_what_a_server_publishes(
    published: dict[str, dict[str, set[str]]], expression: str
):
    names = re.findall(r"\brehearsal_\w+", expression)
    assert names and set(names) <= set(published)
    for grouped in re.findall(r"by \(([^)]*)\)", expression):
        labels = set(grouped.split(", ")) - {"instance"}  # which Prometheus adds
        assert all(labels <= set(published[name]) for name in names)
    for name, label, value in re.findall(r'(\brehearsal_\w+)\{(\w+)="([^"]*)"\}', expression):
        assert value in published[name][label]


def test_the_dashboard_and_its_alert_count_gaps_as_reports_do():
    expressions = " ".join(EXPRESSIONS)
    bounds = re.findall(r'rehearsal_longest_playback_gap_seconds_bucket\{le="([^"]*)"\}', expressions)
    assert [float(bound) for bound in bounds] == [CONTINUITY_GAP_S] * 2  # a panel and an alert


def left(status: int) -> NoReturn:
    """Leave the command, and not the test."""
    raise typer.Exit(status)


def test_the_server_of_compose_starts_on_the_port_that_the_others_use(
    rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch
):
    served: list[ServeConfig] = []
    monkeypatch.setattr(serving, "serve", lambda config, *_: served.append(config) or 0)
    monkeypatch.setattr(serving, "leave", left)
    assert rehearse("serve", *SERVICES["server"]["command"][1:])[0] == 0
    port = served[0].port
    (scraped,) = PROMETHEUS["scrape_configs"][0]["static_configs"][0]["targets"]
    called = re.findall(r"\w+://([^/]+)/", " ".join(SERVICES["load"]["command"]))
    assert {scraped, *called} == {f"server:{port}"}
    assert SERVICES["server"]["ports"] == [f"127.0.0.1:{port}:{port}"]
    image = (ROOT / "Dockerfile").read_text()
    assert f"EXPOSE {port}\n" in image
    assert f"http://127.0.0.1:{port}/health" in image


def test_compose_and_the_kubernetes_job_call_with_commands_that_rehearse_takes(
    rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SERVER_TOKEN", "secret")
    _, job = yaml.safe_load_all((ROOT / "compose" / "job.yaml").read_text())
    (live,) = job["spec"]["template"]["spec"]["containers"]
    for command in (SERVICES["load"]["command"], live["args"]):
        status, planned, _ = rehearse(*command, "--dry-run")
        assert status == 0
        assert planned.endswith("3 points\n")
    assert f"--token-env={live['env'][0]['name']}" in live["args"]
    assert job["spec"]["backoffLimit"] == 0, "a verdict that fails is not to be measured again"


def test_the_server_has_time_to_drain_and_only_this_machine_reaches_the_services():
    drain_s = ServeConfig.model_validate({"engine": "liveserve"}).drain_s
    assert float(SERVICES["server"]["stop_grace_period"].removesuffix("s")) > drain_s
    assert all(port.startswith("127.0.0.1:") for service in SERVICES.values() for port in service.get("ports", []))


def installed(text: str) -> list[str]:
    """Return the arguments of each `pip install` without its flags for less output."""
    commands = re.findall(r"pip install (.+?)(?:\s*&&.*)?$", text.replace("\\\n", " "), re.MULTILINE)
    quiet = ("--quiet", "--disable-pip-version-check")
    return [" ".join(sorted(word for word in line.split() if word not in quiet)) for line in commands]


@pytest.mark.parametrize(("target", "image", "count"), [(".venv", "", 3), (".venv-live", ".live", 2)])
def test_an_image_installs_what_make_installs(target: str, image: str, count: int):
    made = subprocess.run(
        ["make", "--dry-run", "--always-make", f"{target}/.ready"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    rule = made.stdout
    text = (ROOT / f"Dockerfile{image}").read_text()
    assert installed(text) == installed(rule) and len(installed(text)) == count
