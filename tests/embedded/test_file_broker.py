"""The file transport that serves where no Valkey binary exists."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from kombu import Connection

from jobs import file_broker
from jobs.embedded import BrokerKeeper, embedded_broker_url, ensure_broker, stop_broker
from jobs.file_broker import clean_message_files, file_broker_options, file_broker_url
from tests.waiting import wait_until


@pytest.fixture
def url(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL on a machine without a Valkey binary, in a folder whose name needs quoting."""
    monkeypatch.setattr("jobs.embedded_server.binary", lambda: None)
    return embedded_broker_url(data_dir / "a folder?")


def _connection(url: str) -> Connection:
    return Connection(url, transport_options=file_broker_options(url))


# Each test's queue has a name of its own, which no worker's has: kombu remembers the process's queues by name, whatever
# folder they were made in, and what is sent to one of the same name in another folder arrives nowhere.


def _files(url: str, option: str) -> list[Path]:
    return sorted(Path(file_broker_options(url)[option]).glob("*.msg"))


def test_messages_pass_between_connections_and_each_is_taken_once(url: str) -> None:
    with _connection(url) as sender:
        queue = sender.SimpleQueue("passing")
        for number in range(40):
            queue.put({"number": number})
        queue.close()
    taken: list[int] = []

    def take() -> None:
        with _connection(url) as receiver:
            queue = receiver.SimpleQueue("passing")
            while len(taken) < 40:
                try:
                    message = queue.get(timeout=0.1)
                except queue.Empty:
                    continue
                taken.append(message.payload["number"])
                message.ack()
            queue.close()

    threads = [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(taken) == list(range(40))


def test_nothing_is_started_and_nothing_to_stop(url: str, data_dir: Path) -> None:
    handle = ensure_broker(data_dir / "a folder?")
    assert (handle.url, handle.started, handle.pid) == (url, False, None)
    assert stop_broker(handle) is False


def test_the_folder_is_private(url: str) -> None:
    folder = Path(file_broker_options(url)["control_folder"])
    assert {path.stat().st_mode & 0o777 for path in (folder, folder.parent)} == {0o700}


def test_the_janitor_takes_old_files_only(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with _connection(url) as sender:
        queue = sender.SimpleQueue("janitor")
        queue.put({"number": 1})
        queue.put({"number": 2})
        queue.get(timeout=5).ack()
        queue.close()
    assert (len(_files(url, "data_folder_in")), len(_files(url, "processed_folder"))) == (1, 1)
    assert clean_message_files(url) == 0
    later = time.time() + file_broker.MESSAGE_LIFETIME + 1
    monkeypatch.setattr("jobs.file_broker.time.time", lambda: later)
    assert clean_message_files(url) == 2
    assert _files(url, "data_folder_in") == _files(url, "processed_folder") == []


def test_the_keeper_runs_the_janitor(url: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.embedded.JANITOR_INTERVAL", 0.02)
    monkeypatch.setattr("jobs.file_broker.MESSAGE_LIFETIME", -3600.0)
    file = Path(file_broker_options(url)["data_folder_in"]) / "1_old.agent.msg"
    file.write_text("{}")
    keeper = BrokerKeeper(data_dir / "a folder?")
    assert keeper.start() == url
    wait_until(lambda: not file.exists(), reason="the janitor removed the file")
    keeper.stop()


def test_the_url_alone_names_the_folders(tmp_path: Path) -> None:
    """A worker gets the URL through its environment and must find the same folders from another place."""
    url = file_broker_url(tmp_path)
    options = file_broker_options(url)
    assert options["data_folder_in"] == options["data_folder_out"] == f"{tmp_path}/run/queue/messages"
    assert os.path.isdir(options["processed_folder"])  # noqa: PTH112 - a string, as kombu gets it
