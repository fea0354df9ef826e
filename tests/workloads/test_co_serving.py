import numpy as np
import pandas as pd
import pytest

from workloads.columns.classes import in_order
from workloads.registry import make_trace
from workloads.statistics.describe import gap_cv, rate


def test_co_serving_is_its_two_classes() -> None:
    trace = make_trace("co_serving", {"requests": 2000, "rate": 4, "cv": 3, "documents": 60}, 0)
    columns = trace.columns()
    online, batch = in_order(columns).items()
    assert (online[0], batch[0]) == ("online", "batch")
    assert [int(rows.sum()) for _, rows in (online, batch)] == [2000, 60]
    arrivals = columns["arrival_s"]
    assert not arrivals[batch[1]].any()
    assert rate(arrivals[online[1]]) == pytest.approx(4, rel=0.1)
    assert gap_cv(np.sort(arrivals[online[1]])) == pytest.approx(3, rel=0.15)
    assert np.median(columns["input_tokens"][batch[1]]) > 50 * np.median(columns["input_tokens"][online[1]])
    assert set(columns["priority"][online[1]]) == {0} and set(columns["priority"][batch[1]]) == {10}
    assert set(columns["ttft_deadline_s"][online[1]]) == {1.5}
    assert np.isnan(columns["ttft_deadline_s"][batch[1]]).all()
    assert set(columns["modality"]) == {"text"} and np.isnan(columns["reply_audio_s"]).all()


def test_a_class_of_co_serving_does_not_change_the_other() -> None:
    def class_(name: str, **params) -> pd.DataFrame:
        columns = make_trace("co_serving", params, 0).columns()
        names = ["arrival_s", "input_tokens", "output_tokens", "network_s"]
        return pd.DataFrame(columns).loc[in_order(columns)[name], names].reset_index(drop=True)

    assert class_("online").equals(class_("online", documents=3, shape="vcsum", batch_priority=2))
    assert class_("batch").equals(class_("batch", requests=5, rate=9, tbt_deadline_s=None))
    short = make_trace("co_serving", {"max_input_tokens": 500, "max_output_tokens": 50}, 0).columns()
    assert (short["input_tokens"].max(), short["output_tokens"].max()) == (500, 50)


def online(**params) -> dict[str, np.ndarray]:
    columns = make_trace("co_serving", {"requests": 4000, "documents": 0, **params}, 0).columns()
    assert set(columns["request_class"]) == {"online"}
    return columns


def test_online_requests_are_as_long_as_chosen() -> None:
    plain, chat = online(), online(chat="burstgpt")
    assert (plain["arrival_s"] == chat["arrival_s"]).all()
    assert [chat["input_tokens"].mean(), chat["output_tokens"].mean()] == pytest.approx([2747, 267], rel=0.02)
    fixed = online(input_tokens=4096, output_tokens=256, cv=0.5)
    assert set(fixed["input_tokens"]) == {4096} and set(fixed["output_tokens"]) == {256}
    assert gap_cv(fixed["arrival_s"]) == pytest.approx(0.5, rel=0.1)


def test_online_requests_in_bursts_have_the_same_lengths() -> None:
    bursts = online(online="burstgpt", rate=2.0)
    assert (bursts["input_tokens"] == online()["input_tokens"]).all()
    assert (gap_cv(bursts["arrival_s"]) or 0) > 1.5


def test_a_backlog_of_co_serving_has_documents_for_longer_than_users_come() -> None:
    params = {"requests": 100, "rate": 2.0, "backlog": 6, "backlog_tps": 10_000.0}
    trace = make_trace("co_serving", params, 0)
    columns = trace.columns()
    batch = in_order(columns)["batch"]
    assert set(columns["backlog"][batch]) == {6} and np.isnan(columns["backlog"][~batch]).all()
    assert not columns["arrival_s"][batch].any()
    tokens = (columns["input_tokens"] + columns["output_tokens"])[batch].sum()
    users_s = columns["arrival_s"].max()
    assert 10_000 * (users_s + 60) * 0.9 < tokens < 10_000 * (users_s + 60) * 1.3
    alone = make_trace("co_serving", {"requests": 100, "rate": 2.0, "documents": 0}, 0).columns()
    assert (alone["arrival_s"] == columns["arrival_s"][~batch]).all()


def test_co_serving_without_what_is_new_has_the_hash_and_the_parameters_from_before_it() -> None:
    header = make_trace("co_serving", {}, 0).header
    assert header.hash.startswith("00e07edbacebf097")
    assert not {"online", "chat", "backlog", "backlog_tps", "path", "input_tokens"} & set(header.params)
