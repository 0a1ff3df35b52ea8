"""The Ray engine on a real cluster of two workers, one of which is killed while it works."""

import ipaddress
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from locality.results.folder import read_results
from locality.runner import ray_engine
from locality.runner.plan import make_plan
from locality.runner.ray_engine import LOOPBACK_VARIABLE, measure_in_time, run_on_ray
from locality.runner.run import Machine, run_suite
from locality.runner.suite import DataChoice, ModelChoice, Suite
from locality.runner.unit import measure, unit_ids

PATIENCE = 300  # seconds: this may run beside other work


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"needs Ray, which is not installed: pip install 'locality\[ray\]'"):
        list(run_on_ray([]))


class SmallCluster:
    """As much of Ray as is asked before anything runs: one machine with two cores and no GPU."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.running = False
        self.__version__ = "0"
        self.util = SimpleNamespace(get_node_ip_address=lambda: address)
        self.seen: dict[str, object] = {}

    def is_initialized(self) -> bool:
        return self.running

    def init(self, **options: object) -> None:
        self.running = True
        self.seen = options | {name: os.environ.get(name) for name in ("RAY_USAGE_STATS_ENABLED", LOOPBACK_VARIABLE)}

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def remote(self, **_: object) -> Callable[[object], object]:
        return lambda function: function

    def shutdown(self) -> None:
        self.running = False


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"threads": 3}, "`--threads` must be at most the 2 CPUs of this machine, got 3: pass a smaller number"),
        ({"gpus": 0.5}, "`--gpus` must be at most the 0 GPUs of this machine, got 0.5"),
    ],
)
def test_what_would_wait_for_ever_is_refused(asked: dict[str, float], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SmallCluster()
    monkeypatch.setitem(sys.modules, "ray", cluster)
    with pytest.raises(ValueError, match=message):
        list(run_on_ray([], **asked))  # type: ignore[arg-type]
    assert not cluster.running


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "[::1]:{}", "127.0.0.1:99999"])
def test_an_address_where_nothing_answers_is_refused_at_once(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]  # bound, but nobody listens
        cluster = SmallCluster()
        monkeypatch.setitem(sys.modules, "ray", cluster)
        with pytest.raises(
            ValueError, match=r"`--address` must be the address of a running Ray cluster, got .* nothing answers"
        ):
            list(run_on_ray([], address.format(port)))
        assert not cluster.running


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "auto"])
def test_other_addresses_are_left_to_ray(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", SmallCluster())
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert list(run_on_ray([], address.format(server.getsockname()[1]))) == []


def test_a_cluster_of_ours_has_no_dashboard_sends_no_reports_and_joins_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SmallCluster()
    monkeypatch.setitem(sys.modules, "ray", cluster)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    assert list(run_on_ray([])) == []
    assert (cluster.seen["address"], cluster.seen["include_dashboard"]) == ("local", False)
    assert (cluster.seen["RAY_USAGE_STATS_ENABLED"], cluster.seen[LOOPBACK_VARIABLE]) == ("0", "0")
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "1"
    assert LOOPBACK_VARIABLE not in os.environ


def test_a_cluster_of_ours_that_listens_on_the_network_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SmallCluster("192.0.2.1")
    monkeypatch.setitem(sys.modules, "ray", cluster)
    with pytest.raises(ValueError, match=r"listens on 192\.0\.2\.1, where others could run code"):
        list(run_on_ray([]))
    assert not cluster.running


@pytest.mark.slow
def test_a_cluster_of_ours_listens_on_loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not here: pip install 'locality[ray]'")
    heard: list[str] = []

    def listen(*_: object) -> None:
        for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
            heard.extend(one.laddr.ip for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN)

    monkeypatch.setattr(ray_engine, "_check_size", listen)
    assert list(run_on_ray([], processes=1)) == []
    addresses = [ipaddress.ip_address(address.removeprefix("::ffff:")) for address in heard]
    assert len(addresses) > 3
    assert [str(address) for address in addresses if not address.is_loopback] == []


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "tables").iterdir())}


def kill_one_worker(out: Path, killed: list[int]) -> None:
    """When something is finished and a unit is being measured: kill -9 of the worker that measures it."""
    limit = time.monotonic() + PATIENCE
    while not killed and time.monotonic() < limit:
        if len(list((out / "units").glob("*.json"))) >= 2:
            for process in psutil.Process().children(recursive=True):
                try:
                    busy = process.cmdline()[:1] == ["ray::locality unit"]
                    if busy and not killed:
                        process.kill()
                        killed.append(process.pid)
                except psutil.Error:
                    pass
        time.sleep(0.01)


def test_a_unit_in_time_is_measured_and_one_that_is_late_ends_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(
        Suite("time", (ModelChoice("steady", "suite_models:steady"),), DataChoice("shapes", limit=2), ("SM",), "none")
    )
    task = plan.task(plan.units[0], 1)
    assert measure_in_time(task, None).tables["rows"].equals(measure(task).tables["rows"])
    ended, release = threading.Event(), threading.Event()
    monkeypatch.setattr(ray_engine, "EXIT_SECONDS", 0.01)
    monkeypatch.setattr(os, "_exit", lambda code: ended.set())
    monkeypatch.setattr(ray_engine, "measure", lambda task: release.wait(60))
    late = measure_in_time(task, 0.001)
    assert late.faults == ((", ".join(unit_ids(task)), "stopped after 0.001 minutes (--unit-minutes)"),)
    assert ended.wait(60)
    release.set()

    def fails(task: object) -> None:
        raise TimeoutError("its own")

    monkeypatch.setattr(ray_engine, "measure", fails)
    with pytest.raises(TimeoutError, match="its own"):
        measure_in_time(task, 10)


@pytest.mark.slow
def test_a_unit_that_hangs_is_stopped_and_listed_and_the_others_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="Ray is not here: pip install 'locality[ray]'")
    monkeypatch.setenv("ENDLESS_EXCEPT", str(os.getpid()))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # workers load models from this folder of tests
    models = (ModelChoice("endless", "suite_models:endless"), ModelChoice("steady", "suite_models:steady"))
    suite = Suite("ray", models, DataChoice("shapes", limit=4, options=(("count", 40),)), ("SM",), "none", block=2)
    outcome = run_suite(suite, tmp_path, Machine("ray", processes=1, unit_minutes=0.1))
    assert outcome.faults["model"].tolist() == ["endless", "endless"]
    assert outcome.faults["problem"].tolist() == ["stopped after 0.1 minutes (--unit-minutes)"] * 2
    assert read_results(tmp_path).rows["model"].tolist() == ["steady"] * 4


@pytest.mark.slow
def test_two_workers_one_killed_give_the_local_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not here: pip install 'locality[ray]'")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    suite = Suite(
        "ray", (ModelChoice("shapes_cnn"),), DataChoice("shapes", limit=32, options=(("count", 80),)), ("SM", "IG"), block=2
    )
    plan = make_plan(suite)
    killed: list[int] = []
    killer = threading.Thread(target=kill_one_worker, args=(tmp_path / "ray", killed))
    killer.start()
    outcome = run_suite(plan, tmp_path / "ray", Machine("ray", processes=2))
    killer.join()
    assert killed, "no worker was caught at work"
    assert not psutil.pid_exists(killed[0])
    assert (outcome.units, outcome.kept, len(outcome.faults)) == (16, 0, 0)
    run_suite(plan, tmp_path / "local", Machine(processes=0))
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")
    left = [process for process in psutil.Process().children(recursive=True) if "ray" in " ".join(process.cmdline())]
    _, alive = psutil.wait_procs(left, timeout=PATIENCE)
    assert not alive, "Ray's processes must not stay"
