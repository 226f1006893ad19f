"""``serve``: the service of a team."""

from __future__ import annotations

import click

from tuner.cli import complete, options
from tuner.cli.output import echo, print_json


@click.command()
@options.storage
@options.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Address to listen at.")
@options.option("--port", type=click.IntRange(0, 65535), default=8380, show_default=True, help="0: any free one.")
@options.option(
    "--jobs-address",
    "address",
    old=["--address"],
    default="http://127.0.0.1:8265",
    show_default=True,
    metavar="URL",
    help="The dashboard of the cluster that the searches run on.",
)
@options.option(
    "--team",
    metavar="FILE",
    shell_complete=complete.files,
    help="Members, quotas and reservation; without it .service/team.yaml of the storage.",
)
@options.option("--mlflow", metavar="URI", help="MLflow server of searches that use MLflow and name no server.")
@options.as_json
def command(
    storage: str, host: str, port: int, address: str, team: str | None, mlflow: str | None, as_json: bool
) -> None:
    """Let a team share one cluster: queue the searches that `submit --service` sends, and show all of them.

    \b
    Example:
      tuner serve --storage /shared/runs
      tuner serve --storage s3://bucket/runs --team team.yaml

    It runs beside Ray's head, and keeps everything in the storage: it may be killed at any time. Users need tokens
    (tuner token). They reach it through ssh -L 8380:127.0.0.1:8380 HEAD, or through a proxy with TLS.

    Exit status: 0 after SIGTERM or Ctrl-C; 4 if the port is in use, or another service has the storage.
    """
    from tuner.experiment.tracking import mlflow_at
    from tuner.live.http_server import listening
    from tuner.service.cluster import RayCluster
    from tuner.service.queue import SearchQueue
    from tuner.service.serve import serve
    from tuner.service.team import TeamFile
    from tuner.storage.folder import RunFolder

    folder = RunFolder.at(storage)
    if "://" not in storage:  # the jobs work in other folders
        folder = RunFolder.at(folder.local_path)
    if mlflow is not None:
        mlflow_at(mlflow)
    members = TeamFile(folder, team)

    def started(url: str) -> None:
        if as_json:
            print_json({"address": url})
        else:
            echo(url)

    def say(text: str) -> None:
        echo(text, err=True)

    with listening(host, port) as listener, SearchQueue.open(folder, RayCluster(address), members.team) as queue:
        for line in queue.unreadable:
            say(f"NOTICE: {line}")
        serve(
            queue,
            folder,
            listener,
            say,
            started,
            mlflow=mlflow,
            before_pass=lambda: members.follow(queue.set_team, say),
        )
