"""The commands, in the groups and the order in which ``--help`` shows them."""

from __future__ import annotations

GROUPS = {
    "Search": {
        "init": "write a training script and its experiment file, to start from",
        "validate": "show what a search would do, without starting it",
        "run": "search, and keep the best trial",
        "resume": "continue a search that did not come to its end",
        "extend": "make a search longer: more trials, epochs or time",
        "retry": "run the failed trials of a search again",
        "begin": "begin a search whose trials you run yourself",
        "ask": "ask such a search for the next trial",
        "tell": "tell such a search what a trial reports",
        "stop": "stop a running search, or a job of a cluster",
        "control": "change a search while it runs: stop a trial, pause, limit it",
    },
    "Look": {
        "list": "list the runs in a storage folder",
        "show": "show one run and its trials",
        "status": "show what a live or dead run waits for",
        "report": "write a run as one HTML page",
        "watch": "show a run on a page that follows it, and control it there",
        "compare": "put several runs side by side",
        "ui": "open the MLflow UI on a run, or on all runs in a storage folder",
    },
    "Trust": {
        "best": "restore the best trial's model and score it",
        "confirm": "train the best configurations again with fresh seeds",
        "replay": "run one recorded trial again in this process, and compare it with the record",
    },
    "Cluster": {
        "submit": "run a search on a cluster, as a job that needs nobody to wait for it",
        "jobs": "list the searches of a cluster, or recover those of a lost head",
        "logs": "show the output of a job",
        "fetch": "copy a job's run folder here",
        "serve": "let a team share one cluster",
        "token": "make, list or revoke the tokens of a service's users",
    },
    "Tools": {
        "doctor": "check this machine, and an experiment on it, before a search",
        "export": "write a run as an Optuna study, or as a table for simulate",
        "sync": "send a run to MLflow, or to where it is tracked",
        "simulate": "search known learning curves in virtual time, and compare searches",
        "algorithms": "print which search goes with which scheduler",
        "schema": "print the JSON Schema of the experiment file",
        "mcp": "serve these commands to programs and language models",
        "completion": "print the completion script of a shell",
        "help": "explain exit statuses, environment variables, or a command",
    },
}

HIDDEN = {"why": "why", "track": "track", "table": "table"}
"""Older names, which still work and which help does not show, and the files of their commands."""

FILES = {"status": "why", "sync": "track", "help": "topics"}
"""Commands whose files have other names."""


def names() -> list[str]:
    """Of the commands that help shows."""
    return [name for commands in GROUPS.values() for name in commands]
