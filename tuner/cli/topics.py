"""``help [TOPIC]``: exit statuses, environment variables, or a command."""

from __future__ import annotations

import click

from tuner.cli.output import echo

EXIT_STATUS = """\
0    done
1    an unexpected error; the run's run.log has its traceback
2    the input is wrong: an option, the experiment file, the name of a run; nothing was started
3    the search ended, but no trial gave a usable result
4    data, storage, the cluster or a server failed; a search can be resumed
5    replay: the trial does not give what was recorded
130  interrupted by Ctrl-C or a signal; a search can be resumed

doctor: 0 no error, 2 the experiment has one, 4 the machine or the data has one.
logs --follow: 1 if the job failed."""

ENVIRONMENT = """\
For all commands that have the option:
  TUNER_STORAGE       --storage       folder or URI of the run folders
  TUNER_RAY_ADDRESS   --ray-address   a running Ray cluster
  TUNER_JOBS_ADDRESS  --jobs-address  the dashboard of a cluster
  TUNER_CLUSTER       --cluster       the launcher file of a cluster
  TUNER_SERVICE       --service       a team's service
  TUNER_JSON          --json          1 for documents in place of text

For one command, any option of it: TUNER_COMMAND_OPTION, such as TUNER_RUN_NAME=q for `run --name q` or
TUNER_SUBMIT_STORAGE=s3://bucket/runs for `submit --storage s3://bucket/runs`.

TUNER_TOKEN holds your token of a service, if no --token-file is given. No option does: `ps` would show it.

The command line comes first, then the variable of the command, then that for all commands. `resume` continues a job
only if --cluster or --jobs-address is on the command line. `submit --storage` is a place of the cluster: TUNER_STORAGE
does not set it."""

TOPICS = {"exit-status": EXIT_STATUS, "environment": ENVIRONMENT}


@click.command()
@click.argument("topic", metavar="[TOPIC]", required=False)
@click.pass_context
def command(ctx: click.Context, topic: str | None) -> None:
    """Explain TOPIC: exit-status, environment, or a command.

    \b
    Example:
      tuner help exit-status
    """
    root = ctx.find_root()
    assert isinstance(root.command, click.Group)
    if topic is None:
        echo(root.get_help())
    elif topic in TOPICS:
        echo(TOPICS[topic])
    else:
        name, found, _ = root.command.resolve_command(root, [topic])
        assert found is not None  # it raised, if there is none
        with found.make_context(name, [], parent=root, resilient_parsing=True) as below:
            echo(found.get_help(below))
