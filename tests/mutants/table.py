"""The guards, each with the change that takes it away and the tests that turn red without it.

`old` stands in its file exactly once; `new` takes its place. Tests are the quickest that show the fault.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """One guard removed. `name` is what docs/crash-safety.md calls it; `tests` must fail, each of them."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


_NOT_SMALLER = (
    "tests/context/test_compaction.py::"
    "test_a_summary_that_is_not_smaller_is_discarded_and_the_breaker_holds[sqlite]"
)

MUTANTS = (
    # --- what is being written is never the truth ---
    Mutant(
        "a live reply needs a live run",
        "storage/live.py",
        "sa.exists().where(runs.c.id == live_replies.c.run_id, runs.c.lease_expires_at > wall_clock())",
        "sa.exists().where(runs.c.id == live_replies.c.run_id)",
        ("tests/storage/test_live.py::test_a_dead_run_leaves_nothing_that_is_shown",),
    ),
    Mutant(
        "a live reply ends with its commit",
        "storage/live.py",
        "    live_replies.c.seq == jobs.c.total_messages + 1,\n",
        "",
        ("tests/storage/test_live.py::test_a_commit_ends_it_even_where_nobody_deletes_it",),
    ),
    # --- a commit that several writes share ---
    Mutant(
        "nobody returns before the shared commit",
        "storage/sqlite_writer.py",
        "        self._wait(batch)\n",
        "",
        (
            "tests/storage/test_sqlite_writer.py::test_nobody_returns_before_the_commit",
            "tests/storage/test_sqlite_writer.py::test_a_commit_that_fails_is_told_to_all_and_keeps_nothing",
        ),
    ),
    Mutant(
        "a failed write leaves the shared commit",
        "storage/sqlite_writer.py",
        '            batch.driver.execute("ROLLBACK TO one_write")\n',
        "",
        ("tests/storage/test_sqlite_writer.py::test_one_that_fails_takes_nobody_along",),
    ),
    # --- the fence: a run that lost its job writes nothing ---
    Mutant(
        "fence of a checkpoint",
        "storage/fenced_update.py",
        'guards = [jobs.c.id == sa.bindparam("p_job"), jobs.c.run_id == sa.bindparam("p_run")]',
        'guards = [jobs.c.id == sa.bindparam("p_job")]',
        ("tests/storage/test_checkpoints.py::test_a_run_that_does_not_own_the_job_writes_nothing",),
    ),
    Mutant(
        "fence of a final summary",
        "storage/final_summaries.py",
        '.where(jobs.c.id == sa.bindparam("p_job"), jobs.c.summary_run_id == sa.bindparam("p_run"))',
        '.where(jobs.c.id == sa.bindparam("p_job"))',
        ("tests/proof/test_guards.py::test_a_writer_that_lost_its_summary_writes_nothing",),
    ),
    Mutant(
        "fence of a new subtask",
        "storage/subtasks.py",
        "                jobs.c.run_id == run.run_id,\n",
        "",
        ("tests/proof/test_guards.py::test_a_run_that_lost_its_job_begins_no_subtask",),
    ),
    Mutant(
        "a run takes its job in one state only",
        "storage/fenced_update.py",
        "        guards.append(sa.or_(*(jobs.c.state == source for source in shape.sources)))\n",
        "",
        ("tests/storage/test_checkpoints.py::test_a_move_from_another_state_is_refused",),
    ),
    # --- the lock rule ---
    Mutant(
        "lock rule",
        "storage/jobs.py",
        "statement = sa.update(jobs).where(*guard).values(updated_at=wall_clock()).returning(*jobs.c)",
        "statement = sa.select(*jobs.c).where(*guard)",
        ("tests/jobs/test_comments.py::test_comments_of_many_threads_have_one_number_each[postgres]",),
    ),
    Mutant(
        "a claim waits for no lock",
        "storage/choosing.py",
        "_LOCKED_FIRST = Prepared(_LOCKED_LINE.limit(1).with_for_update(skip_locked=True), returning=_COLUMNS)\n",
        "_LOCKED_FIRST = Prepared(_LOCKED_LINE.limit(1).with_for_update(), returning=_COLUMNS)\n",
        ("tests/storage/test_claims.py::test_a_claim_waits_for_nobody_on_postgres",),
    ),
    Mutant(
        "claims under limits exclude each other",
        "storage/limits.py",
        "        conn.execute(sa.select(sa.func.pg_advisory_xact_lock(_CLAIMS)))\n",
        "        pass\n",
        ("tests/storage/test_limits.py::test_no_limit_is_exceeded_by_many_at_once",),
    ),
    Mutant(
        "begin immediate",
        "storage/engine.py",
        'driver.execute("BEGIN IMMEDIATE")',
        'driver.execute("BEGIN")',
        ("tests/storage/test_engine.py::test_a_write_holds_the_write_lock_before_its_first_statement",),
    ),
    Mutant(
        "synchronous full",
        "storage/engine.py",
        '"synchronous=FULL"',
        '"synchronous=NORMAL"',
        ("tests/storage/test_engine.py::test_sqlite_commits_survive_a_power_cut_and_check_foreign_keys",),
    ),
    # --- commit first, then tell ---
    Mutant(
        "files before the row",
        "jobs/submit.py",
        "    create_workspace(settings.data_dir, job_id, request.files, workspace_limits(settings))\n    try:\n",
        "    try:\n",
        ("tests/jobs/test_submit.py::test_the_files_are_on_disk_before_the_row[sqlite]",),
    ),
    Mutant(
        "submit: publish after the commit",
        "jobs/submit.py",
        "    create_workspace(settings.data_dir, job_id, request.files, workspace_limits(settings))\n    try:\n",
        "    create_workspace(settings.data_dir, job_id, request.files, workspace_limits(settings))\n"
        "    installation.wakeups.send(AGENT_QUEUE, job_id)\n    try:\n",
        ("tests/proof/test_wake_ups.py::test_every_wake_up_of_a_door_names_committed_work",),
    ),
    Mutant(
        "wake after the commit",
        "jobs/comments.py",
        "    if woken:\n        installation.wakeups.send_and_wait(AGENT_QUEUE, job_id)\n",
        "        if woken:\n            installation.wakeups.send_and_wait(AGENT_QUEUE, job_id)\n",
        ("tests/proof/test_wake_ups.py::test_every_wake_up_of_a_door_names_committed_work",),
    ),
    Mutant(
        "idempotency key",
        "storage/jobs.py",
        "    if key is None:\n        return None\n    return conn.execute(",
        "    if key is None or key:\n        return None\n    return conn.execute(",
        ("tests/jobs/test_submit.py::test_the_same_key_is_the_same_job",),
    ),
    # --- calls and their results ---
    Mutant(
        "pairing repair",
        "worker/agent.py",
        "            return [call for call in calls if call.id not in answered]\n",
        "            return [call for call in calls if call.id not in answered and not answered]\n",
        ("tests/agent/test_interruption.py::test_killed_in_the_middle_of_a_batch[sqlite]",),
    ),
    Mutant(
        "unknown after a crash",
        "worker/agent.py",
        "    died = call.run_id != job.ref.run_id  # an earlier run may have begun it\n",
        "    died = False\n",
        ("tests/agent/test_interruption.py::test_killed_in_the_middle_of_a_batch[sqlite]",),
    ),
    Mutant(
        "one result for one call",
        "storage/checkpoints.py",
        '    .where(*_THIS_CALL, tool_calls.c.state != "done")\n',
        "    .where(*_THIS_CALL)\n",
        ("tests/storage/test_checkpoints.py::test_one_result_for_one_call",),
    ),
    Mutant(
        "parked calls",
        "storage/checkpoints.py",
        "    for call_id in checkpoint.parks:\n",
        "    for call_id in ():\n",
        ("tests/storage/test_checkpoints.py::test_a_parked_call_waits_and_takes_its_answer",),
    ),
    Mutant(
        "one answer to a question",
        "jobs/comments.py",
        '    values |= {"pending_call": None, "pending_question": None, "answer_due_at": None}\n',
        "",
        ("tests/jobs/test_comments.py::test_an_answer_during_a_pause_is_kept_for_the_resume[sqlite]",),
    ),
    # --- comments ---
    Mutant(
        "comment counter",
        "storage/fenced_update.py",
        "    if shape.expect_inbox:\n",
        "    if shape.expect_inbox and False:\n",
        ("tests/storage/test_checkpoints.py::test_a_comment_that_was_not_shown_refuses_the_end",),
    ),
    Mutant(
        "comment counter at COMPLETE",
        "worker/decisions.py",
        '        expect_inbox=job.row["inbox_seen"],\n        remark=("result", choice.summary),\n',
        '        remark=("result", choice.summary),\n',
        ("tests/agent/test_comments.py::test_right_before_complete_it_is_read_first[sqlite]",),
    ),
    Mutant(
        "comment counter at ASK",
        "worker/decisions.py",
        '        expect_inbox=job.row["inbox_seen"],\n        remark=("question", choice.summary),\n',
        '        remark=("question", choice.summary),\n',
        ("tests/agent/test_ask.py::test_a_comment_that_came_before_the_question_is_read_first[sqlite]",),
    ),
    Mutant(
        "comment counter at WAIT_SUBTASKS",
        "worker/decisions.py",
        '        expect_inbox=job.row["inbox_seen"],\n        expect_children=True,\n',
        "        expect_children=True,\n",
        ("tests/subtasks/test_waiting.py::test_a_comment_that_came_before_the_wait_is_read_first[sqlite]",),
    ),
    Mutant(
        "a comment is marked as shown with its text",
        "worker/agent.py",
        "messages=rows, inbox_seen=seen, values=marks",
        "messages=rows, values=marks",
        (
            "tests/agent/test_comments.py::test_while_the_agent_works_it_is_in_the_next_gap[sqlite-during a tool]",
        ),
    ),
    # --- what people ask of a running job ---
    Mutant(
        "requests of the last moment",
        "storage/fenced_update.py",
        "        guards.extend(jobs.c[name].is_(False) for name in shape.unless)\n",
        "",
        ("tests/storage/test_checkpoints.py::test_a_request_of_the_last_moment_is_not_lost_with_the_move",),
    ),
    Mutant(
        "a cancel aborts the model call",
        "worker/heartbeat.py",
        '                runs[run_id].cancel.cancel("cancel")\n',
        "                pass\n",
        ("tests/agent/test_bounds.py::test_a_cancel_during_a_model_call_aborts_it[sqlite]",),
    ),
    # --- subtasks ---
    Mutant(
        "wait only for open children",
        "storage/fenced_update.py",
        "    if shape.expect_children:\n",
        "    if shape.expect_children and False:\n",
        ("tests/subtasks/test_waiting.py::test_a_child_that_ends_between_the_look_and_the_commit[sqlite]",),
    ),
    Mutant(
        "the last child wakes its parent",
        "storage/parents.py",
        "    if row.state == WAITING:\n",
        "    if row.state == WAITING and False:\n",
        ("tests/subtasks/test_waiting.py::test_three_parts_of_which_one_fails[sqlite]",),
    ),
    Mutant(
        "one child for one call",
        "jobs/subtasks.py",
        "    if known is not None:\n",
        "    if known is not None and False:\n",
        ("tests/proof/test_guards.py::test_a_call_that_is_run_again_finds_the_subtask_that_it_began",),
    ),
    Mutant(
        "a cancel that died goes on",
        "worker/sweep.py",
        '        cancel_children(process.installation, job_id, "a person")\n',
        "        pass\n",
        (
            "tests/subtasks/test_cancelling.py::test_a_canceller_that_dies_on_the_way[sqlite-unfinished_children-0]",
        ),
    ),
    # --- leases, deaths and the sweep ---
    Mutant(
        "heartbeat and sweep: one wins",
        "storage/runs.py",
        ".where(runs.c.id == run.run_id, runs.c.ended_at.is_(None), runs.c.lease_expires_at < wall_clock())",
        ".where(runs.c.id == run.run_id, runs.c.ended_at.is_(None))",
        ("tests/storage/test_claims.py::test_a_heartbeat_that_came_back_wins",),
    ),
    Mutant(
        "heartbeat on a connection of its own",
        "storage/runs.py",
        "    with db.lone_write() as conn:\n",
        "    with db.write() as conn:\n",
        ("tests/proof/test_guards.py::test_a_heartbeat_waits_for_no_busy_pool",),
    ),
    Mutant(
        "a lost lease stops the run",
        "worker/heartbeat.py",
        '                else:\n                    run.cancel.cancel("lease_lost")\n',
        "                else:\n                    pass\n",
        ("tests/proof/test_guards.py::test_a_run_that_lost_its_lease_is_told_at_the_next_beat",),
    ),
    Mutant(
        "two thirds of a lease",
        "worker/heartbeat.py",
        "> self._lease * SURE_FRACTION",
        "> self._lease * 10",
        ("tests/resilience/test_leases.py::test_a_run_stops_at_two_thirds_of_its_lease[sqlite]",),
    ),
    Mutant(
        "clock jump",
        "worker/sweep.py",
        "abs(offset - self._offset) > self._lease / 2 or now",
        "now",
        ("tests/resilience/test_sweep.py::test_a_jump_of_the_wall_clock_disturbs_it_for_one_lease",),
    ),
    Mutant(
        "frozen database",
        "worker/sweep.py",
        " or now - self._asked_at > self._longest_gap:",
        ":",
        ("tests/resilience/test_sweep.py::test_a_frozen_database_disturbs_it",),
    ),
    Mutant(
        "attempt rule",
        "worker/sweep.py",
        '    attempt = job.row["attempt"] + 1\n',
        '    attempt = job.row["attempt"]\n',
        ("tests/agent/test_interruption.py::test_a_job_that_kills_its_workers_ends[sqlite]",),
    ),
    Mutant(
        "attempts are forgiven after a step only",
        "worker/job_run.py",
        "checkpoint.move.forgives_attempts = bool(checkpoint.move.steps) or checkpoint.summary is not None",
        "checkpoint.move.forgives_attempts = True",
        ("tests/proof/test_guards.py::test_a_run_without_a_step_forgives_no_deaths",),
    ),
    Mutant(
        "one suspect",
        "worker/slices.py",
        "allow_suspects=not process.live.has_suspect()",
        "allow_suspects=True",
        ("tests/proof/test_guards.py::test_a_process_works_on_one_suspect_at_a_time",),
    ),
    Mutant(
        "forgotten wake-ups",
        "worker/sweep.py",
        "                process.wakeups.send(queue, job_id)\n",
        "                pass\n",
        ("tests/proof/test_wake_ups.py::test_the_sweep_tells_of_what_nobody_was_told",),
    ),
    Mutant(
        "given back after an outage",
        "worker/slices.py",
        '        log.warning("job %s: %s", live.ref.job_id, error)\n        process.give_back_later(live.ref.run_id)\n',
        '        log.warning("job %s: %s", live.ref.job_id, error)\n',
        ("tests/proof/test_guards.py::test_a_job_whose_database_failed_is_given_back",),
    ),
    Mutant(
        "a freed slot wakes the event loop",
        "worker/bootsteps.py",
        "        future.add_done_callback(lambda _: wake_event_loop())\n",
        "",
        ("tests/resilience/test_brokers.py::test_a_saturated_worker_is_as_quick_as_a_prefetching_one",),
    ),
    # --- the context ---
    Mutant(
        "the swap is one transaction",
        "worker/context_run.py",
        "    return end(job, Event.COMPRESSED, Reason.COMPACTED, data, checkpoint=checkpoint)\n",
        "    job.commit(checkpoint)\n    return end(job, Event.COMPRESSED, Reason.COMPACTED, data)\n",
        ("tests/proof/test_guards.py::test_a_swap_is_committed_whole",),
    ),
    Mutant(
        "a summary must make room",
        "worker/summarising.py",
        "            self._refuse_echo(text, conversation)\n",
        "",
        (_NOT_SMALLER,),
    ),
    Mutant(
        "compaction breaker",
        "worker/thresholds.py",
        "    return useless == 0 or (useless < MOST_USELESS and tokens >= useless_at * RETRY_GROWTH)\n",
        "    return True\n",
        (_NOT_SMALLER,),
    ),
    Mutant(
        "pinned bytes",
        "storage/transcript.py",
        'parts.append(sa.and_(pinned, messages.c.kind.in_(("system", "head"))))',
        'parts.append(sa.and_(pinned, messages.c.kind.in_(("system",))))',
        ("tests/context/test_compaction.py::test_a_long_job_goes_on_after_a_compaction[sqlite]",),
    ),
    Mutant(
        "a batch is never split",
        "worker/cutting.py",
        '    return any(call["id"] not in answered for call in group[0].tool_calls or ())\n',
        "    return False\n",
        ("tests/context/test_invariants.py::test_a_question_that_waits_is_neither_sent_nor_cut",),
    ),
    # --- final summaries and those who wait for them ---
    Mutant(
        "a retry voids the summary",
        "storage/final_summaries.py",
        'return {"summary_state": NONE, "summary_run_id": None, "summary_due_at": None, "summary_attempts": 0}',
        "return {}",
        ("tests/inherit/test_final_summary.py::test_a_retry_voids_a_summary_that_is_being_written[sqlite]",),
    ),
    Mutant(
        "a written summary wakes its followers",
        "worker/final_summary.py",
        "        let_followers_go_on(process.installation, ref.job_id)\n",
        "        pass\n",
        (
            "tests/inherit/test_inheritance.py::test_it_waits_for_a_pending_summary_and_is_woken_by_it[sqlite]",
        ),
    ),
    Mutant(
        "the longest wait for a summary",
        "jobs/inheritance.py",
        'if before is not None and before["summary_state"] == PENDING and not late:',
        'if before is not None and before["summary_state"] == PENDING:',
        ("tests/inherit/test_inheritance.py::test_after_two_minutes_the_last_messages_serve[sqlite]",),
    ),
    Mutant(
        "hooks are told in the transaction",
        "storage/checkpoints.py",
        "            add_hook_calls(conn, db.hooks, run.job_id, checkpoint.move.target)\n",
        "",
        ("tests/agent/test_hooks.py::test_an_end_is_told_as_the_job_is_shown[sqlite]",),
    ),
    # --- safety ---
    Mutant(
        "sandbox minimum",
        "worker/sandbox/detect.py",
        "            if _STRENGTH[sandbox.level] < _STRENGTH[least]:\n                continue\n",
        "",
        ("tests/sandbox/test_detect.py::test_below_the_minimum_is_refused",),
    ),
    Mutant(
        "sandbox probe",
        "worker/sandbox/detect.py",
        "        if not broken:\n",
        "        if True:\n",
        ("tests/sandbox/test_detect.py::test_a_sandbox_that_leaks_is_not_used",),
    ),
    Mutant(
        "redaction",
        "storage/masking.py",
        "            text = text.replace(form, MASK)\n",
        "            pass\n",
        ("tests/security/test_masking.py::test_whatever_is_stored_goes_through_it",),
    ),
    Mutant(
        "redaction across a cut",
        "storage/masking.py",
        "        keep = _unfinished(data)\n",
        "        keep = 0\n",
        ("tests/security/test_masking.py::test_a_stream_is_masked_wherever_it_is_cut",),
    ),
    Mutant(
        "path resolver",
        "jobs/resolver.py",
        "_RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)",
        "0)",
        ("tests/tools/test_workspace.py::test_no_path_leads_outside_or_blocks",),
    ),
    Mutant(
        "hard links",
        "jobs/resolver.py",
        "    if status.st_nlink > 1:\n",
        "    if False:\n",
        ("tests/tools/test_workspace.py::test_no_path_leads_outside_or_blocks",),
    ),
)
