"""The code of a project that travels with a job: what git would track, without data and without secrets."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import InputError
from tuner.spec.quantities import format_bytes

MAX_BYTES = 50 * 2**20
"""More than this is hardly code: it would be sent with each change, and unpacked on every node."""

IGNORE = ".tunerignore"
"""A file in the project's root whose lines are patterns, as those of ``--exclude``; ``#`` begins a comment."""

_SHOWN = 10
_NEVER = ("runs/*", ".git/*", "__pycache__/", ".venv/*")

_LEFT_OUT = (
    *(".env*", "*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*"),
    *(".netrc", "_netrc", ".git-credentials", ".npmrc", ".pypirc", "credentials", "credentials.*", "*kubeconfig*"),
    *(".aws/", ".azure/", ".config/", ".docker/", ".gnupg/", ".kube/", ".ssh/"),
    *("*.db", "env/", "venv/", "mlartifacts/", "mlruns/", "wandb/"),
)
"""Files that git does not track travel only if ``--include`` names them where one of these does too."""

_SECRET_NAME = re.compile(
    r"^\.env$|secret|passw(or)?d|auth_token|(^|[._-])token$|service[_-]?account.*\.json$", re.IGNORECASE
)
_SECRET_TEXT = {
    "a private key": re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY"),
    "an access key of AWS": re.compile(rb"\b(AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a token of GitHub": re.compile(rb"\b(gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{40})"),
    "a token of GitLab": re.compile(rb"\bglpat-[\w-]{20}"),
    "a token of Hugging Face": re.compile(rb"\bhf_[A-Za-z0-9]{30}"),
    "a token of Slack": re.compile(rb"\bxox[abprs]-[\w-]{20}"),
    "a key of Google": re.compile(rb"\bAIza[\w-]{35}"),
    "a key of an API": re.compile(rb"\bsk-[\w-]{40}"),
}
_CODE = (".py", ".pyi", ".ipynb", ".sh", ".md", ".rst")
"""Names of such files tell of what they are about."""


@dataclass(frozen=True)
class Code:
    """What travels of a project."""

    files: tuple[Path, ...]
    """Relative to the project."""
    left_out: dict[str, str]
    """Why a file stays that .gitignore lets through, by its name."""

    @property
    def remark(self) -> str:
        """What stays, and why; empty if nothing does."""
        if not self.left_out:
            return ""
        names = [f"{name} ({why})" for name, why in list(self.left_out.items())[:_SHOWN]]
        more = f" and {len(self.left_out) - _SHOWN} more" if len(self.left_out) > _SHOWN else ""
        return f"left out: {', '.join(names)}{more}; --include GLOB sends them"


def code_of(project: Path, exclude: Sequence[str] = (), include: Sequence[str] = ()) -> Code:
    """The files of ``project`` that travel: those that its .gitignore files let through.

    Never run folders, nor what matches a pattern of ``exclude`` (``data/*``) or of the file .tunerignore. Of what git
    does not track, nothing that looks like a secret, an environment or a database, unless a pattern of ``include``
    matches it. No link that leads out of the project. Raises InputError if a file seems to hold a secret, tracked or
    not, and ``include`` does not name it, or where they are more than `MAX_BYTES` together.
    """
    never = [*_NEVER, *exclude, *_ignored(project)]
    names = {name: tracked for name, tracked in _listed(project) if not _matches(name, never)}
    files: list[Path] = []
    left_out: dict[str, str] = {}
    doubtful: list[str] = []
    for name in sorted(names):
        if not (project / name).is_file():
            continue
        if why := _stays(project, name, names[name], include):
            left_out[name] = why
            continue
        files.append(Path(name))
        if not _matches(name, include) and (what := _secret(project / name)):
            doubtful.append(f"{name} ({what})")
    if doubtful:
        more = f" and {len(doubtful) - _SHOWN} more" if len(doubtful) > _SHOWN else ""
        raise InputError(
            f"{project}: files that look like secrets would travel: {', '.join(doubtful[:_SHOWN])}{more}; name it in "
            f".gitignore or {IGNORE}, leave it out with --exclude NAME, or send it with --include NAME"
        )
    _check_size(project, files)
    return Code(tuple(files), left_out)


def copy_files(project: Path, files: Sequence[Path], target: Path) -> None:
    """Puts the files below ``target``, with their folders."""
    for file in files:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(project / file, target / file)


def _stays(project: Path, name: str, tracked: bool, include: Sequence[str]) -> str:
    """Why a file does not travel; empty if it does."""
    file, root = project / name, project.resolve()
    if file.is_symlink() and not file.resolve().is_relative_to(root):
        return "a link out of the project"
    if _matches(name, include):
        return ""
    if file.is_symlink() and _matches(str(file.resolve().relative_to(root)), _LEFT_OUT):
        return "a link to what stays here"
    return "" if tracked or not _matches(name, _LEFT_OUT) else "not in git, and no code by its name"


def _secret(file: Path) -> str:
    """What secret a file seems to hold, by its name or its text; empty if it seems to hold none."""
    if file.suffix not in _CODE and _SECRET_NAME.search(file.name):
        return "by its name"
    text = file.read_bytes() if file.stat().st_size <= MAX_BYTES else b""
    return next((what for what, pattern in _SECRET_TEXT.items() if pattern.search(text)), "")


def _check_size(project: Path, files: Sequence[Path]) -> None:
    sizes = {file: (project / file).stat().st_size for file in files}
    total = sum(sizes.values())
    if total > MAX_BYTES:
        largest = sorted(sizes, key=lambda file: -sizes[file])[:_SHOWN]
        shown = ", ".join(f"{file} ({format_bytes(sizes[file])})" for file in largest)
        raise InputError(
            f"{project}: its code is {format_bytes(total)}, more than {format_bytes(MAX_BYTES)}: is there data in it? "
            f"The largest: {shown}; put what is not code into .gitignore, or leave it out with --exclude 'data/*'"
        )


def _ignored(project: Path) -> list[str]:
    """The patterns of the project's .tunerignore."""
    file = project / IGNORE
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern matches the path. One without a slash matches a file anywhere, ``name/`` a folder anywhere."""
    *folders, last = name.split("/")
    for pattern in patterns:
        if "/" in pattern.rstrip("/"):
            found = fnmatch.fnmatch(name, f"{pattern}*" if pattern.endswith("/") else pattern)
        elif pattern.endswith("/"):
            found = any(fnmatch.fnmatch(folder, pattern[:-1]) for folder in folders)
        else:
            found = fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(last, pattern)
        if found:
            return True
    return False


def _listed(project: Path) -> Iterator[tuple[str, bool]]:
    """Files that .gitignore does not name, and whether git tracks them; without git, those that are not hidden."""
    if shutil.which("git") is None:
        for folder, below, files in os.walk(project):
            below[:] = [name for name in below if not name.startswith(".")]
            shown = [name for name in files if not name.startswith(".")]
            yield from ((str(Path(folder, name).relative_to(project)), False) for name in shown)
        return
    others = ["--others", "--exclude-standard"]
    tracked = _asked(["-C", str(project)], "--cached")
    if tracked is not None:
        yield from ((name, False) for name in _asked(["-C", str(project)], *others) or [])
        yield from ((name, True) for name in tracked)
        return
    with tempfile.TemporaryDirectory() as empty:  # it is no repository: the rules of .gitignore hold all the same
        subprocess.run(["git", "init", "-q", "--bare", empty], check=True)
        place = [f"--git-dir={empty}", f"--work-tree={project}", "-C", str(project)]
        yield from ((name, False) for name in _asked(place, *others) or [])


def _asked(place: Sequence[str], *options: str) -> list[str] | None:
    """The files that ``git ls-files`` lists; None if there is no repository."""
    command = ["git", *place, "ls-files", "-z", *options]
    listing = subprocess.run(command, capture_output=True, text=True, check=False)
    return [name for name in listing.stdout.split("\0") if name] if listing.returncode == 0 else None
