"""What `docker compose up` starts fits the program and itself: commands, metrics, ports, files and locks."""

import json
import os
import re
import subprocess
import tomllib
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
GRAFANA = ROOT / "compose" / "grafana"
DASHBOARD = json.loads((GRAFANA / "dashboards" / "server.json").read_text())
DATASOURCE = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yaml").read_text())
PANELS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
ALERTS = yaml.safe_load((ROOT / "compose" / "alerts.yml").read_text())["groups"][0]["rules"]
EXPRESSIONS = PANELS + [alert["expr"] for alert in ALERTS if not alert["expr"].startswith("up{")]
CONTINUOUS = re.compile(r'rehearsal_longest_playback_gap_seconds_bucket\{le="([^"]*)"\}')


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


def test_a_reply_without_a_gap_is_on_the_dashboard_what_it_is_in_a_report():
    first, *_ = DASHBOARD["panels"]
    bounds = [bound for target in first["targets"] for bound in CONTINUOUS.findall(target["expr"])]
    bounds += [bound for alert in ALERTS for bound in CONTINUOUS.findall(alert["expr"])]
    assert len(bounds) == 2 and {float(bound) for bound in bounds} == {CONTINUITY_GAP_S}


def test_alerts_begin_where_the_headline_turns_red():
    config = DASHBOARD["panels"][0]["fieldConfig"]
    (of_ttfp,) = config["overrides"]
    (thresholds,) = [each["value"] for each in of_ttfp["properties"] if each["id"] == "thresholds"]
    continuity, ttfp = config["defaults"]["thresholds"]["steps"][-1], thresholds["steps"][-1]
    assert (continuity["color"], ttfp["color"]) == ("green", "red")
    limits = {alert["alert"]: float(alert["expr"].split()[-1]) for alert in ALERTS}
    assert limits["RehearsalRepliesWithGaps"] == continuity["value"]
    assert limits["RehearsalSlowFirstAudio"] == ttfp["value"]


def test_rates_are_taken_of_what_only_grows_and_nothing_else_is_shown_as_it_stands():
    for expression in EXPRESSIONS:
        for name in re.findall(r"\brehearsal_\w+", expression):
            grows = name.endswith(("_total", "_bucket", "_count", "_sum"))
            assert grows == bool(re.search(rf"rate\({name}(\{{[^}}]*\}})?\[", expression))


def left(status: int) -> NoReturn:
    """Leave the command, and not the test."""
    raise typer.Exit(status)


def test_the_commands_are_what_rehearse_takes(rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch):
    served: list[ServeConfig] = []
    monkeypatch.setattr(serving, "serve", lambda config, *_: served.append(config) or 0)
    monkeypatch.setattr(serving, "leave", left)
    assert rehearse("serve", *SERVICES["server"]["command"][1:])[0] == 0
    status, planned, _ = rehearse(*SERVICES["load"]["command"], "--dry-run")
    assert status == 0 and planned.endswith("3 points\n")
    (config,) = served
    (target,) = yaml.safe_load((ROOT / "compose" / "prometheus.yml").read_text())["scrape_configs"][0][
        "static_configs"
    ][0]["targets"]
    image = (ROOT / "Dockerfile").read_text()
    assert target == f"server:{config.port}"
    assert [port.split(":")[-1] for port in SERVICES["server"]["ports"]] == [str(config.port)]
    assert f"EXPOSE {config.port}\n" in image and f"http://127.0.0.1:{config.port}/health" in image
    for address in re.findall(r"\w+://([^/]+)/", " ".join(SERVICES["load"]["command"])):
        assert address == target


def test_the_job_calls_with_a_command_that_rehearse_takes(rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SERVER_TOKEN", "secret")
    claim, job = yaml.safe_load_all((ROOT / "compose" / "job.yaml").read_text())
    (live,) = job["spec"]["template"]["spec"]["containers"]
    (token,) = live["env"]
    status, planned, _ = rehearse(*live["args"], "--dry-run")
    assert status == 0 and planned.endswith("3 points\n")
    assert f"--token-env={token['name']}" in live["args"]
    assert job["spec"]["backoffLimit"] == 0, "a verdict that fails is not to be measured again"
    volumes = {each["name"]: each for each in job["spec"]["template"]["spec"]["volumes"]}
    assert volumes["results"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    writable = {each["mountPath"]: each["name"] for each in live["volumeMounts"]}
    assert {"/home/rehearsal/results", "/home/rehearsal/.cache", "/tmp"} == {*writable}
    assert "/home/rehearsal/results" in (ROOT / "Dockerfile.live").read_text()


def test_a_release_has_the_images_of_both_dockerfiles_and_the_version_as_its_tag():
    steps = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]["release"]["steps"]
    check, images = (step["run"] for step in steps if step.get("name") in {"The tag is the version", "Images"})
    built = re.findall(r'docker build --tag "([\w-]+):\$TAG"(?: --file (\S+))? \.', images)
    assert {name: file or "Dockerfile" for name, file in built} == {
        "rehearsal": "Dockerfile",
        "rehearsal-live": "Dockerfile.live",
    }
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for tag, status in ((f"v{version}", 0), (f"v{version}1", 1)):
        done = subprocess.run(["bash", "-c", check], cwd=ROOT, env={**os.environ, "TAG": tag}, check=False)
        assert done.returncode == status


def test_services_fit_each_other_and_only_this_machine_reaches_them():
    drain_s = ServeConfig.model_validate({"engine": "liveserve"}).drain_s
    assert float(SERVICES["server"]["stop_grace_period"].removesuffix("s")) > drain_s
    assert all(port.startswith("127.0.0.1:") for service in SERVICES.values() for port in service.get("ports", []))
    prometheus = yaml.safe_load((ROOT / "compose" / "prometheus.yml").read_text())
    (rules,), (job,) = prometheus["rule_files"], prometheus["scrape_configs"]
    assert f"./compose/{rules}:/etc/prometheus/{rules}:ro" in SERVICES["prometheus"]["volumes"]
    (down,) = [alert["expr"] for alert in ALERTS if alert["expr"].startswith("up{")]
    assert down == f'up{{job="{job["job_name"]}"}} == 0'


def test_files_and_names_are_where_the_others_look_for_them():
    for service in SERVICES.values():
        assert set(service.get("depends_on", [])) <= set(SERVICES)
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (ROOT / source).exists()
    (source,) = DATASOURCE["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert {panel["datasource"]["uid"] for panel in DASHBOARD["panels"]} == {source["uid"]}
    (provider,) = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "rehearsal.yaml").read_text())["providers"]
    home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == provider["options"]["path"]
    assert (GRAFANA / "dashboards" / home.name).exists()


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


def test_images_hold_all_of_the_code_and_that_of_the_live_client_neither_vllm_nor_torch():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = project["tool"]["setuptools"]["packages"]["find"]["include"]
    (constraint,) = re.findall(r"--require-hashes -r (\S+)", (ROOT / "Dockerfile.live").read_text())
    wanted = {f"!{name.removesuffix('*')}" for name in (*folders, constraint, "pyproject.toml")}
    assert wanted <= set((ROOT / ".dockerignore").read_text().split())
    light = project["project"]["optional-dependencies"]["live"]
    assert light and not [name for name in light if re.search("vllm|torch", name)]
