"""What git says about the repositories in a workspace, without running anything that the workspace holds.

A repository's own configuration can name programs (filters, hooks, fsmonitor, external diffs, pagers). So git never reads
it: it gets a folder of ours as its repository, with our configuration, a copy of HEAD, index and refs, and the workspace
only as work tree and object store. It runs in the job's sandbox, with a time limit; where there is none, not at all.
"""

from __future__ import annotations

import logging
from pathlib import Path

from worker.cancel import CancelToken
from worker.sandbox.base import Ending, Sandbox, SandboxUnavailable
from worker.tools.output import Output

log = logging.getLogger(__name__)

MOST_TOKENS = 2000
_TIMEOUT = 10.0  # seconds

_SCRIPT = r"""
command -v git >/dev/null || exit 0
export LC_ALL=C GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_SYSTEM=/dev/null GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1
export GIT_OPTIONAL_LOCKS=0 GIT_TERMINAL_PROMPT=0 GIT_PAGER=cat GIT_CEILING_DIRECTORIES="$PWD"
unset GIT_EXTERNAL_DIFF GIT_DIFF_OPTS GIT_SSH_COMMAND
own=$(mktemp -d) || exit 0
trap 'rm -rf "$own"' EXIT
shown=0
for repo in . output input output/* input/*; do
  theirs=$repo/.git
  [ -d "$theirs" ] && [ ! -L "$theirs" ] && [ -d "$theirs/objects" ] && [ -f "$theirs/HEAD" ] || continue
  shown=$((shown + 1)); [ "$shown" -le 3 ] || break
  mine=$own/$shown
  mkdir -p "$mine/refs"
  printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n' > "$mine/config"
  for part in HEAD index packed-refs; do
    [ -f "$theirs/$part" ] && [ ! -L "$theirs/$part" ] && head -c 50000000 "$theirs/$part" > "$mine/$part"
  done
  [ -d "$theirs/refs/heads" ] && [ ! -L "$theirs/refs" ] && cp -RP "$theirs/refs/heads" "$mine/refs/" 2>/dev/null
  export GIT_DIR=$mine GIT_WORK_TREE=$PWD/$repo GIT_OBJECT_DIRECTORY=$PWD/$theirs/objects HOME=$own
  git="git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.pager=cat -c core.attributesFile=/dev/null"
  status=$($git status --short --ignore-submodules=all 2>/dev/null | head -n 40)
  changed=$($git diff HEAD --no-ext-diff --no-textconv --no-color --ignore-submodules=all 2>/dev/null | head -c 5000)
  [ "$repo" = . ] || echo "In $repo:"
  if [ -n "$status" ]; then printf '%s\n' "$status"; else echo "nothing changed since the last commit"; fi
  [ -z "$changed" ] || printf '\n%s\n' "$changed"
done
"""


def git_excerpt(workspace: Path, sandbox: Sandbox | None, cancel: CancelToken) -> str | None:
    """Status and diff of at most three repositories, cut to 2,000 tokens; None where there is nothing to tell.

    Looks at the workspace, input/, output/ and the folders right in them. Never raises but Cancelled: what goes wrong
    leaves the excerpt out.
    """
    if sandbox is None:
        return None
    output = Output(MOST_TOKENS)
    try:
        outcome = sandbox.run(
            ["/bin/bash", "-c", _SCRIPT],
            workspace=workspace,
            timeout=_TIMEOUT,
            cancel=cancel,
            on_output=output.feed,
        )
    except SandboxUnavailable as error:
        log.warning("no git excerpt: %s", error)
        return None
    cancel.raise_if_cancelled()
    if outcome.ending is not Ending.EXITED:
        log.warning("no git excerpt: git ended with %s", outcome.ending)
        return None
    return output.text().strip() or None
