"""docs/backup.md: backed up while a job runs, restored elsewhere, it goes on; a repeated step is the only one."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from jobs.installation import Installation
from jobs.states import State
from jobs.submit import SubmitRequest, submit
from jobs.views import get_job
from storage.backup import backup_sqlite
from storage.errors import StorageError
from storage.runs import list_runs
from tests.archive.conftest import knowing_piece, open_at
from tests.archive.making import root_of
from tests.archive.test_moving import worker_at
from tests.crash.bench import PIECE
from tests.factories import make_job
from tests.servers.postgres import PostgresServer, packaged_installation
from tests.servers.redis import RedisServer
from tests.servers.workers import CommandFactory
from tests.strict_endpoint import Call, ChatRequest, Reply, StrictEndpoint
from tests.waiting import wait_until

PAGE = (Path(__file__).parents[2] / "docs/backup.md").read_text()


def back_up(home: Installation, backup: Path) -> None:
    """As the guide says: the database, then the workspaces."""
    backup.mkdir()
    if home.db.is_sqlite:
        backup_sqlite(home.db, backup / "sostenuto.db")
    else:
        dump = re.search(r"^pg_dump (.*) \"\$", PAGE, re.MULTILINE)
        assert dump is not None
        arguments = dump[1].replace("backup/", f"{backup}/").split()
        program = packaged_installation() / "bin/pg_dump"
        subprocess.run([program, *arguments, home.settings.database_url], check=True)
    shutil.copytree(home.settings.data_dir / "workspaces", backup / "workspaces", symlinks=True)


def restored(home: Installation, backup: Path, tmp_path: Path, server: PostgresServer) -> Installation:
    """An installation elsewhere, of the backup alone."""
    data_dir = tmp_path / "restored"
    data_dir.mkdir()
    shutil.copytree(backup / "workspaces", data_dir / "workspaces", symlinks=True)
    if home.db.is_sqlite:
        shutil.copyfile(backup / "sostenuto.db", data_dir / "sostenuto.db")
        return open_at(f"sqlite:///{data_dir}/sostenuto.db", data_dir)
    name = server.create_database()
    program = packaged_installation() / "bin/pg_restore"
    subprocess.run(
        [program, "--no-owner", "--dbname", server.url(name), backup / "sostenuto.dump"], check=True
    )
    return open_at(server.url(name), data_dir)


def test_a_job_goes_on_from_a_backup_that_was_made_while_it_ran(
    here: Installation,
    tmp_path: Path,
    postgres_server: PostgresServer,
    worker_process: CommandFactory,
    valkey_server: RedisServer,
) -> None:
    """The step that was under way is asked for again, once; what was committed is not done again."""
    at_home = knowing_piece(here, tmp_path, PIECE)
    replies = [
        Reply(calls=(Call("Bash", {"command": "echo once >> output/effects"}),)),
        Reply(calls=(Call("transition", {"next_step": "finish", "summary": "written"}),)),
    ]
    end = Reply(calls=(Call("transition", {"next_step": "COMPLETE", "summary": "all done"}),))

    def mind(request: ChatRequest) -> Reply:
        return end if "Movement: finish" in str(request.messages[0]["content"]) else replies[request.replies]

    with StrictEndpoint(mind) as endpoint:
        job_id = submit(at_home, SubmitRequest("Do it.", piece="crash"), "local").job.id
        gate = endpoint.hold(f"{job_id}/2/*")
        worker = worker_at(here, worker_process, endpoint, valkey_server)
        gate.wait_held(1)  # the first movement is committed, a reply in the second one is awaited
        back_up(here, tmp_path / "backup")
        worker.kill()
        gate.release()
        before = endpoint.calls(job_id + "/*")
        assert before == 3

        elsewhere = restored(here, tmp_path / "backup", tmp_path, postgres_server)
        worker_at(elsewhere, worker_process, endpoint, valkey_server)
        wait_until(lambda: get_job(elsewhere, job_id, None).state == State.SUCCEEDED, 120, "it ends there")

        assert get_job(elsewhere, job_id, None).result == "all done"
        assert endpoint.calls(job_id + "/*") == before + 1
        assert (root_of(elsewhere, job_id) / "output/effects").read_text() == "once\n"
        assert list_runs(elsewhere.db, job_id)[0]["outcome"] == "lost"
        elsewhere.close()


def test_a_copy_is_whole_or_not_there(here: Installation, tmp_path: Path) -> None:
    """A file that is there is not replaced; Postgres is told of its own programs."""
    make_job(here.db)
    if not here.db.is_sqlite:
        with pytest.raises(StorageError, match="Postgres"):
            backup_sqlite(here.db, tmp_path / "copy.db")
        return
    backup_sqlite(here.db, tmp_path / "copy.db")
    with pytest.raises(FileExistsError):
        backup_sqlite(here.db, tmp_path / "copy.db")
    assert [path.name for path in tmp_path.iterdir() if "copy" in path.name] == ["copy.db"]
